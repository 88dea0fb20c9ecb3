"""PID on the p95 TTFT, with the queue fed forward, in widths' logarithms."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.errors import ConfigError
from autoscaler.evidence import grounded
from autoscaler.load_memory import LoadMemory
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, require_number
from autoscaler.ports import PolicyContext
from autoscaler.window import elapsed

_LONGEST_TICKS = 3.0
"""A gap longer than this many ticks counts as so many: nobody saw what happened in it."""
_MOST = 700.0
"""Largest exponent whose exponential is still a float."""


@dataclass(frozen=True, slots=True)
class Params:
    """Set point, gains, what they apply to, and when the output becomes a resize.

    Args:
        target_ratio: share of the p95 TTFT objective that is aimed at, > 0. Larger: fewer
            GPU-hours, less room.
        kp: proportional gain, >= 0; 1: twice the target asks for twice the width. Larger: grows
            sooner and further.
        ki_per_s: integral gain, 1/s, >= 0. Larger: leaves a quiet width sooner, overshoots more.
        kd_s: derivative gain, s, >= 0. Larger: grows earlier on a rise, nervous on noise.
        filter_s: time constant of the derivative, s, >= 0. Larger: calmer, later.
        kq: gain of the queue, >= 0; 1: a full ``queue_per_width`` asks for twice the width.
            Larger: grows sooner on a queue.
        queue_per_width: waiting requests a unit of width that count as one, > 0. Larger: the
            queue counts for less.
        ratio_low: a TTFT below this share of the target counts as that share, > 0, < 1. Smaller:
            shrinks sooner when it is quiet.
        ratio_high: a TTFT above this multiple of the target counts as it, > 1. Larger: bigger
            steps in an overload.
        up_share: how much of the way to the next permitted width the output has to have gone for
            growth, > 0, <= 1. Larger: grows later.
        down_share: the same for a shrink, > 0. Larger: shrinks later, reverses less.
        return_ratio: a width is shrunk back to only below this share of the arrivals at which it
            began to hurt, > 0, <= 1. Larger: shrinks sooner, reverses more often.
        remember_s: how long that is remembered, s, >= 0; 0: not at all. Larger: fewer reversals.
    """

    target_ratio: Annotated[float, Range(0.1, 0.6, log=True)] = 0.2
    kp: Annotated[float, Range(0.0, 1.0)] = 0.2
    ki_per_s: Annotated[float, Range(1e-4, 1e-2, log=True)] = 0.001
    kd_s: Annotated[float, Range(0.0, 60.0)] = 5.0
    filter_s: float = 15.0
    kq: Annotated[float, Range(0.0, 2.0)] = 0.4
    queue_per_width: float = 8.0
    ratio_low: Annotated[float, Range(0.1, 0.95)] = 0.5
    ratio_high: float = 4.0
    up_share: Annotated[float, Range(0.05, 1.0)] = 0.25
    down_share: Annotated[float, Range(0.5, 3.0)] = 1.0
    return_ratio: float = 0.8
    remember_s: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("target_ratio", "queue_per_width", "down_share"):
            require_number(name, getattr(self, name), 0, above=True)
        for name in ("kp", "ki_per_s", "kd_s", "filter_s", "kq", "remember_s"):
            require_number(name, getattr(self, name), 0)
        require_number("up_share", self.up_share, 0, 1, above=True)
        require_number("return_ratio", self.return_ratio, 0, 1, above=True)
        require_number("ratio_high", self.ratio_high, 1, above=True)
        require_number("ratio_low", self.ratio_low, 0, above=True)
        if self.ratio_low >= 1:
            raise ConfigError(f"ratio_low: must be < 1; got {self.ratio_low!r}")


class Pid:
    """ln width = I + kp e + kd_s de/dt + kq ln(1 + waiting / (queue_per_width x width)),
    e = ln(p95 TTFT / target) within ratio_low .. ratio_high, I = I + ki e dt.

    The derivative is of the measured TTFT, not of the error, so that a changed target causes no
    kick; it is filtered, and dt is the time between two observations: where that is not positive,
    integral and derivative skip the tick.

    Anti-windup. The integral follows the width that is there: it starts at it, and anew after each
    resize. While a resize is in flight, and for a metrics window after it, nothing is integrated
    or differentiated: that TTFT is the resize's own. Widths are places on a lattice: the integral
    grows between them, and stops once the output has reached the next place, however long guards
    or the operator keep it from being taken. It never leaves the permitted widths. A saturated TTFT
    (top bucket) is a lower bound: it counts for the proportional part, not for the others.

    The penalised p95 is used where it is known: failures count.

    Overload: as many places up as P and queue ask for, and one more each time the integral gets
    there. On target: no change. Quiet: the integral falls by ki ln(ratio_low) each second until
    it is down a whole place; then one place down, unless that width hurt lately at such a load.
    Idle, known: as quiet. Data missing: the queue may still ask for growth; never a shrink.
    Widest already and above target: ``slo_infeasible``.
    """  # noqa: D205  # the formula comes first, and it is two lines long

    def __init__(self, params: Params, context: PolicyContext) -> None:
        self.params = params
        self._target_s = params.target_ratio * context.slo.ttft_p95_s
        self._longest_s = _LONGEST_TICKS * context.tick_s
        self._low, self._high = math.log(params.ratio_low), math.log(params.ratio_high)
        self._memory = LoadMemory(params.return_ratio, params.remember_s)
        self._integral: float | None = None
        self._slope = 0.0  # filtered derivative of ln TTFT, 1/s
        self._last: float | None = None  # ln(TTFT / target) of the last tick, where it was known
        self._now_s: float | None = None
        self._width: int | None = None
        self._resized_at_s: float | None = None
        self._high_rps: float | None = None  # arrivals when it began to be too slow

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now."""
        width, now_s = obs.width.present, obs.now_s
        dt_s = 0.0 if self._now_s is None else min(now_s - self._now_s, self._longest_s)
        self._now_s = now_s
        changed = self._width is not None and width != self._width
        self._width = width
        if self._integral is None or changed or obs.resize is not None:
            self._follow(width)
            self._resized_at_s = now_s if changed or obs.resize is not None else None
        if obs.resize is not None:
            return Proposal(obs.resize.to_width, "resizing", "a resize is in flight")
        since_s, window_s = self._resized_at_s, obs.metrics.window_s
        if since_s is not None and now_s >= since_s and not elapsed(since_s, now_s, window_s):
            return Proposal(width, "settling", "the TTFT is still that of the resize")
        self._resized_at_s = None
        return grounded(self._steer(obs, max(width, 1), dt_s), obs)

    def state(self) -> dict[str, Any]:
        """Integral (ln width; None: none yet), slope of ln TTFT (1/s), what hurt before."""
        return {
            "integral": self._integral,
            "slope_per_s": self._slope,
            "hurt": self._memory.state(),
        }

    def _follow(self, width: int) -> None:
        """Begin anew at the width that is there, without a bump."""
        self._integral = math.log(max(width, 1))
        self._slope, self._last, self._high_rps = 0.0, None, None

    def _steer(self, obs: Observation, width: int, dt_s: float) -> Proposal:
        params, metrics = self.params, obs.metrics
        ttft = metrics.ttft_p95_penalised_s
        if ttft.at_least is None:
            ttft = metrics.ttft_p95_s
        error = self._low if obs.idle else self._error(ttft.at_least)
        exact = obs.idle or ttft.value is not None
        waiting = metrics.queue_depth.at_least or 0.0
        queue = params.kq * math.log1p(waiting / (params.queue_per_width * width))
        p = params.kp * error
        d = self._derivative(error, dt_s) if exact else self._no_derivative()
        integral = self._integral if self._integral is not None else math.log(width)
        output = integral + p + d + queue
        wish = self._place(obs, width, output)
        if exact and dt_s > 0:
            self._integral = self._integrated(obs, width, wish, error, dt_s)
        told = "unknown" if ttft.at_least is None else f"{ttft.at_least:.3g} s"
        seen = (
            f"p95 TTFT {told}, target {self._target_s:.3g} s, {waiting:.4g} waiting: output "
            f"{math.exp(min(output, _MOST)):.3g} (P {p:+.2f}, I {integral:.2f}, D {d:+.2f}, "
            f"queue {queue:+.2f})"
        )
        return self._said(obs, width, wish, seen, too_slow=error > 0 or queue > 0)

    def _said(
        self, obs: Observation, width: int, wish: int, seen: str, *, too_slow: bool
    ) -> Proposal:
        arrivals_rps = obs.metrics.arrival_rps.value
        if not too_slow:
            self._high_rps = None
        elif self._high_rps is None:
            self._high_rps = arrivals_rps
        if wish > width:
            self._memory.hurt(width, self._high_rps, obs.now_s)
            return Proposal(wish, "too_slow", seen)
        if wish < width:
            objection = self._memory.objection(width, wish, arrivals_rps, obs.now_s)
            if objection is not None:
                return Proposal(width, "would_hurt", f"{seen}; {objection}")
            return Proposal(wish, "spare", seen)
        if too_slow and obs.capabilities.neighbour(width, 1) == width:
            return Proposal(obs.width.present, "slo_infeasible", f"{seen}: already the widest")
        return Proposal(obs.width.present, "within_band", seen)

    def _error(self, ttft_s: float | None) -> float:
        """ln(TTFT / target) within its limits; 0 where it is unknown."""
        if ttft_s is None:
            return 0.0
        # Below ratio_low every TTFT is the same: a logarithm would make much of 0.1 s and 0.3 s.
        ratio = max(ttft_s / self._target_s, self.params.ratio_low)
        return min(math.log(min(ratio, self.params.ratio_high)), self._high)

    def _derivative(self, measured: float, dt_s: float) -> float:
        if self._last is not None and dt_s > 0:
            slope = (measured - self._last) / dt_s
            self._slope += dt_s / (self.params.filter_s + dt_s) * (slope - self._slope)
        if dt_s > 0 or self._last is None:
            self._last = measured
        return self.params.kd_s * self._slope

    def _no_derivative(self) -> float:
        self._slope, self._last = 0.0, None
        return 0.0

    def _integrated(
        self, obs: Observation, width: int, wish: int, error: float, dt_s: float
    ) -> float:
        integral = self._integral if self._integral is not None else math.log(width)
        if (error > 0 and wish > width) or (error < 0 and wish < width):
            return integral  # the next place is asked for already
        can = obs.capabilities
        lowest, highest = max(min(can.min_width, width), 1), max(can.max_width, width)
        moved = integral + self.params.ki_per_s * error * dt_s
        return min(max(moved, math.log(lowest)), math.log(highest))

    def _place(self, obs: Observation, width: int, output: float) -> int:
        """The permitted width for an output: far enough on the way to it, up or down."""
        can, params = obs.capabilities, self.params
        wish = width
        while True:
            above = can.neighbour(wish, 1)
            gap = math.log(above / wish)
            if above == wish or output < math.log(wish) + params.up_share * gap:
                break
            wish = above
        if wish > width:
            return wish
        below = can.neighbour(width, -1)
        if below < width:
            gap = math.log(width / max(below, 1)) or math.log(2.0)
            if output <= math.log(width) - params.down_share * gap:
                return below
        return width


def build(params: Params, context: PolicyContext) -> Pid:
    """The policy."""
    return Pid(params, context)
