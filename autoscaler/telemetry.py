"""The controller's own series: one table of names, and what each tick makes of them.

A gauge whose value is not known now is absent, never an old value. Counters and histograms live
as long as the process. Serving them is ``endpoint``'s part.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from autoscaler import __version__
from autoscaler.convergence import ConvergenceState, Progress
from autoscaler.loop import ControlLoop
from autoscaler.model import Metrics, Observation, Resize, SignalStatus
from autoscaler.ports import KnowsCapacity

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its kind, labels and help."""

    kind: str
    labels: tuple[str, ...]
    help: str


SERIES: Mapping[str, Series] = {
    "autoscaler_width": Series(
        GAUGE,
        ("target", "kind"),
        "Data-parallel width: proposed by the policy, desired by the "
        "spec, effective (proven now), stable (proven last).",
    ),
    "autoscaler_shadow_width": Series(
        GAUGE, ("target", "policy"), "Width that a shadow policy would have asked for."
    ),
    "autoscaler_gpu_seconds_total": Series(
        COUNTER, ("target",), "GPUs allocated, integrated over time."
    ),
    "autoscaler_gpus": Series(
        GAUGE,
        ("target",),
        "GPUs allocated now: from the request on, and until the width is really gone.",
    ),
    "autoscaler_signal": Series(
        GAUGE, ("target", "signal"), "Signal as read, in the unit its name ends in."
    ),
    "autoscaler_signal_status": Series(
        GAUGE, ("target", "signal", "status"), "1 for the status that the signal has."
    ),
    "autoscaler_slo_attainment_ratio": Series(
        GAUGE, ("target",), "Share of the window's first tokens within the objective."
    ),
    "autoscaler_slo_ttft_p95_seconds": Series(
        GAUGE, ("target",), "The objective: p95 time to first token."
    ),
    "autoscaler_slo_windows_total": Series(
        COUNTER,
        ("target", "result"),
        "Rolling windows, one a tick: met, missed (also: nobody got a first token and somebody "
        "waits), or unknown.",
    ),
    "autoscaler_capacity_requests_per_second": Series(
        GAUGE,
        ("target",),
        "Arrivals that the effective width bears within the objective, where the policy or a "
        "shadow knows.",
    ),
    "autoscaler_decisions_total": Series(
        COUNTER, ("target", "outcome", "reason"), "Decisions: held, or the answer to the write."
    ),
    "autoscaler_resizes_total": Series(
        COUNTER, ("target", "direction", "result"), "Resizes that were over, whoever asked."
    ),
    "autoscaler_resize_duration_seconds": Series(
        HISTOGRAM, ("target", "direction"), "From the patch until the width was effective."
    ),
    "autoscaler_convergence_state": Series(
        GAUGE, ("target", "state"), "1 for the state that the last resize is in."
    ),
    "autoscaler_errors_total": Series(
        COUNTER, ("target", "port", "class"), "Errors by port; an empty target: the process's."
    ),
    "autoscaler_tick_duration_seconds": Series(HISTOGRAM, ("target",), "How long a tick took."),
    "autoscaler_tick_lateness_seconds": Series(GAUGE, ("target",), "How late the last tick began."),
    "autoscaler_tick_interval_seconds": Series(
        GAUGE, ("target",), "How far apart ticks are meant to be."
    ),
    "autoscaler_config_last_reload_successful": Series(
        GAUGE, (), "1 while the configuration in force is the one in the file, 0 once refused."
    ),
    "autoscaler_leader": Series(GAUGE, (), "1 while this process may write."),
    "autoscaler_build_info": Series(GAUGE, ("version",), "Always 1."),
}
"""Every series there is. Values are seconds, ratios 0..1, counts, or the unit of a signal."""

_BUCKETS_S = {
    # Measured resizes: 0.8 s (NIXL) to 189 s (GPUStack), and 16 min until its operator gives up.
    "autoscaler_resize_duration_seconds": (
        *(0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0),
        *(600.0, 1200.0),
    ),
    "autoscaler_tick_duration_seconds": (
        *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    ),
}
_SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")
_WINDOWS = {True: "met", False: "missed", None: "unknown"}
_OVER = (
    ConvergenceState.CONVERGED,
    ConvergenceState.REFUSED,
    ConvergenceState.FAILED,
    ConvergenceState.TIMED_OUT,
)

Labels = tuple[str, ...]


@dataclass(slots=True)
class _Counts:
    """Observations of one histogram and set of labels."""

    buckets: list[int]
    total: float = 0.0

    def add(self, value: float, bounds_s: tuple[float, ...]) -> None:
        self.buckets[sum(value > bound for bound in bounds_s)] += 1
        self.total += value


@dataclass(slots=True)
class _Target:
    """What is remembered of one target between two ticks."""

    gauges: dict[str, dict[Labels, float]] = field(default_factory=dict)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    gpus: float | None = None
    seen_at_s: float = 0.0
    timed_out: Resize | None = None


