"""Scrapes to metrics: what a monitoring system can say of an engine, and what it can't.

Keeps the scrapes of one rolling window and turns them into ``Metrics``: the simulator's probe and
the direct scraper feed it alike. Knows resets, gaps, frozen engines and stale data by name, and
answers none of them with a number.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy.typing as npt

from autoscaler import histogram
from autoscaler.model import Metrics, Signal, SignalStatus, Slo
from autoscaler.window import TIME_TOLERANCE_S

COUNTERS = ("completed", "prompt_tokens", "output_tokens", "failed")
"""The counters that follow the two histograms in ``Scrape.counters``, in this order."""

_SILENT_S = 20.0
"""Zeros after a start or a resize are unknown for at least so long, however short the window: a
real engine showed an empty queue for the first 18 s of a burst."""

_NONE = Signal(0.0)
_NOTHING_ENDED = Signal(None, SignalStatus.NO_OBSERVATIONS, detail="nothing ended in the window")


@dataclass(frozen=True, slots=True)
class Scrape:
    """One successful reading of an engine's metrics, summed over its engines where it counts.

    Args:
        at_s: instant of the reading, loop's clock.
        counters: int64 or float64[ttft + itl + COUNTERS], all since the engine's last restart:
            counts of the TTFT buckets (not cumulative, +Inf last), of the ITL buckets, COUNTERS.
        waiting, running: requests by engine index.
        restarted: whether a counter went back since the reading before, and ``counters`` is
            corrected for it already; None: not known, a decrease is to be taken for it.
        served: false if the engine is known to have served no token since it started.
    """

    at_s: float
    counters: npt.NDArray[Any]
    waiting: Sequence[float]
    running: Sequence[float]
    restarted: bool | None = None
    served: bool = True


class SampleWindow:
    """The scrapes of the last ``window_s`` seconds.

    Args:
        ttft_bounds_s, itl_bounds_s: finite upper bucket bounds, ascending.
        slo: objective and penalty; its window is the one used.
        scrape_interval_s: expected distance of scrapes, > 0.
        min_observations: fewer first tokens in the window make no quantile.
        min_coverage_ratio: share of the engines, > 0, <= 1, that has to be seen; what was seen is
            scaled up to all of them.
    """

    def __init__(
        self,
        ttft_bounds_s: Sequence[float],
        itl_bounds_s: Sequence[float],
        slo: Slo,
        scrape_interval_s: float,
        min_observations: int = 10,
        min_coverage_ratio: float = 1.0,
    ) -> None:
        self._ttft_bounds = list(ttft_bounds_s)
        self._itl_bounds = list(itl_bounds_s)
        self._slo = slo
        self._min_observations = min_observations
        self._min_coverage_ratio = min_coverage_ratio
        # One late scrape is normal, two missed ones are not.
        self._stale_after_s = 2.5 * scrape_interval_s
        self._ttft = slice(0, len(self._ttft_bounds) + 1)
        self._itl = slice(self._ttft.stop, self._ttft.stop + len(self._itl_bounds) + 1)
        self._completed = self._itl.stop
        self._output = self._completed + COUNTERS.index("output_tokens")
        self._scrapes: deque[tuple[Scrape, npt.NDArray[Any]]] = deque()
        self._before_reset: npt.NDArray[Any] | None = None
        self._disturbed_at_s: float | None = None
        self._disturbance = SignalStatus.RESET
        self._output_at_disturbance = 0.0
        self._unserved_since_s: float | None = None
        self._failing = ""

    def add(self, scrape: Scrape) -> None:
        """Enter a reading; instants are to be ascending."""
        previous = self._scrapes[-1] if self._scrapes else None
        corrected = scrape.counters
        if self._before_reset is not None:
            corrected = corrected + self._before_reset
        if previous is not None:
            if scrape.restarted is None and (corrected < previous[1]).any():
                # As Prometheus does: what was counted between the last scrape and the restart
                # is lost, everything since the restart is new.
                self._before_reset = previous[1]
                corrected = scrape.counters + self._before_reset
                self._disturb(scrape, SignalStatus.RESET)
            elif scrape.restarted:
                self._disturb(scrape, SignalStatus.RESET)
            elif scrape.at_s - previous[0].at_s > self._stale_after_s:
                self._disturb(scrape, SignalStatus.QUARANTINED)
        if scrape.served:
            self._unserved_since_s = None
        elif self._unserved_since_s is None:
            self._unserved_since_s = scrape.at_s
        self._scrapes.append((scrape, corrected))
        self._failing = ""

    def miss(self, detail: str) -> None:
        """Note that a reading failed, and why."""
        self._failing = detail

    def read(self, now_s: float, engines: int, delay_s: float = 0.0) -> Metrics:
        """What can be said now of the first ``engines`` engines.

        Engines beyond the effective width are left out: their gauges stay frozen after a shrink.
        ``delay_s``: how much later than ``now_s`` it really is.
        """
        scrapes = self._scrapes
        oldest_s = now_s - self._slo.window_s + TIME_TOLERANCE_S
        while len(scrapes) > 1 and scrapes[0][0].at_s < oldest_s:
            scrapes.popleft()
        if self._failing or not scrapes or now_s - scrapes[-1][0].at_s > self._stale_after_s:
            return self._stale(now_s)
        newest, corrected = scrapes[-1]
        waiting, running = self._gauges(newest, now_s, engines)
        if self._disturbed_at_s is not None and self._disturbed_at_s >= oldest_s:
            return self._disturbed(now_s, waiting, running)
        if len(scrapes) < 2 or scrapes[0][0].at_s < oldest_s:
            few = Signal(None, SignalStatus.FEW_SAMPLES, detail="one scrape in the window")
            return self._metrics(few, waiting, running)
        first, base = scrapes[0]
        seen = len(newest.waiting)
        enough = engines * self._min_coverage_ratio <= seen < engines
        scale = engines / seen if enough and seen else 1.0
        age = Signal(now_s + delay_s - newest.at_s)
        return self._rates(newest, first, (corrected - base).tolist(), waiting, running, scale, age)

    def _disturb(self, scrape: Scrape, status: SignalStatus) -> None:
        self._disturbed_at_s = scrape.at_s
        self._disturbance = status
        # Not 0 after a restart: a real engine had counted 1,336 tokens between the restart of its
        # counters and the pause, and then showed zeros for 9 s.
        self._output_at_disturbance = float(scrape.counters[self._output])

    def _gauges(self, newest: Scrape, now_s: float, engines: int) -> tuple[Signal, Signal]:
        """Queue depth and running requests over the live engines."""
        waiting = sum(newest.waiting[:engines])
        running = sum(newest.running[:engines])
        seen = len(newest.waiting)
        detail = f"{seen} of {engines} engines" if seen < engines else ""
        if seen < engines * self._min_coverage_ratio:
            return (
                Signal(None, SignalStatus.STALE, float(waiting), detail),
                Signal(None, SignalStatus.STALE, float(running), detail),
            )
        if waiting == running == 0 and self._silent(newest, now_s):
            unknown = Signal(None, SignalStatus.QUARANTINED, detail="no token since the start")
            return unknown, unknown
        if seen < engines:
            waiting, running = waiting * engines / seen, running * engines / seen
        depth = Signal(float(waiting), detail=detail) if waiting or detail else _NONE
        return depth, Signal(float(running), detail=detail)

    def _silent(self, newest: Scrape, now_s: float) -> bool:
        """Whether zeros mean nothing yet: too soon after a start or a resize, no token since.

        A real engine reported 0 running and 0 waiting for 9.2 s after it had grown, and another
        one for 18 s after it had started, while clients waited.
        """
        silent_s = max(self._slo.window_s, _SILENT_S)
        if self._unserved_since_s is not None and now_s - self._unserved_since_s < silent_s:
            return True
        return (
            self._disturbed_at_s is not None
            and now_s - self._disturbed_at_s < silent_s
            and bool(newest.counters[self._output] <= self._output_at_disturbance)
        )

    def _rates(
        self,
        newest: Scrape,
        first: Scrape,
        increments: list[float],
        waiting: Signal,
        running: Signal,
        scale: float,
        age: Signal,
    ) -> Metrics:
        """Everything that is an increase over the window; ``scale``: all engines / those seen."""
        slo, at_least = self._slo, self._min_observations
        span_s = (newest.at_s - first.at_s) / scale
        # Whole counts stay whole: adding up integers is exact and fast.
        completed, prompt_tokens, output_tokens, failed = increments[self._completed :]
        ttft = list(accumulate(increments[self._ttft]))
        itl = list(accumulate(increments[self._itl]))
        p95 = histogram.quantile(self._ttft_bounds, ttft, 0.95, at_least)
        penalised = p95
        if failed:
            penalised = histogram.quantile(
                self._ttft_bounds, ttft, 0.95, at_least, failed, slo.failure_penalty_s
            )
        growth = 0.0  # engines that came or went are no arrivals
        if len(newest.waiting) == len(first.waiting):
            growth = sum(newest.waiting) + sum(newest.running)
            growth -= sum(first.waiting) + sum(first.running)
        few = _NOTHING_ENDED
        wait = few
        if waiting.value == 0:
            wait = _NONE
        elif waiting.value is not None and completed > 0:
            wait = Signal(waiting.value * span_s / completed)
        return Metrics(
            slo.window_s,
            p95,
            penalised,
            histogram.attainment(self._ttft_bounds, ttft, slo.ttft_p95_s, 1.0, failed),
            Signal(ttft[-1]),
            histogram.quantile(self._itl_bounds, itl, 0.95, at_least),
            waiting,
            wait,
            running,
            # Conservation: what came is what went plus what is there more than before.
            Signal(max(completed + failed + growth, 0.0) / span_s),
            Signal(completed / span_s),
            Signal(failed / span_s) if failed else _NONE,
            Signal(prompt_tokens / span_s),
            Signal(output_tokens / span_s),
            Signal(prompt_tokens / ttft[-1]) if ttft[-1] > 0 else few,
            Signal(output_tokens / completed) if completed > 0 else few,
            age_s=age,
        )

    def _metrics(self, rates: Signal, waiting: Signal, running: Signal) -> Metrics:
        """Gauges as they are, everything that needs a window as ``rates`` says."""
        wait = _NONE if waiting.value == 0 else rates
        r, window_s = rates, self._slo.window_s
        return Metrics(
            window_s, r, r, r, r, r, waiting, wait, running, r, r, r, r, r, r, r, age_s=r
        )

    def _disturbed(self, now_s: float, waiting: Signal, running: Signal) -> Metrics:
        since_s = now_s - (self._disturbed_at_s or now_s)
        what = "counters restarted" if self._disturbance is SignalStatus.RESET else "scrapes failed"
        detail = f"{what} {since_s:.0f} s ago, less than a window of {self._slo.window_s:g} s"
        return self._metrics(Signal(None, self._disturbance, detail=detail), waiting, running)

    def _stale(self, now_s: float) -> Metrics:
        scrapes = self._scrapes
        if not scrapes:
            reason = Signal(None, SignalStatus.NO_SERIES, detail=self._failing or "not scraped yet")
        else:
            age_s = now_s - scrapes[-1][0].at_s
            detail = f"newest sample {age_s:.0f} s old"
            detail += f"; {self._failing}" if self._failing else ""
            reason = Signal(None, SignalStatus.STALE, detail=detail)
        return self._metrics(reason, reason, reason)
