"""A schedule of widths, and the policy that follows it whatever it sees.

Not among the shipped policies: it knows the future only because somebody computed it beforehand.
"""

from dataclasses import dataclass
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Proposal
from autoscaler.ports import PolicyContext
from autoscaler.window import TIME_TOLERANCE_S


@dataclass(frozen=True, slots=True)
class Params:
    """When which width is asked for.

    Args:
        at_s: instants, ascending, seconds since the start of the loop.
        width: as many widths.
        initial_width: asked for until the first of them.
    """

    at_s: tuple[float, ...]
    width: tuple[int, ...]
    initial_width: int

    def __post_init__(self) -> None:
        if len(self.at_s) != len(self.width):
            raise ConfigError(
                f"at_s, width: must be equally many; got {len(self.at_s)} and {len(self.width)}"
            )
        if any(b <= a for a, b in zip(self.at_s, self.at_s[1:], strict=False)):
            raise ConfigError(f"at_s: must be ascending; got {self.at_s}")

    def at(self, now_s: float) -> int:
        """The width to ask for at an instant."""
        width = self.initial_width
        for at_s, following in zip(self.at_s, self.width, strict=True):
            if at_s > now_s + TIME_TOLERANCE_S:
                break
            width = following
        return width


class Follow:
    """Proposes what the plan says."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._start_s: float | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The plan's width at this instant."""
        if self._start_s is None:
            self._start_s = obs.now_s
        width = self._params.at(obs.now_s - self._start_s)
        return Proposal(width, "plan", f"the plan says {width}")

    def state(self) -> dict[str, Any]:
        """When the plan began."""
        return {"start_s": self._start_s}


def build(params: Params, context: PolicyContext) -> Follow:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return Follow(params)
