"""Bucket increments to quantile, attainment and penalised quantile.

Used by the live source and by the simulator alike. Classic histograms only, in the form that
Prometheus exposes them, and with exactly its ``histogram_quantile`` (2.5x and 3.x).

Everywhere here ``bounds`` are the n finite upper bounds, strictly ascending, and ``cumulative``
the n + 1 **cumulative** increments over the window: ``cumulative[i]`` observations were at or
under ``bounds[i]``, the last entry is ``le="+Inf"``, that is all of them. Sequences of floats or
one-dimensional arrays. ``cumulate`` makes cumulative increments of plain bucket counts.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from autoscaler.model import Signal, SignalStatus

_SMALL_DELTA = 1e-12
"""Relative difference under which Prometheus takes two neighbouring counts for equal."""


def cumulate(counts: Iterable[float]) -> list[float]:
    """Cumulative increments from counts of the single buckets, the +Inf one last."""
    return list(accumulate(counts))


def quantile(
    bounds: Sequence[float] | Any,
    cumulative: Sequence[float] | Any,
    q: float,
    min_observations: float = 1.0,
    failures: float = 0.0,
    failure_penalty_s: float = 30.0,
) -> Signal:
    """The ``q`` quantile by linear interpolation, failures entered at a penalty.

    The first bucket starts at 0 if its upper bound is positive. Without failures this is
    Prometheus' ``histogram_quantile`` to the last bit.

    Failures are a point mass at exactly ``failure_penalty_s``, not spread over the bucket that
    the penalty falls into: their value is known, that of the observations beside them is not.
    So inside that bucket the distribution is the uniform one with a step at the penalty, and the
    quantile is exact in it, continuous and non-decreasing in the number of failures. Spreading
    them would report 20 to 40 s for a penalty of 30 s in vLLM's (20, 40] bucket.

    Args:
        bounds: n finite upper bounds, strictly ascending, n >= 1.
        cumulative: n + 1 cumulative increments; small decreases are repaired as Prometheus does.
        q: 0 < q <= 1.
        min_observations: with fewer observations and failures the status is FEW_SAMPLES.
        failures: number of failed requests, >= 0.
        failure_penalty_s: value at which each one enters, in the unit of ``bounds``, > 0.

    Returns:
        The quantile; or NO_OBSERVATIONS, FEW_SAMPLES, NON_FINITE; or TOP_BUCKET with the highest
        finite bound as ``lower_bound``, where Prometheus would pass that bound off as the value.
    """
    if not 0 < q <= 1:
        raise ValueError(f"q: must be > 0 and <= 1; got {q!r}")
    limits, counts = _floats(bounds), _monotonic(_floats(cumulative))
    failed = max(failures, 0.0)
    if failed or not counts or counts[-1] < min_observations or counts[-1] <= 0:
        reason = _unusable(counts, failed, min_observations)
        if reason is not None:
            return reason
    rank = q * (counts[-1] + failed)
    if failed:
        if failure_penalty_s > limits[-1]:
            # Which of the observations in the +Inf bucket lie below the penalty is unknown.
            if rank > counts[-2] and counts[-1] == counts[-2]:
                return Signal(failure_penalty_s)
        else:
            faster = _below(limits, counts, failure_penalty_s)
            if faster < rank <= faster + failed:
                return Signal(failure_penalty_s)
            if rank > faster:
                rank -= failed
    return _value_at(limits, counts, rank)


def attainment(
    bounds: Sequence[float] | Any,
    cumulative: Sequence[float] | Any,
    limit_s: float,
    min_observations: float = 1.0,
    failures: float = 0.0,
) -> Signal:
    """Share of observations at or under ``limit_s``, 0..1; failures count as misses.

    Exact where ``limit_s`` is a bucket bound, which is why it beats comparing the quantile.
    Inside a bucket it is interpolated, and the ``detail`` says "interpolated in (a, b]".

    Args:
        bounds: n finite upper bounds, strictly ascending, n >= 1.
        cumulative: n + 1 cumulative increments.
        limit_s: the objective, in the unit of ``bounds``, > 0.
        min_observations: with fewer observations and failures the status is FEW_SAMPLES.
        failures: number of failed requests, >= 0.

    Returns:
        The share; or NO_OBSERVATIONS, FEW_SAMPLES, NON_FINITE; or, where the limit lies beyond
        the highest finite bound and observations do too, TOP_BUCKET with a lower bound.
    """
    limits, counts = _floats(bounds), _monotonic(_floats(cumulative))
    failed = max(failures, 0.0)
    if failed or not counts or counts[-1] < min_observations or counts[-1] <= 0:
        reason = _unusable(counts, failed, min_observations)
        if reason is not None:
            return reason
    total = counts[-1] + failed
    if limit_s > limits[-1]:
        proven = counts[-2] / total
        if counts[-1] == counts[-2]:
            return Signal(proven)
        return Signal(None, SignalStatus.TOP_BUCKET, proven, f"beyond {limits[-1]:g}")
    share = _below(limits, counts, limit_s) / total
    above = bisect_left(limits, limit_s)
    if limits[above] == limit_s:
        return Signal(share)
    low = limits[above - 1] if above else 0.0
    return Signal(share, detail=f"interpolated in ({low:g}, {limits[above]:g}]")


def _floats(values: Any) -> Sequence[float]:
    """The same as plain floats: looping over an array costs ten times as much."""
    if type(values) is list or type(values) is tuple:
        return values
    floats: list[float] = values.tolist()
    return floats


def _monotonic(cumulative: Sequence[float]) -> Sequence[float]:
    """Cumulative counts without decreases, as Prometheus' ensureMonotonic repairs them.

    Empty if one of them is not finite.
    """
    if type(cumulative[-1]) is int and cumulative[0] >= 0 and sorted(cumulative) == cumulative:
        return cumulative  # whole counts that ascend: nothing to repair, and sorting is cheap
    total = sum(cumulative)
    if total - total != 0:  # NaN and both infinities, in one comparison
        return []
    previous = cumulative[0] if cumulative[0] > 0 else 0.0
    repaired = []
    for count in cumulative:
        # Equal up to rounding counts as equal, a decrease of any size is taken back.
        if count > previous and (
            previous == 0 or (count - previous) / (count + previous) >= _SMALL_DELTA
        ):
            previous = count
        repaired.append(previous)
    return repaired


def _unusable(counts: Sequence[float], failed: float, min_observations: float) -> Signal | None:
    """Why there is nothing to compute; None: there is."""
    if not counts or not math.isfinite(failed):
        return Signal(None, SignalStatus.NON_FINITE, detail="an increment is not finite")
    observations = counts[-1] + failed
    if observations <= 0:
        return Signal(None, SignalStatus.NO_OBSERVATIONS)
    # Extrapolated increments are not whole: 19.999999999 observations are 20.
    if observations < min_observations - 1e-6:
        detail = f"{observations:g} of at least {min_observations:g}"
        return Signal(None, SignalStatus.FEW_SAMPLES, detail=detail)
    return None


def _value_at(limits: Sequence[float], counts: Sequence[float], rank: float) -> Signal:
    """The value at a rank > 0 of the observations alone."""
    i = bisect_left(counts, rank)
    if i >= len(limits):
        top = limits[-1]
        return Signal(None, SignalStatus.TOP_BUCKET, top, f"beyond {top:g}")
    if i == 0:
        if limits[0] <= 0.0:
            return Signal(limits[0])  # Prometheus: there is no lower bound to interpolate from
        return Signal(limits[0] * (rank / counts[0]))
    start, below = limits[i - 1], counts[i - 1]
    return Signal(start + (limits[i] - start) * ((rank - below) / (counts[i] - below)))


def _below(limits: Sequence[float], counts: Sequence[float], value: float) -> float:
    """Number of observations at or under ``value``, interpolated; value <= highest bound."""
    i = bisect_left(limits, value)
    if value == limits[i]:
        return counts[i]
    start, below = (limits[i - 1], counts[i - 1]) if i else (0.0, 0.0)
    share = max(value - start, 0.0) / (limits[i] - start) if limits[i] > start else 0.0
    return below + (counts[i] - below) * share
