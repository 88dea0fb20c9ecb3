"""Hysteresis on p95 TTFT and queue depth: a step when it hurts, a step back when it is quiet."""

from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, require_number, require_whole
from autoscaler.ports import PolicyContext
from autoscaler.window import elapsed


@dataclass(frozen=True, slots=True)
class Params:
    """Where it hurts, where it is quiet, and for how long.

    Args:
        ttft_high_ratio: share of the p95 TTFT objective at or above which it hurts, > 0. Larger:
            fewer GPU-hours, growth starts later and with a longer queue.
        ttft_low_ratio: share at or under which it is quiet, >= 0, < ttft_high_ratio. Larger:
            shrinks sooner, reverses more often. Leave a gap wider than a bucket's interpolation
            error: vLLM's buckets around 5 s are 2.5 s wide.
        queue_high_per_width: waiting requests per unit of width at or above which it hurts, > 0.
            Larger: grows later.
        queue_low_per_width: at or under which it is quiet, >= 0, < queue_high_per_width. Larger:
            shrinks sooner.
        up_for_s: how long it has to hurt before growth, s, >= 0. Larger: ignores longer peaks.
        down_for_s: how long it has to be quiet before a shrink, s, >= 0. Larger: more GPU-hours,
            fewer reversals.
        step_up: permitted widths to go up at once, >= 1. Larger: catches up in fewer resizes,
            each of which takes minutes, and overshoots more.
        step_down: permitted widths to go down at once, >= 1. Larger: saves sooner, risks more.
        idle_for_s: how long there has to be nothing to do before a shrink, s, >= 0. Larger:
            more GPU-hours in lulls.
        return_ratio: a width is shrunk back to only below this share of the arrival rate at
            which it began to hurt, > 0, <= 1. Larger: shrinks sooner, reverses more often.
        remember_s: how long that rate is remembered, s, >= 0; 0: not at all. Larger: fewer
            reversals, slower to notice that requests have become cheaper.
    """

    ttft_high_ratio: Annotated[float, Range(0.1, 1.0)] = 0.8
    ttft_low_ratio: Annotated[float, Range(0.05, 0.5, log=True)] = 0.25
    queue_high_per_width: Annotated[float, Range(0.25, 16.0, log=True)] = 8.0
    queue_low_per_width: Annotated[float, Range(0.0, 4.0)] = 1.0
    up_for_s: Annotated[float, Range(0.0, 60.0)] = 15.0
    down_for_s: Annotated[float, Range(30.0, 1200.0, log=True)] = 120.0
    step_up: Annotated[int, Range(1, 6)] = 1
    step_down: Annotated[int, Range(1, 3)] = 1
    idle_for_s: float = 120.0
    return_ratio: Annotated[float, Range(0.4, 1.0)] = 0.8
    remember_s: float = 3600.0

    def __post_init__(self) -> None:
        require_number("ttft_high_ratio", self.ttft_high_ratio, 0, above=True)
        require_number("ttft_low_ratio", self.ttft_low_ratio, 0)
        require_number("queue_high_per_width", self.queue_high_per_width, 0, above=True)
        require_number("queue_low_per_width", self.queue_low_per_width, 0)
        for low, high in (
            ("ttft_low_ratio", "ttft_high_ratio"),
            ("queue_low_per_width", "queue_high_per_width"),
        ):
            if getattr(self, low) >= getattr(self, high):
                rule = f"must be < {high} ({getattr(self, high):g})"
                raise ConfigError(f"{low}: {rule}; got {getattr(self, low)!r}")
        require_number("up_for_s", self.up_for_s, 0)
        require_number("down_for_s", self.down_for_s, 0)
        require_whole("step_up", self.step_up, 1)
        require_whole("step_down", self.step_down, 1)
        require_number("idle_for_s", self.idle_for_s, 0)
        require_number("return_ratio", self.return_ratio, 0, 1, above=True)
        require_number("remember_s", self.remember_s, 0)


