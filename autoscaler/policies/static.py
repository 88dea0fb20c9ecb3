"""One width for good: what a person would provision by hand."""

from dataclasses import dataclass
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import require_whole
from autoscaler.ports import PolicyContext


@dataclass(frozen=True, slots=True)
class Params:
    """The width.

    Args:
        width: data-parallel width, >= 0. Larger: more headroom, more GPU-hours.
    """

    width: int

    def __post_init__(self) -> None:
        require_whole("width", self.width, 0)

    @classmethod
    def from_argument(cls, text: str) -> "Params":
        """The 4 of ``static:4``.

        Raises:
            ConfigError: not a whole number.
        """
        if not text.isdecimal():
            raise ConfigError(f"static:WIDTH: must be a whole number >= 0; got {text!r}")
        return cls(int(text))


class Static:
    """width(t) = W.

    Any load: W, as soon as the guards let it get there; from there no change.
    """

    def __init__(self, params: Params) -> None:
        self._proposal = Proposal(params.width, "static", f"always {params.width}")

    def propose(self, obs: Observation) -> Proposal:  # noqa: ARG002  # the port's signature
        """Always the same width."""
        return self._proposal

    def state(self) -> dict[str, Any]:
        """Empty: nothing is remembered."""
        return {}


def build(params: Params, context: PolicyContext) -> Static:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return Static(params)
