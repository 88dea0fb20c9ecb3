"""The saturation rule of llm-d's Workload Variant Autoscaler, V1: spare KV cache and queue."""

from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.evidence import grounded
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, require_number, require_whole
from autoscaler.ports import PolicyContext
from autoscaler.window import RollingMax, elapsed


@dataclass(frozen=True, slots=True)
class Params:
    """Thresholds and triggers, with the defaults of its configuration.

    Args:
        kv_cache_threshold_ratio: KV cache use at which an engine is full, > 0, <= 1. Larger:
            fewer GPU-hours, nearer to preemptions.
        queue_threshold: waiting requests an engine at which it is full, > 0. Larger: longer
            queues.
        kv_spare_trigger_ratio: spare KV cache below which it grows, >= 0, less than the
            threshold. Larger: grows sooner, shrinks later.
        queue_spare_trigger: spare waiting places an engine below which it grows, >= 0, less than
            the threshold. Larger: grows sooner, shrinks later.
        period_s: time between two decisions, s, >= 0. Larger: slower, calmer.
        peak_window_s: each signal counts as its highest of so many seconds, s, >= 0. Larger:
            grows on shorter peaks, shrinks later.
        slots_per_width: running requests that stand for a full KV cache where its use is not
            read, >= 1; None: the profile's.
    """

    kv_cache_threshold_ratio: Annotated[float, Range(0.4, 1.0)] = 0.8
    queue_threshold: Annotated[float, Range(0.5, 20.0, log=True)] = 5.0
    kv_spare_trigger_ratio: Annotated[float, Range(0.0, 0.5)] = 0.1
    queue_spare_trigger: Annotated[float, Range(0.0, 10.0)] = 3.0
    period_s: Annotated[float, Range(5.0, 120.0)] = 60.0
    peak_window_s: Annotated[float, Range(0.0, 600.0)] = 60.0
    slots_per_width: int | None = None

    def __post_init__(self) -> None:
        full_kv, full_queue = self.kv_cache_threshold_ratio, self.queue_threshold
        require_number("kv_cache_threshold_ratio", full_kv, 0, 1, above=True)
        require_number("queue_threshold", full_queue, 0, above=True)
        require_number("kv_spare_trigger_ratio", self.kv_spare_trigger_ratio, 0, full_kv)
        require_number("queue_spare_trigger", self.queue_spare_trigger, 0, full_queue)
        require_number("period_s", self.period_s, 0)
        require_number("peak_window_s", self.peak_window_s, 0)
        require_whole("slots_per_width", self.slots_per_width, 1)


class WvaLike:
    """+1 if spare KV cache < its trigger or spare queue < its trigger; -1 if both would still be
    at or above their triggers with the load on one engine less.

    Spare is threshold less use. One more and one less are places on the lattice of permitted
    widths; the load on fewer is today's, spread over them.

    Modelled: the V1 analyzer's thresholds, triggers, its simulation of one engine less, peaks
    over a minute, one step a minute, no growth while a change is pending.
    Not modelled: which engines are full and which are not (a deployment's engines are read as
    one: the mean queue, and the fullest KV cache for all), variants and their costs, the GPU
    limiter, V2 (token capacity, the default since v0.9), the queueing model, scale to and from
    zero, the HPA that carries the wish out. Where KV cache use is not read, as in simulations,
    running requests over slots stand for it.

    Overload: one step each period. Quiet: one step down each period, as long as the rest would
    not be full. A signal missing: what is known may ask for growth; never a shrink (as the
    original, which also holds on stale metrics). Between two decisions the last wish stands, as in
    the metric that the original exports. Unlike it: no shrink while the TTFT is unknown.
    """  # noqa: D205  # the formula comes first, and it is two lines long

    def __init__(self, params: Params, context: PolicyContext) -> None:
        self.params = params
        slots = params.slots_per_width
        if slots is None and context.profile is not None:
            slots = context.profile.slots_per_rank
        self._slots = slots
        self._kv = RollingMax(params.peak_window_s)
        self._queue = RollingMax(params.peak_window_s)
        self._decided_at_s: float | None = None
        self._width: int | None = None
        self._said: Proposal | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The present width, or one place from it."""
        width, now_s = obs.width.present, obs.now_s
        last_s = self._decided_at_s
        if width != self._width or (last_s is not None and now_s < last_s):
            # Peaks for one unit of width, measured at another width, say nothing.
            self._kv.clear()
            self._queue.clear()
            self._width, self._said = width, None
        kv, queue = self._read(obs, max(width, 1))
        if obs.resize is not None:
            return Proposal(obs.resize.to_width, "resizing", "a resize is in flight")
        if (
            self._said is None
            or last_s is None
            or now_s < last_s
            or elapsed(last_s, now_s, self.params.period_s)
        ):
            self._decided_at_s = now_s
            self._said = self._decide(obs, width, kv, queue)
        if self._said.width < width and (kv is None or queue is None):
            return Proposal(width, "unknown", "no shrink on what has become unknown")
        return grounded(self._said, obs)

    def state(self) -> dict[str, Any]:
        """When it decided last (s; None: never)."""
        return {"decided_at_s": self._decided_at_s}

    def _read(self, obs: Observation, width: int) -> tuple[float | None, float | None]:
        """KV cache use (0..1) and queue for one unit of width, each as its highest of late."""
        metrics = obs.metrics
        kv, waiting = metrics.kv_cache_usage_ratio.value, metrics.queue_depth.at_least
        running = metrics.running.at_least
        if kv is None and running is not None and self._slots is not None:
            kv = running / (self._slots * width)
        if kv is not None:
            self._kv.add(obs.now_s, kv)
        if waiting is not None:
            self._queue.add(obs.now_s, waiting / width)
        return (
            None if kv is None else self._kv.value(obs.now_s),
            None if waiting is None else self._queue.value(obs.now_s),
        )

    def _decide(
        self, obs: Observation, width: int, kv: float | None, queue: float | None
    ) -> Proposal:
        params, can = self.params, obs.capabilities
        kv_spare = None if kv is None else params.kv_cache_threshold_ratio - kv
        queue_spare = None if queue is None else params.queue_threshold - queue
        seen = f"spare KV cache {_show(kv_spare)}, spare queue {_show(queue_spare)} a width"
        if (kv_spare is not None and kv_spare < params.kv_spare_trigger_ratio) or (
            queue_spare is not None and queue_spare < params.queue_spare_trigger
        ):
            wish = can.neighbour(width, 1)
            if wish == width:
                return Proposal(width, "at_max_width", f"{seen}: already the widest")
            return Proposal(wish, "saturated", seen)
        if kv is None or queue is None:
            return Proposal(width, "unknown", f"{seen}: no shrink on what is not known")
        wish = can.neighbour(width, -1)
        if wish == width or wish < 1:
            return Proposal(width, "at_min_width", f"{seen}: already the narrowest")
        more = width / wish
        kv_left = params.kv_cache_threshold_ratio - kv * more
        queue_left = params.queue_threshold - queue * more
        if kv_left < params.kv_spare_trigger_ratio or queue_left < params.queue_spare_trigger:
            left = f"at {wish} it would be {_show(kv_left)} and {_show(queue_left)}"
            return Proposal(width, "unsafe", f"{seen}: {left}")
        return Proposal(wish, "spare", seen)


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def build(params: Params, context: PolicyContext) -> WvaLike:
    """The policy."""
    return WvaLike(params, context)
