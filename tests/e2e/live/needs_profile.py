"""A third party's policy that cannot do without a profile."""

from dataclasses import dataclass

from autoscaler.errors import ConfigError
from autoscaler.policies.static import Params as _Static
from autoscaler.policies.static import Static


@dataclass(frozen=True, slots=True)
class Params:
    width: int = 4


def build(params, context):
    if context.profile is None:
        raise ConfigError("profile: must be given, this policy predicts from it; got nothing")
    return Static(_Static(params.width))