class Telemetry(Collector):
    """Collects the series of all loops; threads may call it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._targets: dict[str, _Target] = {}
        self._counters: dict[str, Counter[Labels]] = {
            name: Counter() for name, series in SERIES.items() if series.kind == COUNTER
        }
        self._gpu_s: dict[str, float] = {}
        self._histograms: dict[str, dict[Labels, _Counts]] = {name: {} for name in _BUCKETS_S}
        self._leader = True
        self._config_current = True

    def begin(self, target: str, tick_s: float) -> None:
        """A target is steered from now on: its ticks, windows and resizes count from zero.

        Otherwise a loop that hangs in its first tick would have no series that could tell, and the
        first missed window or resize would be a series' birth instead of an increase.
        """
        with self._lock:
            held = self._targets.setdefault(target, _Target())
            held.gauges |= {"autoscaler_tick_interval_seconds": {(target,): tick_s}}
            self._histogram("autoscaler_tick_duration_seconds", (target,))
            for result in _WINDOWS.values():
                self._counters["autoscaler_slo_windows_total"][target, result] += 0
            for direction in ("up", "down"):
                self._histogram("autoscaler_resize_duration_seconds", (target, direction))
                for state in _OVER:
                    labels = target, direction, state.value
                    self._counters["autoscaler_resizes_total"][labels] += 0

    def observe(self, target: str, loop: ControlLoop) -> None:
        """Take a tick that has just been done into account.

        Args:
            target: name of the loop's target.
            loop: the loop, in its own thread, after the tick.
        """
        began_s = loop.last_tick_at_s
        if began_s is None or loop.decision is None:
            return
        duration_s = loop.clock.now_s() - began_s
        with self._lock:
            held = self._targets.setdefault(target, _Target())
            self._add_histogram("autoscaler_tick_duration_seconds", (target,), duration_s)
            outcome = "hold" if loop.outcome is None else loop.outcome.result.value
            self._counters["autoscaler_decisions_total"][target, outcome, loop.decision.code] += 1
            for (port, kind), count in (loop.errors - held.errors).items():
                self._counters["autoscaler_errors_total"][target, port, kind] += count
            held.errors = Counter(loop.errors)
            for status in _unusable(loop.observation):
                self._counters["autoscaler_errors_total"][target, "signal", status] += 1
            held.gauges = dict(_gauges(target, loop))
            met = None if loop.observation is None else loop.observation.window_met
            self._counters["autoscaler_slo_windows_total"][target, _WINDOWS[met]] += 1
            if loop.observation is not None:
                asked = outcome in ("applied", "ambiguous") and loop.decision.width
                self._add_gpus(target, held, loop.observation, asked or 0)
                progress = loop.controller.progress
                if progress is not None:
                    self._add_resize(target, held, progress, loop.observation.now_s)

    def count_error(self, target: str, port: str, kind: str) -> None:
        """Count an error that no loop counts: of the decision log, the configuration."""
        with self._lock:
            self._counters["autoscaler_errors_total"][target, port, kind] += 1

    def restart(self, target: str) -> None:
        """A new loop steers the target: its counts of errors begin at zero."""
        with self._lock:
            if target in self._targets:
                self._targets[target].errors = Counter()

    def forget(self, target: str) -> None:
        """The target is not steered any more: its gauges go, its counters stay."""
        with self._lock:
            self._targets.pop(target, None)

    def set_leader(self, leads: bool) -> None:
        """Whether this process may write."""
        with self._lock:
            self._leader = leads

    def set_config_current(self, current: bool) -> None:
        """Whether the configuration in force is the one in the file."""
        with self._lock:
            self._config_current = current

    def collect(self) -> Iterator[Metric]:
        """The series as they are now, for prometheus_client."""
        with self._lock:
            found = [self._family(name, series) for name, series in SERIES.items()]
        yield from found

    def _family(self, name: str, series: Series) -> Metric:
        if series.kind == HISTOGRAM:
            histogram = HistogramMetricFamily(name, series.help, labels=series.labels)
            for labels, counts in self._histograms[name].items():
                bounds = [*map(str, _BUCKETS_S[name]), "+Inf"]
                cumulative = list(zip(bounds, accumulate(counts.buckets), strict=True))
                histogram.add_metric(labels, cumulative, counts.total)
            return histogram
        if series.kind == COUNTER:
            counter = CounterMetricFamily(name, series.help, labels=series.labels)
            gpu_s = {(target,): value for target, value in self._gpu_s.items()}
            known: Mapping[Labels, float] = self._counters[name]
            for labels, value in (
                gpu_s if name == "autoscaler_gpu_seconds_total" else known
            ).items():
                counter.add_metric(labels, value)
            return counter
        gauge = GaugeMetricFamily(name, series.help, labels=series.labels)
        for labels, value in self._gauge(name).items():
            gauge.add_metric(labels, value)
        return gauge

    def _gauge(self, name: str) -> Mapping[Labels, float]:
        if name == "autoscaler_leader":
            return {(): float(self._leader)}
        if name == "autoscaler_config_last_reload_successful":
            return {(): float(self._config_current)}
        if name == "autoscaler_build_info":
            return {(__version__,): 1.0}
        found: dict[Labels, float] = {}
        for held in self._targets.values():
            found |= held.gauges.get(name, {})
        return found

    def _histogram(self, name: str, labels: Labels) -> _Counts:
        return self._histograms[name].setdefault(labels, _Counts([0] * (len(_BUCKETS_S[name]) + 1)))

    def _add_histogram(self, name: str, labels: Labels, value: float) -> None:
        self._histogram(name, labels).add(value, _BUCKETS_S[name])

    def _add_gpus(self, target: str, held: _Target, obs: Observation, asked: int) -> None:
        """GPUs count from the request on, and until the width is really gone."""
        if held.gpus is not None:
            spent_s = max(obs.now_s - held.seen_at_s, 0.0)
            self._gpu_s[target] = self._gpu_s.get(target, 0.0) + held.gpus * spent_s
        self._gpu_s.setdefault(target, 0.0)
        width = max(obs.width.desired, obs.width.present, asked)
        held.gpus, held.seen_at_s = float(width * obs.capabilities.gpus_per_width), obs.now_s
        held.gauges["autoscaler_gpus"] = {(target,): held.gpus}

    def _add_resize(self, target: str, held: _Target, progress: Progress, now_s: float) -> None:
        timed_out = progress.changed and progress.state is ConvergenceState.TIMED_OUT
        resize = progress.resize if timed_out else progress.ended
        if resize is None or resize.to_width == resize.from_width:
            return  # a boot at the same width, or a read in doubt: nobody resized
        direction = "up" if resize.to_width > resize.from_width else "down"
        if resize is not held.timed_out:  # late success after a time-out is the same resize
            result = progress.state.value
            self._counters["autoscaler_resizes_total"][target, direction, result] += 1
        held.timed_out = resize if timed_out else None
        if progress.state is ConvergenceState.CONVERGED:
            duration_s = now_s - resize.requested_at_s
            name = "autoscaler_resize_duration_seconds"
            self._add_histogram(name, (target, direction), duration_s)


def _unusable(obs: Observation | None) -> Iterator[str]:
    """Why signals of a tick are no numbers: between two scrapes a gauge would not tell."""
    if obs is not None:
        for name in _SIGNALS:
            status = getattr(obs.metrics, name).status
            if status in (SignalStatus.NON_FINITE, SignalStatus.AMBIGUOUS):
                yield status.value


def _gauges(target: str, loop: ControlLoop) -> Iterable[tuple[str, dict[Labels, float]]]:
    """Every gauge of one loop; what is not known now is not there."""
    obs, controller = loop.observation, loop.controller
    yield "autoscaler_tick_lateness_seconds", {(target,): loop.lateness_s}
    yield "autoscaler_tick_interval_seconds", {(target,): loop.tick_s}
    yield "autoscaler_slo_ttft_p95_seconds", {(target,): loop.slo.ttft_p95_s}
    if controller.progress is not None:
        state = controller.progress.state
        yield (
            "autoscaler_convergence_state",
            {(target, s.value): float(s is state) for s in ConvergenceState},
        )
    if obs is None:
        return
    width, metrics = obs.width, obs.metrics
    widths = {
        "proposed": None if controller.proposal is None else controller.proposal.width,
        "desired": width.desired,
        "effective": width.effective,
        "stable": width.stable,
    }
    yield (
        "autoscaler_width",
        {(target, kind): float(value) for kind, value in widths.items() if value is not None},
    )
    yield (
        "autoscaler_shadow_width",
        {
            (target, name): float(width.desired if shadow.width is None else shadow.width)
            for name, shadow in loop.shadow_decisions.items()
        },
    )
    capacity = None if width.effective is None else _capacity_rps(loop, width.effective)
    if capacity is not None:
        yield "autoscaler_capacity_requests_per_second", {(target,): capacity}
    signals = {name: getattr(metrics, name) for name in _SIGNALS}
    yield (
        "autoscaler_signal",
        {(target, name): s.value for name, s in signals.items() if s.value is not None},
    )
    yield (
        "autoscaler_signal_status",
        {(target, name, s.status.value): 1.0 for name, s in signals.items()},
    )
    attained = metrics.slo_attainment_ratio.value
    yield "autoscaler_slo_attainment_ratio", {} if attained is None else {(target,): attained}


def _capacity_rps(loop: ControlLoop, width: int) -> float | None:
    """What a width bears, as the first policy says that knows: the live one, then the shadows."""
    for controller in (loop.controller, *loop.shadows.values()):
        policy = controller.policy
        if isinstance(policy, KnowsCapacity):
            found = policy.capacity_rps(width)
            if found is not None:
                return found
    return None
