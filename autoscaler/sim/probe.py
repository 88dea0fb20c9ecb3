"""What a monitoring system sees of the simulated fleet. Policies see only this, never the truth."""

from collections import deque

import numpy as np

from autoscaler.engine.fleet import ITL_BOUNDS_S, TTFT_BOUNDS_S
from autoscaler.model import Metrics, Slo
from autoscaler.samples import SampleWindow, Scrape
from autoscaler.sim.fleet import Fleet


class Probe:
    """Scrapes the fleet at a fixed interval, and answers as the metrics source of the loop.

    What is modelled: buckets, scrape interval and offset, a hole while ``/metrics`` answers 503,
    counters that restart when the fleet has grown, gauges of removed engines that stay frozen.

    Args:
        fleet: what is scraped.
        slo: objective and window.
        scrape_interval_s: seconds between two scrapes, > 0.
        scrape_offset_s: instant of the first one; None: half an interval.
        min_observations: fewer first tokens in the window make no quantile.
        delay_s: a scrape can be read only so much later, s, >= 0: a slow monitoring system.
        loss_ratio: share of the scrapes that fail, 0 to below 1.
        rng: decides which ones fail; None: a fixed sequence.
    """

    def __init__(
        self,
        fleet: Fleet,
        slo: Slo,
        scrape_interval_s: float = 5.0,
        scrape_offset_s: float | None = None,
        min_observations: int = 10,
        *,
        delay_s: float = 0.0,
        loss_ratio: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._fleet = fleet
        self._delay_s = delay_s
        self._loss_ratio = loss_ratio
        self._rng = rng or np.random.default_rng(0)
        self._under_way: deque[tuple[float, Scrape | str]] = deque()
        self._interval_s = scrape_interval_s
        self._window = SampleWindow(
            TTFT_BOUNDS_S.tolist(), ITL_BOUNDS_S.tolist(), slo, scrape_interval_s, min_observations
        )
        self._offset_s = scrape_interval_s / 2 if scrape_offset_s is None else scrape_offset_s
        self._scrapes = 0
        self._restarts = 0
        self._frozen_waiting: list[int] = []
        self._frozen_running: list[int] = []
        self._now_s = 0.0

    @property
    def next_s(self) -> float:
        """Instant of the next scrape."""
        return self._offset_s + self._scrapes * self._interval_s

    def play(self, until_s: float) -> None:
        """Play the fleet until ``until_s``, with the scrapes that are due meanwhile."""
        while (next_s := self.next_s) <= until_s:
            self._fleet.advance(next_s)
            self._scrape(next_s)
            self._scrapes += 1
        if self._fleet.resizing:
            # The state of a resize can be read between two scrapes, nothing else of the fleet.
            self._fleet.advance(until_s)
        self._now_s = until_s

    def read(self) -> Metrics:
        """The metrics at the end of what was played last."""
        under_way = self._under_way
        while under_way and under_way[0][0] + self._delay_s <= self._now_s:
            self._enter(under_way.popleft()[1])
        # What is late by d is judged as of d ago: late is not the same as missing.
        as_of_s = self._now_s - self._delay_s
        return self._window.read(as_of_s, self._fleet.serving, self._delay_s)

    def _enter(self, result: Scrape | str) -> None:
        if isinstance(result, str):
            self._window.miss(result)
        else:
            self._window.add(result)

    def _take(self, at_s: float, result: Scrape | str) -> None:
        if self._delay_s:
            self._under_way.append((at_s, result))
        else:
            self._enter(result)

    def _scrape(self, at_s: float) -> None:
        fleet = self._fleet
        if not fleet.metrics_up:
            self._take(at_s, "/metrics answered 503")
            return
        if self._loss_ratio and self._rng.random() < self._loss_ratio:
            self._take(at_s, "the scrape was lost")
            return
        waiting: list[int] = fleet.engine.waiting.tolist()
        running: list[int] = fleet.engine.admitted.tolist()
        restarted = None if fleet.restarts != self._restarts else False
        if restarted is None:  # to be found out from the counters, as a monitoring system has to
            self._restarts = fleet.restarts
            self._frozen_waiting, self._frozen_running = [], []
        if self._restarts and fleet.silent:
            waiting, running = [0] * len(waiting), [0] * len(waiting)
        if len(self._frozen_waiting) > len(waiting):
            waiting += self._frozen_waiting[len(waiting) :]
            running += self._frozen_running[len(running) :]
        self._frozen_waiting, self._frozen_running = waiting, running
        self._take(at_s, Scrape(at_s, fleet.counters(), waiting, running, restarted))
