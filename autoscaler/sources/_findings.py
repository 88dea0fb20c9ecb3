"""What a check of a source finds before anything depends on it.

Pure rules; the sources feed them with what they read. Levels: an error keeps the source from
working, a warning makes it work worse than it could.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches

from autoscaler.findings import Finding, Level
from autoscaler.model import Metrics, SignalStatus, Slo


def window_finding(window_s: float, scrape_interval_s: float) -> Finding:
    """Whether the rolling window holds enough scrapes: at least 2, better 4."""
    scrapes = window_s / scrape_interval_s
    said = f"{window_s:g} s of window, a scrape each {scrape_interval_s:g} s"
    cure = f"scrape each {window_s / 4:.3g} s, or set slo.window_s to {4 * scrape_interval_s:.3g}"
    if scrapes < 2:
        return Finding(Level.ERROR, "window_s", f"must be >= 2 scrape intervals; got {said}", cure)
    if scrapes < 4:
        text = f"should be >= 4 scrape intervals; got {said}"
        return Finding(Level.WARNING, "window_s", text, cure)
    return Finding(Level.OK, "window_s", said)


def range_findings(queries: Mapping[str, str], scrape_interval_s: float) -> list[Finding]:
    """Queries that look back over fewer than four scrapes; fewer than two are refused before."""
    found = []
    for signal, query in queries.items():
        range_s = shortest_range_s(query)
        if range_s is not None and range_s < 4 * scrape_interval_s:
            text = f"should look back over >= 4 scrape intervals; got a range of {range_s:g} s"
            cure = f"use a range of [{math.ceil(4 * scrape_interval_s)}s] in its query"
            found.append(Finding(Level.WARNING, signal, text, cure))
    return found


def interval_finding(expected_s: float, seen_s: float) -> Finding:
    """Whether the engines are scraped as often as was said."""
    if not 0.8 * expected_s <= seen_s <= 1.2 * expected_s:
        detail = f"must be the engines' scrape interval, {seen_s:.3g} s; got {expected_s:g} s"
        # Too small, every scrape is taken for a gap; too large, gaps are seen late.
        level = Level.ERROR if seen_s > 2.5 * expected_s else Level.WARNING
        cure = f"set source.scrape_interval_s to {seen_s:.2g}, or scrape each {expected_s:g} s"
        return Finding(level, "scrape_interval_s", detail, cure)
    return Finding(Level.OK, "scrape_interval_s", f"scraped each {seen_s:.3g} s")


def objective_finding(slo: Slo, bounds_s: Sequence[float]) -> Finding:
    """Whether the TTFT objective is a bucket bound, so that attainment is exact."""
    limit = slo.ttft_p95_s
    if not bounds_s:
        cure = "select the engines' own series: check source.engine and the labels or addresses"
        return Finding(Level.ERROR, "ttft_p95_s", "no TTFT histogram was seen", cure)
    if limit > bounds_s[-1]:
        detail = f"{limit:g} s lies beyond the highest bucket bound, {bounds_s[-1]:g} s"
        cure = f"set slo.ttft_p95_s to {bounds_s[-1]:g} or less: beyond it no quantile has a value"
        return Finding(Level.ERROR, "ttft_p95_s", detail, cure)
    if limit not in bounds_s:
        near = min(bounds_s, key=lambda bound: abs(bound - limit))
        detail = f"{limit:g} s is no bucket bound: attainment is interpolated; {near:g} s is one"
        below = max((bound for bound in bounds_s if bound < limit), default=None)
        above = min(bound for bound in bounds_s if bound > limit)
        bounds = f"{above:g}" if below is None else f"{below:g} or {above:g}"
        cure = f"set slo.ttft_p95_s to {bounds}, or give the engine a bucket at {limit:g} s"
        return Finding(Level.WARNING, "ttft_p95_s", detail, cure)
    return Finding(Level.OK, "ttft_p95_s", f"{limit:g} s is a bucket bound")


def signal_findings(metrics: Metrics) -> list[Finding]:
    """One finding for each signal that does not exist, is ambiguous or is no number."""
    levels = {
        SignalStatus.NO_SERIES: Level.WARNING,
        SignalStatus.STALE: Level.ERROR,
        SignalStatus.NON_FINITE: Level.ERROR,
        SignalStatus.AMBIGUOUS: Level.ERROR,
    }
    needed = ("ttft_p95_s", "queue_depth")
    found = []
    for field in fields(metrics):
        if field.name == "window_s":
            continue
        signal = getattr(metrics, field.name)
        level = levels.get(signal.status, Level.OK)
        if level is Level.WARNING and field.name in needed:
            level = Level.ERROR
        if level is not Level.OK:
            text, cure = f"{signal.status}: {signal.detail}", _SIGNAL_CURES[signal.status]
            found.append(Finding(level, field.name, text, cure))
    return found


_SIGNAL_CURES = {
    SignalStatus.NO_SERIES: "select series of the engine that exist, or live without this signal",
    SignalStatus.STALE: "let the engines be scraped: one that resizes answers 503 until it is done",
    SignalStatus.NON_FINITE: "correct the query: it divides by zero, or by nothing",
    SignalStatus.AMBIGUOUS: "aggregate the query to one element, as with sum() or max()",
}


def label_finding(label: str, wanted: str, existing: Sequence[str]) -> Finding:
    """Whether a label selects something; if not, what it may have been meant to be.

    Args:
        label: its name.
        wanted: the value that is asked for.
        existing: values that the series of the engine have where this label is left open; none:
            they have no such label.
    """
    if wanted in existing:
        return Finding(Level.OK, label, f"{label}={wanted!r} selects series")
    if not existing:
        cure = f"leave source.labels.{label} out, or let the scrape attach it"
        return Finding(Level.ERROR, label, f"no series has a label {label}", cure)
    near = get_close_matches(wanted, existing, n=1, cutoff=0.5)
    meant = f"; is {near[0]!r} meant?" if near else ""
    there = ", ".join(repr(value) for value in sorted(existing)[:5])
    detail = f"{label}={wanted!r} selects nothing; there is {there}{meant}"
    choice = repr(near[0]) if near else "one of them"
    return Finding(Level.ERROR, label, detail, f"set source.labels.{label} to {choice}")


_COUNTER = re.compile(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*_(?:total|sum|count|bucket)\b")
_RATE = re.compile(
    r"\b(?:rate|irate|increase|delta|idelta|deriv|resets|changes|absent|count)\s*[(b]"
)


def counter_in(query: str) -> str | None:
    """The counter that a query uses as if it were a gauge; None: it uses none.

    A ``_total``, ``_sum``, ``_count`` or ``_bucket`` says how much there ever was; only its
    ``rate`` or ``increase`` says anything of now.
    """
    bare = _bare(query)
    counter = _COUNTER.search(bare)
    return counter.group() if counter and not _RATE.search(bare) else None


_RANGE = re.compile(
    r"\b(?:rate|irate|increase|delta|idelta|deriv|predict_linear|changes|resets)\s*\("
    r"[^()\[\]]*\[\s*((?:\d+(?:ms|[smhdwy]))+)\s*\]"
)
"""What needs two samples, with its range."""

_UNITS_S = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


def shortest_range_s(query: str) -> float | None:
    """The shortest range that something is a change over, ``rate(x[15s])``, s; None: none is."""
    spans = _RANGE.findall(_bare(query))
    parts = [re.findall(r"(\d+)(ms|[smhdwy])", span) for span in spans]
    return min((sum(int(n) * _UNITS_S[unit] for n, unit in part) for part in parts), default=None)


def _bare(query: str) -> str:
    """A query without what is in quotes."""
    return re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`', '""', query)
