import dataclasses
import json

import numpy as np
import pytest

from autoscaler.traces import Trace, stats


def trace(arrival_s, prompt_tokens=None, output_tokens=None):
    n = len(arrival_s)
    return Trace(
        np.array(arrival_s, dtype=np.float64),
        np.array(prompt_tokens or [1] * n, dtype=np.int32),
        np.array(output_tokens or [1] * n, dtype=np.int32),
    )


def test_rates_and_gaps():
    summary = stats(trace([0, 1, 2, 3, 4]))
    assert (summary.requests, summary.duration_s, summary.mean_rps) == (5, 4, 1)
    assert (summary.inter_arrival_cv, summary.burstiness) == (0, -1)
    uneven = stats(trace([0, 0, 2, 2, 4]))
    assert uneven.inter_arrival_cv == pytest.approx(1)
    assert uneven.burstiness == pytest.approx(0)


def test_peaks_are_of_any_window_and_not_only_of_whole_seconds():
    summary = stats(trace([0, 0.9, 1.1, 1.2, 2.0, 40, 41, 60.5]))
    assert summary.peak_1s_rps == 3  # 0.9 to 1.9
    assert summary.peak_30s_rps == pytest.approx(5 / 30)
    assert summary.peak_60s_rps == pytest.approx(7 / 60)


def test_lengths():
    summary = stats(trace(range(101), list(range(101)), [7] * 100 + [0]))
    prompt = summary.prompt_tokens
    assert (prompt.total, prompt.mean, prompt.max) == (5050, 50, 100)
    assert (prompt.p50, prompt.p95, prompt.p99) == (50, 95, 99)
    assert (summary.output_tokens.p99, summary.zero_output_requests) == (7, 1)


def test_totals_do_not_overflow():
    n = 1000
    assert stats(trace(range(n), [10_000_000] * n)).prompt_tokens.total == 10**10


@pytest.mark.parametrize("arrival_s", [[0.0], [0.0, 0.0]])
def test_without_a_duration_there_is_no_rate(arrival_s):
    summary = stats(trace(arrival_s))
    assert (summary.mean_rps, summary.inter_arrival_cv, summary.burstiness) == (None, None, None)
    assert summary.peak_1s_rps == len(arrival_s)


def test_the_summary_is_json():
    text = json.dumps(dataclasses.asdict(stats(trace([0, 1]))), allow_nan=False)
    assert json.loads(text)["prompt_tokens"]["p95"] == 1