class Threshold:
    """Up if (p95 >= high, or wait >= high, or queue >= high x width) for ``up_for_s``; down if all
    three are low for ``down_for_s``; one step at a time.

    The p95 is the penalised one where it is known: failures count. The wait is the queue's
    Little's-law wait, held against the TTFT limits.

    Back to a width that has hurt: only below ``return_ratio`` of the arrivals at which it began
    to; quiet at a width says nothing of the narrower one.

    Overload: one step each time it has hurt for ``up_for_s``, counted anew after every resize.
    Within the band: no change. Quiet: one step down after ``down_for_s``. Nothing to do at all
    (known, not merely unseen): one step down after ``idle_for_s``. Data missing: what is known
    may still ask for growth; never a shrink, and the quiet has to start anew. Stalled (requests
    wait, no first token): never a shrink. Widest already and still hurting: ``slo_infeasible``.
    """  # noqa: D205  # the formula comes first, and it is two lines long

    def __init__(self, params: Params, context: PolicyContext) -> None:
        self.params = params
        self._ttft_high_s = params.ttft_high_ratio * context.slo.ttft_p95_s
        self._ttft_low_s = params.ttft_low_ratio * context.slo.ttft_p95_s
        self._high_since_s: float | None = None
        self._quiet_since_s: float | None = None
        self._idle_since_s: float | None = None
        self._high_rps: float | None = None  # arrivals when it began to hurt
        self._hurt: dict[int, tuple[float, float]] = {}  # width: when it hurt, arrivals then
        self._high_not_yet = f"high for less than {params.up_for_s:g} s"
        self._last: Proposal | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The present width, or one step from it."""
        now_s, width = obs.now_s, obs.width.present
        if obs.resize is not None:
            # What is measured now speaks of the resize; and time spent waiting for it must not
            # count as time in which it hurt.
            self._high_since_s = self._quiet_since_s = self._idle_since_s = None
            return Proposal(obs.resize.to_width, "resizing", "a resize is in flight")

        metrics = obs.metrics
        ttft, queue = metrics.ttft_p95_penalised_s, metrics.queue_depth
        if ttft.at_least is None:
            ttft = metrics.ttft_p95_s
        ttft_s, wait_s, waiting = ttft.at_least, metrics.queue_wait_s.at_least, queue.at_least

        high = (
            (ttft_s is not None and ttft_s >= self._ttft_high_s)
            or (wait_s is not None and wait_s >= self._ttft_high_s)
            or (waiting is not None and waiting >= self.params.queue_high_per_width * max(width, 1))
        )
        if high:
            self._quiet_since_s = self._idle_since_s = None
            since_s = _since(self._high_since_s, now_s)
            if since_s != self._high_since_s:
                self._high_since_s, self._high_rps = since_s, metrics.arrival_rps.value
            return self._up(obs, width)
        if ttft_s is not None and waiting is not None:
            self._high_since_s = None  # known not to be high; an unread signal says neither

        if obs.idle:
            self._high_since_s = self._quiet_since_s = None
            self._idle_since_s = _since(self._idle_since_s, now_s)
            return self._down(obs, width, self._idle_since_s, self.params.idle_for_s, "idle")
        self._idle_since_s = None

        if queue.value is None or ttft.value is None:
            self._quiet_since_s = None
            stalled = waiting is not None and waiting > 0
            code, what = ("stalled", "no first token") if stalled else ("unknown", "data missing")
            return Proposal(width, code, f"{what}: p95 TTFT {ttft.status}, queue {queue.status}")
        if (
            ttft.value <= self._ttft_low_s
            and queue.value <= self.params.queue_low_per_width * width
            and (wait_s is None or wait_s <= self._ttft_low_s)
        ):
            self._quiet_since_s = _since(self._quiet_since_s, now_s)
            return self._down(obs, width, self._quiet_since_s, self.params.down_for_s, "quiet")
        self._quiet_since_s = None
        return self._stay(width, "within_band", "neither high nor low")

    def state(self) -> dict[str, Any]:
        """Since when it has hurt, been quiet, been idle (s; None: it is not); what hurt before."""
        return {
            "high_since_s": self._high_since_s,
            "quiet_since_s": self._quiet_since_s,
            "idle_since_s": self._idle_since_s,
            "hurt": {str(w): {"at_s": at, "rps": rps} for w, (at, rps) in self._hurt.items()},
        }

    def _up(self, obs: Observation, width: int) -> Proposal:
        since_s = self._high_since_s
        if since_s is None or not elapsed(since_s, obs.now_s, self.params.up_for_s):
            return self._stay(width, "high_not_yet", self._high_not_yet)
        if self._high_rps is not None and self.params.remember_s > 0:
            self._hurt[width] = (obs.now_s, self._high_rps)
        wish = obs.capabilities.neighbour(width, self.params.step_up)
        if wish == width:
            return self._stay(width, "slo_infeasible", "still high at the widest permitted width")
        ttft, queue = obs.metrics.ttft_p95_s, obs.metrics.queue_depth
        seen = f"p95 TTFT {_show(ttft.at_least)} s, queue {_show(queue.at_least)}"
        return Proposal(wish, "high", f"{seen}, high for {self.params.up_for_s:g} s")

    def _down(
        self, obs: Observation, width: int, since_s: float, for_s: float, code: str
    ) -> Proposal:
        if not elapsed(since_s, obs.now_s, for_s):
            return self._stay(width, "within_band", f"{code} for less than {for_s:g} s")
        wish = obs.capabilities.neighbour(width, -self.params.step_down)
        if wish == width:
            return self._stay(width, "at_min_width", f"{code} at the narrowest permitted width")
        arrivals = obs.metrics.arrival_rps.value
        for hurt, (at_s, rps) in list(self._hurt.items()):
            if elapsed(at_s, obs.now_s, self.params.remember_s):
                del self._hurt[hurt]
            elif (
                arrivals is not None
                and wish <= hurt < width
                and arrivals >= self.params.return_ratio * rps
            ):
                return self._stay(width, "would_hurt", f"width {hurt} hurt at {rps:.3g} rps")
        return Proposal(wish, code, f"{code} for {for_s:g} s")

    def _stay(self, width: int, code: str, reason: str) -> Proposal:
        """No change; most ticks say what the last one said, so the same object says it."""
        last = self._last
        if last is None or last.width != width or last.code != code or last.reason != reason:
            last = self._last = Proposal(width, code, reason)
        return last


def _since(since_s: float | None, now_s: float) -> float:
    """When a condition began to hold; a clock that went back starts it anew."""
    return now_s if since_s is None or since_s > now_s else since_s


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def build(params: Params, context: PolicyContext) -> Threshold:
    """The policy."""
    return Threshold(params, context)
