"""The score against a slow and obvious computation of the same thing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model import Slo
from autoscaler.sim.score import score, windows
from tests.sim.worlds import fleet, play_out, steady


def obvious(event_s, value_s, arrival_s, slo):
    """One window after the other, sorted."""
    end = int(max(np.ceil(max(arrival_s[-1], event_s.max() if len(event_s) else 0)), 1))
    bad, worst = 0, None
    for t in range(1, end + 1):
        low = t - round(slo.window_s)
        inside = np.sort(value_s[(event_s <= t) & ((event_s > low) | (low <= 0))])
        if len(inside):
            p95 = inside[int(np.ceil(0.95 * len(inside) - 1e-9)) - 1]
            worst = p95 if worst is None else max(worst, p95)
            bad += p95 > slo.ttft_p95_s
        else:
            bad += (arrival_s <= t).sum() > (event_s <= t).sum()
    return 1 - bad / end, bad, worst


@settings(deadline=None, max_examples=60)
@given(
    gaps=st.lists(st.floats(0, 8), min_size=1, max_size=120),
    waits=st.lists(st.floats(0.01, 60), min_size=120, max_size=120),
    window_s=st.sampled_from([1.0, 5.0, 30.0]),
)
def test_windows_are_those_of_the_obvious_computation(gaps, waits, window_s):
    slo = Slo(ttft_p95_s=5.0, window_s=window_s)
    arrival_s = np.cumsum(gaps)
    value_s = np.array(waits[: len(gaps)])
    event_s = arrival_s + value_s
    found = windows(event_s, value_s, arrival_s, slo)
    ratio, bad, worst = obvious(event_s, value_s, arrival_s, slo)
    assert (found.ok_ratio, found.over_slo_s) == (pytest.approx(ratio), bad)
    assert found.worst_p95_s == pytest.approx(worst)


def test_an_empty_window_with_a_queue_is_a_miss_and_without_one_is_not():
    slo = Slo(ttft_p95_s=100.0, window_s=5.0)
    arrival_s = np.array([0.0, 20.0])
    waiting = windows(np.array([19.5, 20.5]), np.array([19.5, 0.5]), arrival_s, slo)
    assert waiting.over_slo_s == 19
    idle = windows(np.array([0.5, 20.5]), np.array([0.5, 0.5]), arrival_s, slo)
    assert idle.over_slo_s == 1  # the second in which the later request has just come


def test_a_score_adds_up():
    world = fleet(steady(1.0, 100))
    play_out(world)
    result = score(world, Slo())
    assert result["requests"] == {"offered": 100, "completed": 100, "failed": 0}
    assert result["slo"]["windows_ok_ratio"] == 1.0
    assert result["slo"]["requests_ok_ratio"] == 1.0
    # A decode step is slots / (tokens x capacity) = 4 / (100 x 1) s.
    assert result["itl_s"]["p50"] == pytest.approx(0.04, rel=0.002)
    end_s = np.nanmax(world.engine.finish_s)
    assert result["gpu_hours"] == pytest.approx(4 * end_s / 3600)
    assert result["output_tokens_per_s"] == pytest.approx(10_000 / end_s)
    assert result["width"] == {"initial": 2, "min": 2, "max": 2, "mean": 2.0, "final": 2}


def test_failures_enter_at_the_penalty_when_they_happen():
    slo = Slo(ttft_p95_s=5.0, window_s=10.0, failure_penalty_s=30.0)
    arrival_s = np.arange(100.0)
    ttft_s = np.full(100, 0.1)
    fine = windows(arrival_s + ttft_s, ttft_s, arrival_s, slo)
    assert fine.over_slo_s == 0
    event_s = np.append(arrival_s + ttft_s, 50.5)
    failed = windows(event_s, np.append(ttft_s, 30.0), arrival_s, slo)
    # One of eleven is over 5 %: ten windows hold the failure.
    assert failed.over_slo_s == 10
    assert failed.worst_p95_s == 30.0
