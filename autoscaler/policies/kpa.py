"""Knative's autoscaler: concurrency over a stable and a panic window."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.averages import RollingMean
from autoscaler.evidence import grounded
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, require_number, require_whole
from autoscaler.ports import PolicyContext
from autoscaler.window import RollingMax, elapsed

_LARGEST = 1e9
"""What is beyond counts as this: the guards make the highest permitted width of it."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Params:
    """Target, windows and rates, with Knative's defaults except for the target.

    Args:
        target_concurrency: requests in the system that one unit of width can take, > 0. Larger:
            fewer GPU-hours, longer queues.
        utilization_ratio: share of it that is aimed at, > 0, <= 1. Larger: fewer GPU-hours, less
            room for bursts.
        stable_window_s: window of the calm average, s, > 0. Larger: slower, calmer.
        panic_window_ratio: length of the short window as a share of it, > 0, <= 1. Smaller:
            panics at shorter bursts.
        panic_threshold_ratio: how many times the present width the short window has to ask for
            to begin a panic, > 1. Larger: panics later.
        max_up_ratio: growth at once, as a multiple of the present width, > 1. Larger: catches up
            sooner, overshoots more.
        max_down_ratio: shrink at once, as a divisor of the present width, > 1. Larger: saves
            sooner.
        scale_down_delay_s: how long a lower wish has to last, s, >= 0. Larger: more GPU-hours,
            fewer reversals.
        activation_width: least width whenever any is needed, >= 1. Larger: more GPU-hours.
    """

    target_concurrency: Annotated[float, Range(2.0, 32.0, log=True)] = 16.0
    utilization_ratio: Annotated[float, Range(0.3, 1.0)] = 0.7
    stable_window_s: Annotated[float, Range(15.0, 600.0, log=True)] = 60.0
    panic_window_ratio: Annotated[float, Range(0.05, 1.0, log=True)] = 0.1
    panic_threshold_ratio: Annotated[float, Range(1.05, 4.0)] = 2.0
    max_up_ratio: float = 1000.0
    max_down_ratio: Annotated[float, Range(1.05, 4.0)] = 2.0
    scale_down_delay_s: Annotated[float, Range(0.0, 1200.0)] = 0.0
    activation_width: int = 1

    def __post_init__(self) -> None:
        require_number("target_concurrency", self.target_concurrency, 0, above=True)
        require_number("utilization_ratio", self.utilization_ratio, 0, 1, above=True)
        require_number("stable_window_s", self.stable_window_s, 0, above=True)
        require_number("panic_window_ratio", self.panic_window_ratio, 0, 1, above=True)
        for name in ("panic_threshold_ratio", "max_up_ratio", "max_down_ratio"):
            require_number(name, getattr(self, name), 1, above=True)
        require_number("scale_down_delay_s", self.scale_down_delay_s, 0)
        require_whole("activation_width", self.activation_width, 1)


