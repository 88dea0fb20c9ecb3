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

Scraper = tuple[tuple[str, str], ...]
"""The values of these labels."""


class Rounds:
    """Finds the scrapes that are new in a range and groups those of all targets.

    All samples of one scrape of one target bear the same time; targets are scraped at different
    times. A round is whole when each live target is in it, or when one comes for the second time:
    then the others have missed their turn.

    Where several scrape one target, one of them is listened to until it is silent. A sample bears
    the time at which its scrape began, not that at which the page was made: two scrapes that
    overlap may show a counter going back, which would pass for a restart.

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
        # Before a window takes the silence for a hole, and after a scrape that is merely late.
        self._silent_after_s = 1.5 * scrape_interval_s
        # Longer than a range: what is forgotten must not be found in one again.
        self._forget_after_s = 2 * range_s + 10 * scrape_interval_s
        self._newest_s: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        self._heard: dict[str, set[Scraper]] = {}
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
        for (at_s, target), (samples, scrapers) in scrapes:
            heard = self._heard.get(target, scrapers)
            if heard.isdisjoint(scrapers) and at_s - self._newest_s[target] < self._silent_after_s:
                continue
            if len(samples) < self._sizes.get(target, 0) and now_s - at_s < self._interval_s:
                # Remote writing delivers the series of one scrape one by one: the rest is to come.
                continue
            self._sizes[target] = len(samples)
            self._newest_s[target] = at_s
            self._heard[target] = scrapers
            whole.append((at_s, target, samples))
        for target in [t for t, at in self._newest_s.items() if now_s - at > self._forget_after_s]:
            del self._newest_s[target], self._sizes[target], self._heard[target]
        live = {t for t, at_s in self._newest_s.items() if now_s - at_s <= self._stale_after_s}
        for at_s, target, samples in whole:
            if target in self._pending:
                yield self._take()
            self._pending[target] = (at_s, Page(self._preset, samples))
            if live <= self._pending.keys():
                yield self._take()

    def _unseen(
        self, series: Sequence[Series]
    ) -> dict[tuple[float, str], tuple[list[Sample], set[Scraper]]]:
        """What is newer than the last scrape taken of its target, by time and target.

        Samples, and who scraped them: several where a page's own series bear such labels.
        """
        scrapes: dict[tuple[float, str], tuple[list[Sample], set[Scraper]]] = {}
        for one in series:
            target = self._target(one.labels)
            name, labels = one.labels.get("__name__", ""), _series_labels(one.labels)
            scraper = tuple(
                sorted(item for item in one.labels.items() if item[0] in _SCRAPER_LABELS)
            )
            before_s = self._newest_s.get(target, -math.inf)
            for at_s, value in reversed(one.points):
                if at_s <= before_s:
                    break
                samples, scrapers = scrapes.setdefault((at_s, target), ([], set()))
                samples.append(Sample(name, labels, value))
                scrapers.add(scraper)
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
