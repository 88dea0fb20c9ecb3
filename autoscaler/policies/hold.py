"""Never changes the width: the baseline, and the switch for a pause."""

from dataclasses import dataclass
from typing import Any

from autoscaler.model import Observation, Proposal
from autoscaler.ports import PolicyContext


@dataclass(frozen=True, slots=True)
class Params:
    """Nothing to set."""


class Hold:
    """width(t) = width(t - 1).

    Any load: no change. A width out of the guards' bounds is still brought back into them.
    """

    def propose(self, obs: Observation) -> Proposal:
        """The present width."""
        return Proposal(obs.width.present, "hold", "this policy never changes the width")

    def state(self) -> dict[str, Any]:
        """Empty: nothing is remembered."""
        return {}


def build(params: Params, context: PolicyContext) -> Hold:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return Hold()
