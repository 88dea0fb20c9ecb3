"""``histogram.py`` against a real Prometheus' ``histogram_quantile``, on data it scraped."""

import math

import numpy as np
import pytest

from autoscaler import histogram
from autoscaler.model import SignalStatus
from tests.adapters.prometheus.conftest import Start
from tests.adapters.prometheus.servers import Answer, Server

HISTOGRAMS = 400
VLLM_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def test_quantiles_equal_those_of_prometheus_over_many_random_histograms(
    start_prometheus: Start,
):
    rng = np.random.default_rng(20261130)
    bounds = [_bounds(rng, i) for i in range(HISTOGRAMS)]
    # Far from 0: close to it, rate() extrapolates each bucket differently, and shapes change.
    first = [rng.integers(10**6, 2 * 10**6, len(b) + 1) for b in bounds]
    steps = [_increments(rng, i, len(b) + 1) for i, b in enumerate(bounds)]
    with Server(Answer(_page(bounds, first))) as exporter:
        started = start_prometheus({"histograms": (f"127.0.0.1:{exporter.port}", {})})
        ready = 'count(count_over_time(h_bucket{i="0",le="+Inf"}[1m]) >= 2)'
        started.wait_for(lambda: started.query(ready) != [], "two scrapes")
        for part in (0.5, 1.0):
            exporter.answer = Answer(
                _page(bounds, [f + np.floor(s * part) for f, s in zip(first, steps, strict=True)])
            )
            seen = len(exporter.requests)
            started.wait_for(lambda: len(exporter.requests) >= seen + 3, "more scrapes")  # noqa: B023
        either, _ = started.query('h_bucket{i="0",le="+Inf"}[1m]')
        at_s = either["values"][-1][0]
        raw = _raw(started.query("h_bucket[1m]", at_s))
        assert len(raw) == HISTOGRAMS
        compared = {"value": 0, "empty": 0, "top": 0, "tie": 0}
        for q in QUANTILES:
            answers = started.query(
                f"histogram_quantile({q}, sum by (i, le) (rate(h_bucket[1m])))", at_s
            )
            assert len(answers) == HISTOGRAMS
            for answer in answers:
                i = int(answer["metric"]["i"])
                _compare(raw[i], q, float(answer["value"][1]), compared)
    assert compared["value"] > 1000
    assert compared["empty"] >= 5 * len(QUANTILES)
    assert compared["top"] >= 5
    assert compared["tie"] < 0.1 * HISTOGRAMS * len(QUANTILES)


def _compare(
    increments: dict[float, float], q: float, theirs: float, compared: dict[str, int]
) -> None:
    bounds = sorted(bound for bound in increments if bound < math.inf)
    counts = [increments[b] for b in (*bounds, math.inf)]
    ours = histogram.quantile(bounds, counts, q)
    if q < 1 and any(math.isclose(q * counts[-1], count) for count in counts) and counts[-1]:
        # Exactly between two buckets the value jumps, and rate()'s rounding decides where to.
        compared["tie"] += 1
        return
    if math.isnan(theirs):
        assert ours.status is SignalStatus.NO_OBSERVATIONS
        compared["empty"] += 1
    elif ours.status is SignalStatus.TOP_BUCKET:
        # Where Prometheus passes the highest bound off as the value.
        assert ours.lower_bound == theirs == bounds[-1]
        compared["top"] += 1
    else:
        assert ours.value == pytest.approx(theirs, rel=1e-9, abs=1e-12)
        compared["value"] += 1


def _bounds(rng: np.random.Generator, i: int) -> list[float]:
    if i % 2 == 0:
        return list(VLLM_BOUNDS)
    low = 0.0 if i % 3 else -2.0  # negative bounds and one at 0 as well
    return np.unique(
        np.round(low + np.cumsum(rng.exponential(0.7, rng.integers(1, 25))), 6)
    ).tolist()


def _increments(rng: np.random.Generator, i: int, buckets: int) -> np.ndarray:
    if i % 20 == 0:
        return np.zeros(buckets)
    counts = rng.integers(0, 100, buckets) * (rng.random(buckets) < 0.4)
    if i % 10 == 1:
        counts[:-1] = 0
        counts[-1] = 7  # all beyond the highest bound
    return counts


def _page(bounds: list[list[float]], counts: list[np.ndarray]) -> str:
    """Each histogram split over two engines."""
    lines = ["# TYPE h histogram"]
    for i, (limits, count) in enumerate(zip(bounds, counts, strict=True)):
        half = np.floor(count / 3)
        for engine, part in ((0, half), (1, count - half)):
            labels = f'engine="{engine}",i="{i}"'
            for limit, total in zip((*limits, math.inf), np.cumsum(part), strict=True):
                le = "+Inf" if limit == math.inf else repr(float(limit))
                lines.append(f'h_bucket{{{labels},le="{le}"}} {float(total)}')
    return "\n".join(lines) + "\n"


def _raw(series: list[dict]) -> dict[int, dict[float, float]]:
    """Increments from the first to the last sample by histogram and bound, over both engines."""
    found: dict[int, dict[float, float]] = {}
    for one in series:
        buckets = found.setdefault(int(one["metric"]["i"]), {})
        bound = float(one["metric"]["le"])
        increase = float(one["values"][-1][1]) - float(one["values"][0][1])
        buckets[bound] = buckets.get(bound, 0.0) + increase
    return found
