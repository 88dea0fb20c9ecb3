"""What a search wants: the fewest GPU-hours among what keeps the SLO and does not flap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHORTFALL_WEIGHT = 50.0
"""A hundredth of the windows below the goal weighs as much as 65 % more GPU-hours (e^0.5): a
constraint, where it can be met; where no parameters meet it, still a direction to go."""

REVERSAL_WEIGHT = 0.2
"""Each reversal an hour beyond the budget weighs as much as 22 % more GPU-hours (e^0.2)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy attained in one case.

    Args:
        windows_ok_ratio: share of the windows within the SLO, 0..1.
        gpu_hours: allocated.
        reversals_per_hour: changes of direction; of a case under an hour their number.
        failed: requests.
    """

    windows_ok_ratio: float
    gpu_hours: float
    reversals_per_hour: float
    failed: int


@dataclass(frozen=True, slots=True)
class Goal:
    """The constraints.

    Args:
        attainment_ratio: windows that are to be within the SLO, 0..1.
        reversals_per_hour: changes of direction that are permitted, >= 0.
    """

    attainment_ratio: float = 0.99
    reversals_per_hour: float = 4.0

    def kept(self, outcome: Outcome) -> bool:
        """Whether both constraints are."""
        return (
            outcome.windows_ok_ratio >= self.attainment_ratio
            and outcome.reversals_per_hour <= self.reversals_per_hour
        )


def score(outcomes: Sequence[Outcome], base: Sequence[Outcome], goal: Goal) -> float:
    """Less is better: mean over the cases of ln(GPU-hours / base's), plus what is not kept.

    Args:
        outcomes: one a case.
        base: those of the parameters that the search began with.
        goal: the constraints.
    """
    return math.fsum(_score(o, b, goal) for o, b in zip(outcomes, base, strict=True)) / len(base)


def _score(outcome: Outcome, base: Outcome, goal: Goal) -> float:
    return (
        math.log(outcome.gpu_hours / base.gpu_hours)
        + SHORTFALL_WEIGHT * max(goal.attainment_ratio - outcome.windows_ok_ratio, 0.0)
        + REVERSAL_WEIGHT * max(outcome.reversals_per_hour - goal.reversals_per_hour, 0.0)
    )


def summary(outcomes: Sequence[Outcome], goal: Goal) -> dict[str, Any]:
    """How a set of cases went, JSON-ready."""
    count = len(outcomes)
    return {
        "cases": count,
        "kept": sum(goal.kept(o) for o in outcomes),
        "windows_ok_ratio": math.fsum(o.windows_ok_ratio for o in outcomes) / count,
        "worst_windows_ok_ratio": min(o.windows_ok_ratio for o in outcomes),
        "gpu_hours": math.fsum(o.gpu_hours for o in outcomes),
        "most_reversals_per_hour": max(o.reversals_per_hour for o in outcomes),
        "failed": sum(o.failed for o in outcomes),
    }
