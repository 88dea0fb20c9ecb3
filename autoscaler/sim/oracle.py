"""A schedule of widths by dynamic programming over time, width and backlog.

Knows all arrivals. Requests are a fluid here: work comes by the tick, a width works it off at the
rate that it bears for ever, and whoever comes waits for what is queued. That errs by the noise of
single arrivals, so that ``search`` plays each schedule in the real engine and corrects it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.model import Slo
from autoscaler.sim.plan import Params as Plan
from autoscaler.sim.resize import ResizeModel

Floats = npt.NDArray[np.float64]

_BACKLOGS = 15
"""Points of the backlog's grid; they lie on a parabola, dense where little waits."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be scheduled.

    Args:
        tick_s: length of a step, s, > 0.
        work: float64[ticks], requests that come in each step, in requests of mean cost.
        rates_rps: by width, requests of mean cost that it bears, > 0.
        gpus: of the same widths.
        resize: the course of a resize.
        drain_s: how long ranks that leave take to finish what they have, s, >= 0.
        slo: the objective.
        initial_width: one of the widths.
        miss_cost: what a second outside the SLO costs, in times all GPUs, > 0. So large that the
            GPUs count only between schedules that miss equally little, or less.
    """

    tick_s: float
    work: Floats
    rates_rps: Mapping[int, float]
    gpus: Mapping[int, int]
    resize: ResizeModel
    drain_s: float
    slo: Slo
    initial_width: int
    miss_cost: float = 1e3


def schedule(problem: Problem) -> Plan:
    """The cheapest schedule, misses included; resizes begin at multiples of the tick."""
    return _Programme(problem).solve()


@dataclass(frozen=True, slots=True)
class _Course:
    """A resize in the programme's terms.

    ``ticks``: from the request until the next decision. ``whole``: of these, ticks at the old
    width. After them ``old_s`` at the old width, then ``paused_s`` of silence, then ``new_s`` at
    the new one. ``missed_s``: outside the SLO whatever the backlog is, where anything comes.
    """

    ticks: int
    whole: int
    old_s: float
    paused_s: float
    new_s: float
    missed_s: float


def _course(problem: Problem, *, up: bool) -> _Course:
    resize, tick_s = problem.resize, problem.tick_s
    before_s = resize.prepare_s + (resize.capacity_wait_s if up else 0.0)
    drains = not up and resize.leaving == "drain" and resize.in_flight == "keep"
    before_s += problem.drain_s if drains else 0.0
    rejected_s = resize.reject_s(up)
    paused_s = max(resize.pause_s(up), rejected_s)
    ticks = max(int(np.ceil((before_s + paused_s) / tick_s - 1e-9)), 1)
    whole = int(before_s / tick_s + 1e-9)
    old_s = before_s - whole * tick_s
    missed_s = 0.0
    cuts_off = resize.in_flight == "fail" or not (up or resize.leaving == "drain")
    if rejected_s or cuts_off:
        missed_s = rejected_s + problem.slo.window_s
    return _Course(ticks, whole, old_s, paused_s, ticks * tick_s - before_s - paused_s, missed_s)


class _Programme:
    def __init__(self, problem: Problem) -> None:
        self.p = problem
        self.widths = np.array(sorted(problem.rates_rps))
        self.rate = np.array([problem.rates_rps[w] for w in self.widths.tolist()])
        self.gpus = np.array([problem.gpus[w] for w in self.widths.tolist()], np.float64)
        slo = problem.slo
        self.largest = float(self.rate.max()) * (slo.ttft_p95_s + slo.window_s)
        self.grid = self.largest * (np.arange(_BACKLOGS) / (_BACKLOGS - 1)) ** 2
        self.miss = problem.miss_cost * float(self.gpus.max())
        self.up, self.down = _course(problem, up=True), _course(problem, up=False)

    def solve(self) -> Plan:
        """Backwards through time for the values, then forwards along the best choices."""
        ticks, count = len(self.p.work), len(self.widths)
        ahead = max(self.up.ticks, self.down.ticks) + 1
        # What is left over at the end has to be served by somebody.
        end = self.grid[None, :] / self.rate[:, None] * self.gpus[:, None]
        # The values of the next steps, the nearest first; beyond the end nothing changes.
        later = [end] * ahead
        choices = np.zeros((ticks, count, _BACKLOGS), np.int16)
        backlog = np.broadcast_to(self.grid, (count, _BACKLOGS))
        for k in range(ticks - 1, -1, -1):
            stay_backlog, stay_cost = self._stay(k, backlog)
            value = stay_cost + self._look(later[0], stay_backlog)
            choice = np.broadcast_to(np.arange(count)[:, None], value.shape).copy()
            for course, up in ((self.up, True), (self.down, False)):
                if k + course.ticks <= ticks and (up or not self.p.resize.scale_up_only):
                    options = self._resize(k, backlog, course, later[course.ticks - 1], up=up)
                    target = options.argmin(axis=1)
                    cost = np.take_along_axis(options, target[:, None, :], axis=1)[:, 0, :]
                    better = cost < value - 1e-9
                    value = np.where(better, cost, value)
                    choice = np.where(better, target, choice)
            choices[k] = choice
            later = [value, *later[:-1]]
        return self._follow(choices)

    def _follow(self, choices: npt.NDArray[np.int16]) -> Plan:
        at_s: list[float] = []
        asked: list[int] = []
        i = int(np.searchsorted(self.widths, self.p.initial_width))
        backlog = 0.0
        k = 0
        while k < len(choices):
            # The next larger backlog of the grid decides: rather too careful.
            j = min(int(np.searchsorted(self.grid, backlog - 1e-9)), _BACKLOGS - 1)
            target = int(choices[k, i, j])
            mine = np.full((len(self.widths), 1), backlog)
            if target == i:
                backlog = float(self._stay(k, mine)[0][i, 0])
                k += 1
                continue
            up = target > i
            course = self.up if up else self.down
            backlog = float(self._through(k, mine, course, up=up)[0][i, target, 0])
            at_s.append(k * self.p.tick_s)
            asked.append(int(self.widths[target]))
            k += course.ticks
            i = target
        return Plan(tuple(at_s), tuple(asked), self.p.initial_width)

    def _look(self, value: Floats, backlog: Floats) -> Floats:
        """The value at each backlog, between the points of the grid; first axis: width."""
        place = np.sqrt(np.minimum(backlog, self.largest) / self.largest) * (_BACKLOGS - 1)
        low = np.minimum(place.astype(np.int64), _BACKLOGS - 2)
        share = (backlog - self.grid[low]) / (self.grid[low + 1] - self.grid[low])
        share = np.minimum(share, 1.0)
        flat = low.reshape(len(value), -1)
        below = np.take_along_axis(value, flat, axis=1).reshape(backlog.shape)
        above = np.take_along_axis(value, flat + 1, axis=1).reshape(backlog.shape)
        return np.asarray(below + share * (above - below), np.float64)

    def _stay(self, k: int, backlog: Floats) -> tuple[Floats, Floats]:
        """One step at the same width: what is queued after it, and what it costs."""
        rate, tick_s = self.rate[:, None], self.p.tick_s
        after = np.maximum(backlog + self.p.work[k] - rate * tick_s, 0.0)
        late = after > rate * self.p.slo.ttft_p95_s
        return after, tick_s * (self.gpus[:, None] + self.miss * late)

    def _through(
        self, k: int, backlog: Floats, course: _Course, *, up: bool
    ) -> tuple[Floats, Floats]:
        """A resize from each width to each other one.

        Returns:
            float64[from, to, backlogs]: what is queued after it, and what the misses cost.
        """
        missed = np.zeros_like(backlog)
        for step in range(k, k + course.whole):
            backlog, cost = self._stay(step, backlog)
            missed += cost - self.p.tick_s * self.gpus[:, None]
        rest = slice(k + course.whole, k + course.ticks)
        span_s = course.old_s + course.paused_s + course.new_s
        rate_rps = float(self.p.work[rest].sum()) / span_s if span_s > 0 else 0.0
        held = np.maximum(backlog + (rate_rps - self.rate[:, None]) * course.old_s, 0.0)
        comes = rate_rps * (course.paused_s - self.p.resize.reject_s(up))
        held = held + max(comes, 0.0)
        slo_s = self.p.slo.ttft_p95_s
        # Who came just before the pause waits for it and for what was queued.
        wait_s = course.paused_s + held[:, None, :] / self.rate[None, :, None]
        late = (wait_s - course.new_s > slo_s) | (course.paused_s > slo_s)
        late = late & (held[:, None, :] > 0)
        after = held[:, None, :] + (rate_rps - self.rate[None, :, None]) * course.new_s
        certain_s = course.missed_s if rate_rps > 0 else 0.0
        penalty = self.miss * (certain_s + self.p.slo.window_s * late)
        return np.maximum(after, 0.0), missed[:, None, :] + penalty

    def _resize(
        self, k: int, backlog: Floats, course: _Course, value: Floats, *, up: bool
    ) -> Floats:
        """float64[from, to, backlogs]: what it costs from here to the end; inf: the other way."""
        after, cost = self._through(k, backlog, course, up=up)
        length_s = course.ticks * self.p.tick_s
        old, new = self.gpus[:, None, None], self.gpus[None, :, None]
        if up:
            resize = self.p.resize
            from_s = resize.capacity_wait_s if resize.gpus_billed_from == "capacity" else 0.0
            cost = cost + old * from_s + new * (length_s - from_s)
        else:
            cost = cost + old * (length_s - course.new_s) + new * course.new_s
        following = self._look(value, after.transpose(1, 0, 2)).transpose(1, 0, 2)
        index = np.arange(len(self.widths))
        towards = index[None, :] > index[:, None] if up else index[None, :] < index[:, None]
        return np.where(towards[:, :, None], cost + following, np.inf)
