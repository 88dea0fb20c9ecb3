"""Which width to grow to: it lasts until the next resize can help, at the least cost."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.foresight import backlog
from autoscaler.foresight.trend import Line

_LONGEST_DRAIN_S = 3600.0
_DRAINED = 0.8
"""Share of what may wait at most: what is left then is no breach any more."""


@dataclass(frozen=True, slots=True)
class Bears:
    """What a width bears of the present mix, corrected by what was observed.

    Args:
        width: the width.
        rps: arrivals a second within the objective, >= 0.
        waiting: requests that may wait as far as plans go, > 0.
        most: requests that wait where the objective is just missed, >= waiting.
        unqueued_s: p95 TTFT at the present demand while nothing waits for long, s.
    """

    width: int
    rps: float
    waiting: float
    most: float
    unqueued_s: float

    def ttft_p95_s(self, queue: float) -> float:
        """Predicted for who comes while so many wait: what it takes, and what waits before it."""
        return self.unqueued_s + queue / self.rps if self.rps > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Growth:
    """What a growth has to reckon with.

    Args:
        waiting: requests that wait now.
        line: demand as expected.
        upper: demand as planned for.
        lead_s: until the new width serves.
        pause_s: of which nothing is served.
        cover_s: how long it has to last from then on.
        held_s: how long it will be paid for at least.
        catch_up: seconds of a width that a second out of the objective is worth.
    """

    waiting: float
    line: Line
    upper: Line
    lead_s: float
    pause_s: float
    cover_s: float
    held_s: float
    catch_up: float

    @property
    def then(self) -> Line:
        """Demand as planned for, from when the new width serves on."""
        return Line(self.upper.at(self.lead_s), self.line.slope_rps_per_s)

    def queue(self, present: Bears) -> float:
        """Requests that wait when the new width begins to serve, at most as planned for."""
        before = backlog.after(self.waiting, self.upper, present.rps, self.lead_s)
        return before + self.pause_s * self.then.level_rps


def settled(chosen: Bears, present: Bears, growth: Growth) -> float:
    """Requests that still wait when the chosen width has served as long as it has to last."""
    queue = growth.queue(present)
    return backlog.after(queue, growth.then, chosen.rps, growth.cover_s)


def cheapest(candidates: Iterable[Bears], present: Bears, growth: Growth) -> Bears | None:
    """The candidate that lasts and costs least, paid width and time out of the objective alike.

    None: none of them lasts.
    """
    lead_s, line = growth.lead_s, growth.line
    then = growth.then
    queue = growth.queue(present)
    likely = backlog.after(growth.waiting, line, present.rps, lead_s)
    likely += growth.pause_s * line.at(lead_s)
    chosen, least = None, math.inf
    for bears in candidates:
        if bears.rps <= present.rps:
            continue
        left = min(queue, bears.waiting / 2)
        if backlog.breach_s(left, then, bears.rps, bears.waiting) < growth.cover_s:
            continue
        middle = Line(line.at(lead_s + growth.cover_s / 2.0), 0.0)
        drain_s = min(
            backlog.drain_s(likely, middle, bears.rps, _DRAINED * bears.most), _LONGEST_DRAIN_S
        )
        cost = bears.width * growth.held_s + growth.catch_up * drain_s
        if cost < least:
            chosen, least = bears, cost
    return chosen


def lot_s(cost: float, widths_per_s: float) -> float:
    """How long to buy ahead where each resize has a cost: the lot size of an order.

    The square root of 2 x cost / growth balances the resizes against widths that idle.

    Args:
        cost: of one resize, width x seconds, >= 0.
        widths_per_s: growth of demand, > 0.
    """
    return math.sqrt(2.0 * cost / widths_per_s)
