"""The series of a range, sorted into rounds: one scrape of each target."""

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
        stale_after_s: a target without a sample for so long is not waited for, s.

    Attributes:
        interval_s: median distance of the scrapes of a target in the last range; None: unknown.
    """

    def __init__(self, preset: Preset, target_labels: Sequence[str], stale_after_s: float) -> None:
        self._preset = preset
        self._target_labels = tuple(target_labels)
        self._stale_after_s = stale_after_s
        self._newest_s: dict[str, float] = {}
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
        scrapes: dict[tuple[float, str], list[Sample]] = {}
        seen_s = dict(self._newest_s)
        for one in series:
            target = self._target(one.labels)
            name, labels = one.labels.get("__name__", ""), _series_labels(one.labels)
            before_s = seen_s.get(target)
            for at_s, value in reversed(one.points):
                if before_s is not None and at_s <= before_s:
                    break
                scrapes.setdefault((at_s, target), []).append(Sample(name, labels, value))
                if at_s > self._newest_s.get(target, at_s - 1):
                    self._newest_s[target] = at_s
        self._measure(series)
        self._newest_s = {
            target: at_s
            for target, at_s in self._newest_s.items()
            if now_s - at_s <= 10 * self._stale_after_s
        }
        live = {t for t, at_s in self._newest_s.items() if now_s - at_s <= self._stale_after_s}
        for (at_s, target), samples in sorted(scrapes.items(), key=lambda item: item[0]):
            if target in self._pending:
                yield self._take()
            self._pending[target] = (at_s, Page(self._preset, samples))
            if live <= self._pending.keys():
                yield self._take()

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
