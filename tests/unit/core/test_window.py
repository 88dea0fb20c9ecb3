"""Rolling windows; rows W and K23 are the behaviour of HPA and Knative."""

# test names carry case ids

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.window import RollingMax, RollingMin, RollingPercentile, elapsed


@pytest.mark.parametrize(
    ("row", "window_s", "aged", "new", "expected"),
    [
        ("W1", 300, [], 5, 5),
        ("W2", 300, [(120, 4), (60, 5)], 3, 5),
        ("W3", 300, [(120, 1), (60, 2)], 3, 3),
        ("W4", 300, [(600, 10), (540, 9)], 3, 3),
        ("W5", 300, [(600, 10), (540, 9), (120, 5), (60, 4)], 3, 5),
        ("W6", 180, [(120, 4), (60, 5)], 3, 5),
        ("W10", 300, [(120, 4), (60, 5)], 3, 5),
        ("W11", 0, [(120, 4), (60, 5)], 100, 100),
    ],
)
def test_maximum_of_recommendations(row, window_s, aged, new, expected):
    window = RollingMax(window_s)
    for age, value in aged:
        window.add(1000.0 - age, value)
    window.add(1000.0, new)
    assert window.value(1000.0) == expected, row


@pytest.mark.parametrize(
    ("row", "aged", "new", "expected"),
    [
        ("W7", [(120, 4), (60, 5)], 7, 4),
        ("W8", [(6000, 10), (180, 9), (120, 5), (60, 6)], 100, 5),
    ],
)
def test_minimum_of_recommendations(row, aged, new, expected):
    window = RollingMin(300)
    for age, value in aged:
        window.add(10_000.0 - age, value)
    window.add(10_000.0, new)
    assert window.value(10_000.0) == expected, row


def test_K23_timed_maximum():
    window = RollingMax(5)
    seen = []
    for at_s, value in [(0, 5), (1, 6), (1.5, 5), (2.5, 5), (2.6, 8), (8.6, 4)]:
        window.add(at_s, value)
        seen.append(window.value(at_s))
    assert seen == [5, 6, 6, 6, 8, 4]


def test_a_sample_on_the_border_is_in_exactly_one_of_two_adjacent_windows_G38():
    for at_s in (0.001, 9.999, 10.0, 15.0, 20.0):
        seen = 0
        for end_s in (10.0, 20.0, 30.0):
            if at_s <= end_s:
                window = RollingMax(10)
                window.add(at_s, 1)
                seen += window.value(end_s) is not None
        assert seen == 1, at_s


def test_empty_and_cleared_windows_are_none():
    window, lowest, share = RollingMax(5), RollingMin(5), RollingPercentile(5)
    assert window.value(0) is lowest.value(0) is share.value(0, 0.5) is None
    window.add(0, 1)
    lowest.add(0, 1)
    window.clear()
    lowest.clear()
    assert window.value(0) is lowest.value(0) is None


def test_percentile_is_the_nearest_rank():
    window = RollingPercentile(60)
    for i in range(20):
        window.add(float(i), i + 1)
    assert window.value(19.0, 0.95) == 19
    assert window.value(19.0, 1.0) == 20
    assert window.value(61.5, 0.95) == 20
    assert len(window) == 18


def test_percentile_keeps_no_more_than_its_limit():
    window = RollingPercentile(60, limit=3)
    for value in (9, 1, 2, 3):
        window.add(0.0, value)
    assert window.value(0.0, 1.0) == 3


samples = st.lists(st.tuples(st.integers(0, 40), st.integers(-9, 9)), min_size=1, max_size=60)


@given(samples, st.integers(1, 20), st.integers(-100_000, 100_000))
def test_extremes_equal_a_scan_at_any_clock_offset(steps, window_s, offset):
    highest, lowest, now, kept = RollingMax(window_s), RollingMin(window_s), 0.0, []
    for step, value in steps:
        now += step * 0.1
        highest.add(now + offset, value)
        lowest.add(now + offset, value)
        kept.append((now, value))
        inside = [v for at, v in kept if now - at < window_s - 1e-6]
        assert highest.value(now + offset) == max(inside)
        assert lowest.value(now + offset) == min(inside)


def test_elapsed_forgives_rounding():
    assert elapsed(0.1, 0.3, 0.2)
    assert not elapsed(0.0, 9.9, 10.0)
