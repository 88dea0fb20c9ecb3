"""Quantiles from buckets: against Prometheus' published behaviour, and against a sort."""

# test names carry case ids

import math
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler import histogram
from autoscaler.model import SignalStatus

VLLM = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip


def buckets(values, bounds=VLLM):
    counts = [0.0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return histogram.cumulate(counts)


@pytest.mark.parametrize(
    ("values", "p95"),
    [
        ([2.6] * 100 + [4.9] * 100, 4.875),
        ([2.6] * 100, 4.875),
        ([4.9] * 100, 4.875),
        ([5.01] * 100, 7.375),
        ([10.1] * 100, 19.5),
    ],
)
def test_contract_3_7_1_interpolates_as_prometheus_does(values, p95):
    assert histogram.quantile(VLLM, buckets(values), 0.95).value == pytest.approx(p95, abs=1e-12)


@pytest.mark.parametrize(
    ("bounds", "cumulative", "q", "expected"),
    [
        # prometheus/promql/promqltest/testdata/histograms.test, testhistogram and friends
        ((0.1, 0.2, 1.0, 2.0), (5, 5, 12, 12, 12), 0.2, 0.1 * 2.4 / 5),
        ((0.0, 1.0), (4, 8, 8), 0.25, 0.0),
        ((-1.0, 0.0), (4, 8, 8), 0.9, -1.0 + (7.2 - 4) / 4),
        ((1.0, 2.0, 3.0), (0, 0, 10, 10), 0.5, 2.5),
        ((1.0,), (10, 10), 1.0, 1.0),
    ],
)
def test_first_bucket_and_borders(bounds, cumulative, q, expected):
    assert histogram.quantile(bounds, cumulative, q).value == pytest.approx(expected)


def test_rank_in_the_top_bucket_is_a_lower_bound_not_a_value_G02():
    signal = histogram.quantile(VLLM, buckets([3000.0] * 10), 0.95)
    assert signal.value is None
    assert signal.status is SignalStatus.TOP_BUCKET
    assert signal.at_least == 2560.0


def test_no_new_observations_is_a_status_of_its_own_M23():
    empty = [0.0] * (len(VLLM) + 1)
    assert histogram.quantile(VLLM, empty, 0.95).status is SignalStatus.NO_OBSERVATIONS
    assert histogram.attainment(VLLM, empty, 5.0).status is SignalStatus.NO_OBSERVATIONS


def test_two_requests_make_no_p95_M32():
    signal = histogram.quantile(VLLM, buckets([9.0, 9.0]), 0.95, min_observations=20)
    assert signal.status is SignalStatus.FEW_SAMPLES
    assert signal.at_least is None


def test_extrapolated_increments_just_short_of_the_minimum_are_enough():
    counts = [c * 0.9999999999 for c in buckets([1.0] * 20)]
    assert histogram.quantile(VLLM, counts, 0.95, min_observations=20).value is not None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_increments_are_refused_M02_G02(bad):
    counts = buckets([1.0] * 20)
    counts[5] = bad
    assert histogram.quantile(VLLM, counts, 0.95).status is SignalStatus.NON_FINITE
    assert histogram.attainment(VLLM, counts, 5.0).status is SignalStatus.NON_FINITE


def test_decreases_and_rounding_are_repaired_as_ensure_monotonic_does():
    # promqltest: "nonmonotonic_bucket" 0.1:0 1:2 10:1 100:5 1000:4 +Inf:9 -> 0.4 in (0.1, 1]
    bounds, counts = (0.1, 1.0, 10.0, 100.0, 1000.0), (0, 2, 1, 5, 4, 9)
    assert histogram.quantile(bounds, counts, 0.01).value == pytest.approx(0.0045 * 9 + 0.1 - 0.0)
    assert histogram.quantile(bounds, counts, 0.5).value == pytest.approx(10 + 90 * 2.5 / 3)
    assert histogram.quantile(bounds, counts, 0.99).status is SignalStatus.TOP_BUCKET
    tiny = (0.0, 10.0, 10.0 * (1 - 1e-15), 10.0, 10.0, 10.0 * (1 + 1e-15))
    assert histogram.quantile(bounds, tiny, 1.0).value == pytest.approx(1.0)


def test_tiny_negative_increments_are_zero():
    counts = [-1e-15] * len(VLLM) + [-1e-16]
    assert histogram.quantile(VLLM, counts, 0.5).status is SignalStatus.NO_OBSERVATIONS


def test_arrays_and_lists_give_the_same():
    counts = buckets([0.3, 0.4, 7.0])
    from_array = histogram.quantile(np.array(VLLM), np.array(counts), 0.9)
    assert from_array == histogram.quantile(list(VLLM), counts, 0.9)
    assert type(from_array.value) is float


def test_q_out_of_range_is_a_programming_error():
    for q in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q: must be"):
            histogram.quantile(VLLM, buckets([1.0]), q)


def test_attainment_is_exact_at_a_bound_and_marked_inside_a_bucket():
    counts = buckets([1.0] * 60 + [4.0] * 20 + [6.0] * 20)
    assert histogram.attainment(VLLM, counts, 5.0) == histogram.Signal(0.8)
    inside = histogram.attainment(VLLM, counts, 6.25)
    assert inside.value == pytest.approx(0.9)
    assert inside.detail == "interpolated in (5, 7.5]"


def test_attainment_beyond_the_highest_bound_is_a_lower_bound_unless_nothing_is_there():
    assert histogram.attainment((1.0,), (8, 10), 2.0).status is SignalStatus.TOP_BUCKET
    assert histogram.attainment((1.0,), (8, 10), 2.0).at_least == pytest.approx(0.8)
    assert histogram.attainment((1.0,), (10, 10), 2.0).value == 1.0


def test_failures_are_misses_in_attainment():
    assert histogram.attainment(VLLM, buckets([1.0] * 90), 5.0, failures=10).value == 0.9
    assert histogram.attainment(VLLM, buckets([]), 5.0, failures=3).value == 0.0


@pytest.mark.parametrize(
    ("values", "failures", "expected"),
    [
        ([1.0] * 99, 1, 1.0 - 0.25 * (1 - 0.95 * 100 / 99)),  # p95 still among the observations
        ([0.9] * 90, 10, 30.0),  # the failures hold the 95th percentile: exactly the penalty
        ([], 5, 30.0),
        ([25.0] * 50 + [35.0] * 50, 0, 39.0),
        # 100 uniform in (20, 40], step of 100 at 30: rank 190 is the 90th observation
        ([25.0] * 100, 100, 38.0),
        ([50.0] * 100, 5, 40 + 40 * (0.95 * 105 - 5) / 100),  # failures are the fast ones here
    ],
)
def test_failures_enter_as_a_step_at_the_penalty(values, failures, expected):
    signal = histogram.quantile(VLLM, buckets(values), 0.95, failures=failures)
    assert signal.value == pytest.approx(expected)


def test_penalty_beyond_the_highest_bound():
    fine = histogram.quantile((1.0,), (10, 10), 0.95, failures=10, failure_penalty_s=30.0)
    assert fine.value == 30.0
    mixed = histogram.quantile((1.0,), (10, 11), 0.95, failures=10, failure_penalty_s=30.0)
    assert (mixed.status, mixed.at_least) == (SignalStatus.TOP_BUCKET, 1.0)


ttfts = st.lists(st.floats(1e-4, 2500.0), min_size=1, max_size=200)


@given(ttfts, st.floats(0.01, 1.0))
def test_quantile_lies_in_the_bucket_of_the_sorted_one(values, q):
    rank = max(math.ceil(q * len(values) - 1e-9), 1)
    exact = sorted(values)[rank - 1]
    i = bisect_left(VLLM, exact)
    low, high = (VLLM[i - 1] if i else 0.0), VLLM[i]
    got = histogram.quantile(VLLM, buckets(values), q).value
    assert low - 1e-9 <= got <= high + 1e-9


@given(ttfts, st.integers(0, 50), st.floats(0.5, 1.0))
def test_penalised_quantile_grows_with_failures_and_lies_in_the_bucket_of_the_sort(values, n, q):
    counts = buckets(values)
    got = histogram.quantile(VLLM, counts, q, failures=n).value
    if max(values) < 20 or n == 0:
        ordered = sorted(values + [30.0] * n)
        exact = ordered[max(math.ceil(q * len(ordered) - 1e-9), 1) - 1]
        i = bisect_left(VLLM, exact)
        assert (VLLM[i - 1] if i else 0.0) - 1e-9 <= got <= VLLM[i] + 1e-9
    # More failures never lower it as long as the penalty is above the plain quantile.
    if histogram.quantile(VLLM, counts, q).value <= 30.0:
        more = histogram.quantile(VLLM, counts, q, failures=n + 1).value
        assert more >= got - 1e-9


@given(ttfts, st.floats(0.001, 2560.0))
def test_attainment_at_a_bound_equals_counting(values, limit):
    bound = VLLM[min(bisect_left(VLLM, limit), len(VLLM) - 1)]
    share = sum(v <= bound for v in values) / len(values)
    assert histogram.attainment(VLLM, buckets(values), bound).value == pytest.approx(share)