class Kpa:
    """width = ceil(mean concurrency / target), the mean over the stable window; in a panic the
    larger of both windows' widths, and never less than the panic's highest so far.

    Concurrency is what waits and what runs. A panic begins where the short window asks for
    ``panic_threshold_ratio`` times the present width, is prolonged by each tick in which it does
    so again (and by nothing less), and is over one stable window after the last of them. Both
    widths stay between present / ``max_down_ratio`` and present x ``max_up_ratio``; a present
    width of 0 counts as 1. A start with more than one unit begins in a panic at the present
    width: what is there is kept for a stable window.

    Modelled: both windows, panic, rates, scale-down delay, activation scale, start in a panic.
    Not modelled: sampling of Pods and its sample size, the activator and spare burst capacity,
    scale to zero's grace period, requests a second as metric, unreachable revisions. Knative asks
    every 2 s and its proxies average over time; here each tick is one sample.

    Overload: grows within one tick. Quiet: shrinks with the stable mean. Idle: 0, which the
    guards make the minimum. A signal missing: no change, nothing enters the windows. Unlike the
    original: no shrink while p95 TTFT or queue are unknown; and while a resize is in flight a
    panic lasts on, so that ending it does not undo growth that has not served yet.
    """  # noqa: D205  # the formula comes first, and it is two lines long

    def __init__(self, params: Params) -> None:
        self.params = params
        self._target = params.target_concurrency * params.utilization_ratio
        self._stable = RollingMean(params.stable_window_s)
        self._panic = RollingMean(params.stable_window_s * params.panic_window_ratio)
        self._wishes = RollingMax(params.scale_down_delay_s)
        self._panic_at_s: float | None = None
        self._peak = 0
        self._now_s: float | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now."""
        metrics, present = obs.metrics, obs.width.present
        first = self._now_s is None
        self._advance(obs.now_s)
        if first and present > 1:
            self._panic_at_s, self._peak = obs.now_s, present
        waiting, running = metrics.queue_depth.value, metrics.running.value
        if waiting is None or running is None:
            name = "queue depth" if waiting is None else "running requests"
            return Proposal(present, "unknown", f"{name} unknown")
        self._stable.add(obs.now_s, waiting + running)
        self._panic.add(obs.now_s, waiting + running)
        stable, panic = self._stable.value(obs.now_s), self._panic.value(obs.now_s)
        if stable is None or panic is None:  # cannot be: both have just got a sample
            return Proposal(present, "unknown", "no sample")
        resizing = obs.resize is not None
        width, code = self.decide(stable, panic, present, obs.now_s, resizing=resizing)
        seen = f"{stable:.4g} in the system on average, {panic:.4g} lately"
        reason = f"{seen}, target {self._target:.4g} a width"
        return grounded(Proposal(width, code, reason), obs)

    def decide(
        self, stable: float, panic: float, present: int, now_s: float, *, resizing: bool = False
    ) -> tuple[int, str]:
        """The width and the mode for given means.

        Args:
            stable: mean concurrency over the stable window.
            panic: mean concurrency over the panic window.
            present: width that serves now, >= 0.
            now_s: instant.
            resizing: a resize is in flight: a panic is not over yet.
        """
        params = self.params
        ready = max(present, 1)
        most = math.ceil(params.max_up_ratio * ready - _ROUNDING)
        least = math.floor(ready / params.max_down_ratio + _ROUNDING)
        by_stable, by_panic = self._units(stable), self._units(panic)
        over = by_panic / ready >= params.panic_threshold_ratio
        began_s = self._panic_at_s
        if over:
            # Only a new breach prolongs it: steps of one would keep it up for ever.
            self._panic_at_s = now_s
        elif (
            began_s is not None and not resizing and elapsed(began_s, now_s, params.stable_window_s)
        ):
            self._panic_at_s, self._peak = None, 0

        width = min(max(by_stable, least), most)
        code = "stable"
        if self._panic_at_s is not None:
            width = max(width, min(max(by_panic, least), most), self._peak)
            self._peak = width
            code = "panic"
        if params.scale_down_delay_s > 0:
            self._wishes.add(now_s, width)
            delayed = self._wishes.value(now_s)
            if delayed is not None and delayed > width:
                width, code = int(delayed), "delayed"
        if 0 < width < params.activation_width:
            width = params.activation_width
        return width, code

    def state(self) -> dict[str, Any]:
        """Since when it panics (s; None: it does not), and the panic's highest width."""
        return {"panic_at_s": self._panic_at_s, "peak": self._peak}

    def _units(self, concurrency: float) -> int:
        return math.ceil(min(max(concurrency, 0.0) / self._target, _LARGEST) - _ROUNDING)

    def _advance(self, now_s: float) -> None:
        """Note the time; a clock that went back begins a panic and the delay anew."""
        if self._now_s is not None and now_s < self._now_s:
            self._wishes.clear()
            if self._panic_at_s is not None:
                self._panic_at_s = now_s
        self._now_s = now_s


def build(params: Params, context: PolicyContext) -> Kpa:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return Kpa(params)
