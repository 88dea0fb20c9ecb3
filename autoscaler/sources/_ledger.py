"""Samples to running totals: resets seen a series, engines a target, trouble a role.

A *role* is what a series means (ttft, waiting, completed, ...); the preset says which series have
it. Totals only grow: a counter that went back has restarted, and what it shows is new.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.errors import ObservationError
from autoscaler.model import Signal, SignalStatus
from autoscaler.sources._page import Sample
from autoscaler.sources._presets import Preset

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Round:
    """What one scrape of all targets showed, besides the totals.

    Args:
        restarted: a counter went back since the round before.
        output_tokens: as shown now, not since the first round.
        gauges: by role and engine; an engine is its index and its target.
        trouble: why a role has no usable value.
        bounds: common finite bucket bounds by role; absent: no such series.
    """

    restarted: bool = False
    output_tokens: float = 0.0
    gauges: dict[str, dict[tuple[int, str], float]] = field(default_factory=dict)
    trouble: dict[str, Signal] = field(default_factory=dict)
    bounds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)


class Ledger:
    """Running totals over all series since they were first seen.

    A target's series count from what they show when the target is first seen: what happened
    before that is nobody's increase. A series that appears later counts from 0: routers and
    engines create the children of a counter with its first increment.

    Args:
        preset: which series mean what.
        forget_after_s: a target that was not seen for so long is a new one when it comes back.
    """

    def __init__(self, preset: Preset, forget_after_s: float) -> None:
        self._preset = preset
        self._forget_after_s = forget_after_s
        self._last: dict[str, dict[tuple[str, Labels], float]] = {}
        self._seen_at_s: dict[str, float] = {}
        self.buckets: dict[str, dict[float, float]] = {role: {} for role in preset.histograms()}
        self.totals: dict[str, float] = dict.fromkeys(preset.counters(), 0.0)

    def enter(self, at_s: float, pages: Mapping[str, "Page"]) -> Round:
        """Add one round.

        Args:
            at_s: when it was read; later than the rounds before.
            pages: by target.
        """
        found = Round()
        for target, page in pages.items():
            self._count(target, page, found)
            self._seen_at_s[target] = at_s
            for role, (status, detail) in page.trouble.items():
                found.trouble[role] = Signal(None, status, detail=detail)
            for role, gauges in page.gauges.items():
                kept = found.gauges.setdefault(role, {})
                for index, value in gauges.items():
                    kept[index, target] = value
        for role in self._preset.histograms():
            groups = [set(g) for page in pages.values() for g in page.histograms[role].values()]
            if groups:
                common = set.intersection(*groups)
                found.bounds[role] = tuple(sorted(b for b in common if b < math.inf))
        for target in [t for t, at in self._seen_at_s.items() if at_s - at > self._forget_after_s]:
            del self._seen_at_s[target]
            del self._last[target]
        return found

    def _count(self, target: str, page: "Page", found: Round) -> None:
        known = target in self._last
        last = self._last.setdefault(target, {})

        def increase(key: tuple[str, Labels], value: float) -> float:
            before = last.get(key, 0.0 if known else value)
            last[key] = value
            if value < before:
                found.restarted = True
                return value
            return value - before

        for role, groups in page.histograms.items():
            totals = self.buckets[role]
            for group, buckets in groups.items():
                for bound, value in buckets.items():
                    key = (role, (*group, ("le", str(bound))))
                    totals[bound] = totals.get(bound, 0.0) + increase(key, value)
        for role, name, labels, value in page.counters:
            self.totals[role] += increase((f"{role} {name}", labels), value)
            found.counted.add(role)
            if role == "output_tokens":
                found.output_tokens += value


class Page:
    """The samples of one target, sorted by what they mean.

    Raises:
        ObservationError: a histogram without its +Inf bucket: a page that was cut off.
    """

    def __init__(self, preset: Preset, samples: Sequence[Sample]) -> None:
        self.trouble: dict[str, tuple[SignalStatus, str]] = {}
        self.histograms: dict[str, dict[Labels, dict[float, float]]] = {}
        self.gauges: dict[str, dict[int, float]] = {}
        self.counters: list[tuple[str, str, Labels, float]] = []
        by_name: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            by_name[sample.name].append(sample)
        for role, names in preset.histograms().items():
            bucket_names = [f"{name}_bucket" for name in names]
            self.histograms[role] = self._histogram(role, _first(bucket_names, by_name))
        for role, names in preset.gauges().items():
            self._gauge(role, preset, _first(names, by_name))
        for role, counted in preset.counters().items():
            for one in counted:
                for sample in _first(one.names, by_name):
                    if one.selects(sample.labels) and self._usable(role, sample):
                        labels = _labels(sample)
                        self.counters.append((role, sample.name, labels, sample.value))

    def _usable(self, role: str, sample: Sample) -> bool:
        if math.isfinite(sample.value) and sample.value >= 0:
            return True
        self.trouble[role] = (SignalStatus.NON_FINITE, f"{sample.name} is {sample.value:g}")
        return False

    def _histogram(self, role: str, samples: Sequence[Sample]) -> dict[Labels, dict[float, float]]:
        groups: dict[Labels, dict[float, float]] = defaultdict(dict)
        for sample in samples:
            try:
                # vLLM writes "5.0", Go exporters "5": a number, not a text.
                bound = float(sample.labels["le"])
            except (KeyError, ValueError) as error:
                rule = "must have a number as le"
                got = sample.labels.get("le")
                raise ObservationError(f"{sample.name}: {rule}; got {got!r}") from error
            if math.isnan(bound):
                raise ObservationError(f"{sample.name}: must have a number as le; got NaN")
            if self._usable(role, sample):
                groups[_labels(sample, "le")][bound] = sample.value
        for buckets in groups.values():
            if math.inf not in buckets and role not in self.trouble:
                raise ObservationError(f"{samples[0].name}: must end with +Inf; it is cut off")
        return dict(groups)

    def _gauge(self, role: str, preset: Preset, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        split: dict[int, dict[str, float]] = defaultdict(dict)
        named: dict[tuple[int, str], Labels] = {}
        apart = (*preset.duplicate_labels, preset.split_label)
        for sample in samples:
            if not self._usable(role, sample):
                continue
            engine = _index(sample.labels.get(preset.engine_label, ""))
            parts = split[engine]
            part = sample.labels.get(preset.split_label, "") if preset.split_label else ""
            # Two series of one engine would be two engines, and one of them would be lost.
            labels = _labels(sample, *apart)
            if named.setdefault((engine, part), labels) != labels:
                detail = f"{sample.name}: several series of one {preset.engine_label or 'target'}"
                self.trouble[role] = (SignalStatus.AMBIGUOUS, f"{detail}, {engine}")
            # What differs only in a duplicate label is the same number several times.
            parts[part] = max(parts.get(part, 0.0), sample.value)
        self.gauges[role] = {
            engine: parts[""] if "" in parts else sum(parts.values())
            for engine, parts in split.items()
        }


def _first(names: Sequence[str], by_name: Mapping[str, list[Sample]]) -> list[Sample]:
    """The series of the first name that there is."""
    return next((by_name[name] for name in names if name in by_name), [])


def _labels(sample: Sample, *without: str) -> Labels:
    return tuple(sorted(item for item in sample.labels.items() if item[0] not in without))


def _index(value: str) -> int:
    """Index of an engine from its label: "3", "pod-rank-3"; 0 where there is no number."""
    digits = len(value) - len(value.rstrip("0123456789"))
    return int(value[-digits:][-9:]) if digits and value.isascii() else 0
