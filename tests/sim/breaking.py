"""A policy whose predictor breaks after a while."""

from dataclasses import dataclass
from typing import Any

from autoscaler.model import Observation, Proposal
from autoscaler.ports import PolicyContext


@dataclass(frozen=True, slots=True)
class Params:
    """When it breaks."""

    after_ticks: int = 10


class Breaking:
    """Content with what is there, until it divides by zero."""

    def __init__(self, params: Params) -> None:
        self._left = params.after_ticks

    def propose(self, obs: Observation) -> Proposal:
        self._left -= 1
        return Proposal(obs.width.present, "content", f"one in {1 / self._left}")

    def state(self) -> dict[str, Any]:
        return {}


def build(params: Params, context: PolicyContext) -> Breaking:
    return Breaking(params)
