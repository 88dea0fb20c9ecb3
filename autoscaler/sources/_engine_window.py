"""Rounds of scrapes to ``Metrics``: what both sources have in common.

Joins the ledger (series to totals) with the ``SampleWindow`` that the simulator uses too, and adds
what only real engines have: series that do not exist, that are not finite, that change their
buckets, targets that did not answer.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from autoscaler.model import Metrics, Signal, SignalStatus, Slo
from autoscaler.samples import COUNTERS, SampleWindow, Scrape
from autoscaler.sources._ledger import Ledger, Page, Round
from autoscaler.sources._presets import Preset

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "ttft": (
        "ttft_p95_s",
        "ttft_p95_penalised_s",
        "slo_attainment_ratio",
        "ttft_observations",
        "prompt_tokens_mean",
    ),
    "itl": ("itl_p95_s",),
    "waiting": ("queue_depth", "queue_wait_s", "arrival_rps"),
    "running": ("running", "arrival_rps"),
    "kv": ("kv_cache_usage_ratio",),
    "completed": ("completion_rps", "queue_wait_s", "arrival_rps", "output_tokens_mean"),
    "prompt_tokens": ("prompt_tokens_per_s", "prompt_tokens_mean"),
    "output_tokens": ("output_tokens_per_s", "output_tokens_mean"),
    "failed": ("failure_rps",),
}
"""Signals that cannot be had without a role."""


class EngineWindow:
    """What can be said of the engines from the rounds of the last ``window_s`` seconds.

    Args:
        preset: which series mean what.
        slo: objective, penalty and window.
        scrape_interval_s: expected distance of rounds, s, > 0.
        min_observations: fewer first tokens in the window make no quantile.
        min_coverage_ratio: share of the engines, > 0, <= 1, that has to be seen; what was seen is
            scaled up to all of them, below this share it is a lower bound only.
    """

    def __init__(
        self,
        preset: Preset,
        slo: Slo,
        scrape_interval_s: float,
        min_observations: int = 10,
        min_coverage_ratio: float = 0.8,
    ) -> None:
        self._preset = preset
        self._slo = slo
        self._interval_s = scrape_interval_s
        self._min_observations = min_observations
        self._min_coverage_ratio = min_coverage_ratio
        self._ledger = Ledger(preset, max(10 * scrape_interval_s, 2 * slo.window_s))
        self._samples: SampleWindow | None = None
        self._bounds: dict[str, tuple[float, ...]] = {}
        self._newest = Round()
        self._newest_at_s = -math.inf
        self._nothing = "not scraped yet"

    @property
    def bounds_s(self) -> tuple[float, ...]:
        """The finite TTFT bucket bounds seen last, ascending; empty: none seen."""
        return self._bounds.get("ttft", ())

    def add(self, at_s: float, pages: Mapping[str, Page]) -> None:
        """Enter one round: pages by target, of those that answered."""
        found = self._ledger.enter(at_s, pages)
        if not (found.gauges or found.bounds or found.counted or found.trouble):
            self.miss(f"none of the series in {len(pages)} answers: {self._wanted()}")
            return
        bounds = {role: found.bounds.get(role, ()) for role in self._preset.histograms()}
        if self._samples is None or bounds != self._bounds:
            # Other buckets are another engine version: what was counted before compares with
            # nothing. Buckets that only appear are an engine that was asked for the first time.
            self._bounds = bounds
            self._samples = SampleWindow(
                bounds["ttft"],
                bounds["itl"],
                self._slo,
                self._interval_s,
                self._min_observations,
                self._min_coverage_ratio,
            )
        self._newest = found
        if at_s <= self._newest_at_s:
            return  # a late one: its increases are in the totals, and count with the next round
        self._newest_at_s = at_s
        waiting, running = found.gauges.get("waiting", {}), found.gauges.get("running", {})
        engines = sorted(waiting.keys() | running.keys())
        self._samples.add(
            Scrape(
                at_s,
                self._counters(),
                [waiting.get(engine, 0.0) for engine in engines],
                [running.get(engine, 0.0) for engine in engines],
                restarted=found.restarted,
                served=found.output_tokens > 0 or "output_tokens" not in found.counted,
            )
        )

    def miss(self, detail: str) -> None:
        """Note that nothing could be read, and why."""
        self._nothing = detail
        if self._samples is not None:
            self._samples.miss(detail)

    def read(self, now_s: float, engines: int | None) -> Metrics:
        """What can be said now.

        Args:
            now_s: on the clock of ``add``.
            engines: how many count; None: all that show themselves.
        """
        if self._samples is None:
            nothing = Signal(None, SignalStatus.NO_SERIES, detail=self._nothing)
            return Metrics(self._slo.window_s, **dict.fromkeys(_SIGNALS, nothing))
        found = self._newest
        seen = len(found.gauges.get("waiting", {}).keys() | found.gauges.get("running", {}).keys())
        count = seen if engines is None else engines
        metrics = self._samples.read(now_s, count)
        changes: dict[str, Any] = {"kv_cache_usage_ratio": self._kv(metrics.queue_depth, count)}
        if (
            metrics.completion_rps.status is not SignalStatus.STALE
        ):  # of nothing fresh, all is stale
            for role, trouble in self._troubles().items():
                for name in _NEEDS[role]:
                    changes[name] = trouble
        return replace(metrics, **changes)

    def _counters(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """All totals since the first round, in the order of ``Scrape.counters``."""
        values: list[float] = []
        for role, bounds in self._bounds.items():
            totals = self._ledger.buckets[role]
            below = 0.0
            for bound in (*bounds, math.inf):
                upto = max(totals.get(bound, 0.0), below)
                values.append(upto - below)
                below = upto
        values.extend(self._ledger.totals[role] for role in COUNTERS)
        return np.array(values)

    def _kv(self, queue: Signal, engines: int) -> Signal:
        """The fullest live engine; unknown for the reason for which the queue is."""
        usage = self._newest.gauges.get("kv", {})
        live = [usage[engine] for engine in sorted(usage)][:engines]
        if queue.status is not SignalStatus.OK:
            return Signal(None, queue.status, detail=queue.detail)
        return Signal(max(live)) if live else self._missing("kv")

    def _troubles(self) -> dict[str, Signal]:
        """Why roles have no value in the newest round."""
        found = self._newest
        troubles = {role: self._missing(role) for role in _NEEDS if not self._exists(role)}
        return {**troubles, **found.trouble}

    def _exists(self, role: str) -> bool:
        found = self._newest
        return role in found.bounds or role in found.gauges or role in found.counted

    def _missing(self, role: str) -> Signal:
        return Signal(None, SignalStatus.NO_SERIES, detail=f"no series {self._wanted(role)}")

    def _wanted(self, role: str = "waiting") -> str:
        preset = self._preset
        names = {**preset.histograms(), **preset.gauges()}.get(role, ())
        counted = preset.counters().get(role, ()) if role in preset.counters() else ()
        wanted = [*names, *(name for one in counted for name in one.names)]
        return " or ".join(wanted) or f"for {role}"


_SIGNALS = tuple(name for name in Metrics.__slots__ if name != "window_s")
