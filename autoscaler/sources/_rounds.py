"""The series of a range, sorted into rounds: one scrape of each target."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from autoscaler.sources._ledger import Page
from autoscaler.sources._page import Sample
from autoscaler.sources._presets import Preset
from autoscaler.sources._promql import Series

_SCRAPER_LABELS = frozenset(
    ("job", "endpoint", "service", "container", "prometheus", "prometheus_replica", "replica")
)
"""Labels that say who scraped: two jobs or two replicas of Prometheus see the same engine, and it
must not count twice."""


class Rounds:
    """Finds the scrapes that are new in a range and groups those of all targets.

    All samples of one scrape of one target bear the same time; targets are scraped at different
    times. A round is whole when each live target is in it, or when one comes for the second time:
    then the others have missed their turn.

    Args:
        preset: which series mean what.
        target_labels: labels that tell targets apart.
        scrape_interval_s: expected distance of the scrapes of a target, s, > 0.
        range_s: length of the ranges, s, > 0.

    Attributes:
        interval_s: median distance of the scrapes of a target in the last range; None: unknown.
    """

    def __init__(
        self, preset: Preset, target_labels: Sequence[str], scrape_interval_s: float, range_s: float
    ) -> None:
        self._preset = preset
        self._target_labels = tuple(target_labels)
        self._interval_s = scrape_interval_s
        self._stale_after_s = 2.5 * scrape_interval_s
        # Longer than a range: what is forgotten must not be found in one again.
        self._forget_after_s = 2 * range_s + 10 * scrape_interval_s
        self._newest_s: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        self._pending: dict[str, tuple[float, Page]] = {}
        self.interval_s: float | None = None

    def new(
        self, now_s: float, series: Sequence[Series]
    ) -> Iterator[tuple[float, dict[str, Page]]]:
        """The rounds that this range completes: time of the last scrape in it, pages by target.

        Args:
            now_s: time at which the range ends, Prometheus' clock.
            series: the range, which may overlap with those before.

        Raises:
            ObservationError: a histogram is incomplete.
        """
        self._measure(series)
        scrapes = sorted(self._unseen(series).items(), key=lambda item: item[0])
        whole = []
        for (at_s, target), samples in scrapes:
            if len(samples) < self._sizes.get(target, 0) and now_s - at_s < self._interval_s:
                # Remote writing delivers the series of one scrape one by one: the rest is to come.
                continue
            self._sizes[target] = len(samples)
            self._newest_s[target] = at_s
            whole.append((at_s, target, samples))
        for target in [t for t, at in self._newest_s.items() if now_s - at > self._forget_after_s]:
            del self._newest_s[target], self._sizes[target]
        live = {t for t, at_s in self._newest_s.items() if now_s - at_s <= self._stale_after_s}
        for at_s, target, samples in whole:
            if target in self._pending:
                yield self._take()
            self._pending[target] = (at_s, Page(self._preset, samples))
            if live <= self._pending.keys():
                yield self._take()

    def _unseen(self, series: Sequence[Series]) -> dict[tuple[float, str], list[Sample]]:
        """Samples that are newer than the last scrape taken of their target, by time and target."""
        scrapes: dict[tuple[float, str], list[Sample]] = {}
        for one in series:
            target = self._target(one.labels)
            name, labels = one.labels.get("__name__", ""), _series_labels(one.labels)
            before_s = self._newest_s.get(target, -math.inf)
            for at_s, value in reversed(one.points):
                if at_s <= before_s:
                    break
                scrapes.setdefault((at_s, target), []).append(Sample(name, labels, value))
        return scrapes

    def _measure(self, series: Sequence[Series]) -> None:
        points = max((one.points for one in series), key=len, default=())
        gaps = sorted(b[0] - a[0] for a, b in pairwise(points))
        if gaps:
            self.interval_s = gaps[len(gaps) // 2]

    def _take(self) -> tuple[float, dict[str, Page]]:
        at_s = max(at for at, _ in self._pending.values())
        pages = {target: page for target, (_, page) in self._pending.items()}
        self._pending = {}
        return at_s, pages

    def _target(self, labels: Mapping[str, str]) -> str:
        return " ".join(labels.get(name, "") for name in self._target_labels)


def _series_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {
        label: value
        for label, value in labels.items()
        if label != "__name__" and label not in _SCRAPER_LABELS
    }
