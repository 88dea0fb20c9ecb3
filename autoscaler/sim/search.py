"""The cheapest schedule of widths that keeps the SLO, found by playing schedules in the engine.

It keeps it in all windows; where no schedule does, because every resize costs some, in as many as
the scoreboard asks for.

The fluid of ``oracle`` proposes one; where the engine misses the SLO, more load is assumed there
and it proposes anew. Then growth is delayed, shrinks are brought forward and widths are lowered
as long as the engine still keeps the SLO.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from autoscaler.model import Slo
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.oracle import Problem, schedule
from autoscaler.sim.plan import Params as Plan
from autoscaler.sim.score import missed_seconds

KEPT_RATIO = 0.99
"""Windows within the SLO from which on it counts as kept: as in the scoreboard."""

_REPAIRS = 8
_MORE_LOAD = 1.06
_LESS_LOAD = (0.94, 0.88)

_LOWER_MISS_COSTS = (30.0, 10.0, 3.0, 1.0, 0.3)
"""Where some misses cannot be avoided: how much the others are worth is tried out."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a schedule was worth in the engine.

    Args:
        plan: the schedule.
        missed: bool[seconds], windows outside the SLO.
        gpu_seconds: from the first arrival to the last completion.
    """

    plan: Plan
    missed: npt.NDArray[np.bool_]
    gpu_seconds: float

    @property
    def missed_s(self) -> int:
        """Seconds outside the SLO."""
        return int(np.count_nonzero(self.missed))

    @property
    def excess_s(self) -> int:
        """Seconds outside the SLO beyond those that the scoreboard pardons."""
        return max(self.missed_s - int((1.0 - KEPT_RATIO) * len(self.missed) + 1e-9), 0)

    @property
    def kept(self) -> bool:
        """Whether it keeps the SLO as the scoreboard counts it."""
        return self.excess_s == 0

    def better_than(self, other: "Played", *, pardon: bool = False) -> bool:
        """Fewer seconds outside the SLO, then fewer GPU-seconds, then fewer resizes.

        ``pardon``: of the seconds, only those beyond what the scoreboard pardons.
        """
        return self.worth(pardon=pardon) < other.worth(pardon=pardon)

    def worth(self, *, pardon: bool) -> tuple[int, float, int]:
        """What ``better_than`` compares: less is better, the first counts most."""
        seconds = self.excess_s if pardon else self.missed_s
        return seconds, self.gpu_seconds, len(self.plan.at_s)


@dataclass(frozen=True, slots=True)
class Found:
    """The best schedule, and how it was found.

    Args:
        best: the schedule and its worth.
        plays: how often the load was played.
        finished: whether no single change makes it cheaper; false: the budget was used up.
    """

    best: Played
    plays: int
    finished: bool


def play(fleet: Fleet, plan: Plan, tick_s: float, slo: Slo) -> Played:
    """Play a schedule: asked for at ticks, and again at each one until it is there."""
    changes = sorted({int(np.ceil(at_s / tick_s - 1e-9)) for at_s in plan.at_s})
    tick = 0
    while not fleet.done:
        now_s = tick * tick_s
        fleet.advance(now_s)
        wanted = plan.at(now_s)
        if not fleet.resizing and wanted != fleet.serving:
            fleet.request(wanted, fleet.desired, now_s)
        if fleet.resizing or wanted != fleet.serving:
            tick += 1
            continue
        ahead = [change for change in changes if change > tick]
        if not ahead:
            break
        tick = ahead[0]
    fleet.engine.run()
    engine = fleet.engine
    ended = engine.finish_s[np.isfinite(engine.finish_s)]
    end_s = float(ended.max()) if len(ended) else 0.0
    return Played(plan, missed_seconds(engine, slo), fleet.bill.gpu_seconds(end_s))


class Search:
    """Looks for the best schedule within a number of plays.

    Args:
        problem: what the fluid is to schedule.
        tick_s: of the control loop: resizes begin at multiples of it.
        new_fleet: a fleet that has served nothing yet.
        plays: how often the load may be played, >= 1.
    """

    def __init__(
        self, problem: Problem, tick_s: float, new_fleet: Callable[[], Fleet], plays: int
    ) -> None:
        self._problem = problem
        self._tick_s = tick_s
        self._new_fleet = new_fleet
        self._left = self._budget = plays
        self._pardon = False
        self._seen: dict[tuple[tuple[float, ...], tuple[int, ...]], Played] = {}

    def run(self, best: Played) -> Found:
        """The best schedule found, at least as good as ``best``."""
        load = np.ones(len(self._problem.work))
        best = self._repaired(best, load)
        if best.missed_s == 0:
            for factor in _LESS_LOAD:
                trial = self._propose(load * factor)
                if trial is None or not trial.better_than(best):
                    break
                best = trial
            return self._trimmed(best)
        # No schedule is good in all windows: the cheapest one that is good in enough of them.
        self._pardon = True
        for miss_cost in _LOWER_MISS_COSTS:
            trial = self._propose(load, miss_cost)
            if trial is not None and trial.better_than(best, pardon=True):
                best = trial
        return self._trimmed(best)

    def _repaired(self, best: Played, load: npt.NDArray[np.float64]) -> Played:
        """Assumes more load, in place, where the engine misses the SLO."""
        missed_before = None
        for _ in range(_REPAIRS):
            trial = self._propose(load)
            if trial is None:
                break
            if trial.better_than(best):
                best = trial
            if trial.missed_s == 0 or trial.missed_s == missed_before:
                break
            missed_before = trial.missed_s
            self._assume_more(load, trial.missed)
        return best

    def _assume_more(self, load: npt.NDArray[np.float64], missed: npt.NDArray[np.bool_]) -> None:
        # A window speaks of what came up to its length, and the wait, before.
        problem = self._problem
        reach_s = problem.slo.window_s + problem.slo.ttft_p95_s + problem.tick_s
        seconds = np.flatnonzero(missed) + 1
        first = np.maximum((seconds - reach_s) / problem.tick_s, 0).astype(np.int64)
        last = np.minimum((seconds / problem.tick_s).astype(np.int64) + 1, len(load))
        touched = np.zeros(len(load) + 1)
        np.add.at(touched, np.minimum(first, len(load)), 1)
        np.add.at(touched, last, -1)
        load[np.cumsum(touched)[:-1] > 0] *= _MORE_LOAD

    def _propose(
        self, load: npt.NDArray[np.float64], miss_cost: float | None = None
    ) -> Played | None:
        if not self._left:
            return None
        problem = replace(self._problem, work=self._problem.work * load)
        if miss_cost is not None:
            problem = replace(problem, miss_cost=miss_cost)
        return self._play(schedule(problem))

    def _trimmed(self, best: Played) -> Found:
        """Small changes to the schedule, the coarse ones first, as long as one of them helps."""
        stride = 8
        while stride:
            improved = False
            for plan in self._neighbours(best.plan, stride * self._tick_s):
                if _key(plan) in self._seen:
                    continue
                if not self._left:
                    return Found(best, self._budget, False)
                trial = self._play(plan)
                if trial.better_than(best, pardon=self._pardon):
                    best, improved = trial, True
                    break
            if not improved:
                stride //= 2
        return Found(best, self._budget - self._left, True)

    def _neighbours(self, plan: Plan, shift_s: float) -> Iterator[Plan]:
        before = [plan.initial_width, *plan.width]
        least = min(self._problem.rates_rps)
        if len(plan.at_s) > 2:
            yield _all_moved(plan, shift_s)
        for i, width in enumerate(plan.width):
            later_s = shift_s if width > before[i] else -shift_s
            yield _moved(plan, i, plan.at_s[i] + later_s)
            yield _without(plan, i)
            if width > least:
                yield _lowered(plan, i)

    def _play(self, plan: Plan) -> Played:
        plan = _simple(plan)
        known = self._seen.get(_key(plan))
        if known is None:
            self._left -= 1
            known = play(self._new_fleet(), plan, self._tick_s, self._problem.slo)
            self._seen[_key(plan)] = known
        return known


def _key(plan: Plan) -> tuple[tuple[float, ...], tuple[int, ...]]:
    return plan.at_s, plan.width


def _moved(plan: Plan, index: int, at_s: float) -> Plan:
    """One change at another time; those that it reaches are left out."""
    steps = list(zip(plan.at_s, plan.width, strict=True))
    mine = steps.pop(index)
    if at_s > plan.at_s[index]:
        steps = [s for i, s in enumerate(steps) if i < index or s[0] > at_s]
    else:
        steps = [s for i, s in enumerate(steps) if i >= index or s[0] < at_s]
    steps.append((max(at_s, 0.0), mine[1]))
    return _simple(_of(sorted(steps), plan))


def _all_moved(plan: Plan, shift_s: float) -> Plan:
    """All growth later, all shrinks earlier; where they meet, as they were."""
    steps: list[tuple[float, int]] = []
    width = plan.initial_width
    for at_s, following in zip(plan.at_s, plan.width, strict=True):
        moved_s = max(at_s + (shift_s if following > width else -shift_s), 0.0)
        if steps and moved_s <= steps[-1][0]:
            return plan
        steps.append((moved_s, following))
        width = following
    return _of(steps, plan)


def _lowered(plan: Plan, index: int) -> Plan:
    widths = list(plan.width)
    widths[index] -= 1
    return _simple(replace(plan, width=tuple(widths)))


def _without(plan: Plan, index: int) -> Plan:
    steps = list(zip(plan.at_s, plan.width, strict=True))
    del steps[index]
    return _simple(_of(steps, plan))


def _simple(plan: Plan) -> Plan:
    """Without changes that change nothing."""
    steps = []
    width = plan.initial_width
    for at_s, following in zip(plan.at_s, plan.width, strict=True):
        if following != width:
            steps.append((at_s, following))
        width = following
    return _of(steps, plan)


def _of(steps: list[tuple[float, int]], plan: Plan) -> Plan:
    return replace(plan, at_s=tuple(s[0] for s in steps), width=tuple(s[1] for s in steps))
