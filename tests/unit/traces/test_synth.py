import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.errors import ConfigError
from autoscaler.traces import Lengths, RateProfile, Trace, arrivals, stats, synth


def rng(seed=1):
    return np.random.default_rng(seed)


def test_the_ramp_of_the_published_study_lasts_949_and_a_quarter_seconds():
    ramp = RateProfile.ramp(8, 16, requests=11_391)
    assert ramp.duration_s == 949.25
    assert ramp.mean_requests == 11_391
    at_s = arrivals(ramp, rng(), cv=0)
    assert len(at_s) == 11_391
    # The k-th arrival is where the integral 8 t + (8 / 949.25) t² / 2 reaches k.
    slope = 8 / 949.25
    np.testing.assert_allclose(8 * at_s + slope * at_s**2 / 2, np.arange(11_391), atol=1e-9)
    assert ramp.times_s(np.array([11_391.0])) == [949.25]
    assert np.diff(at_s)[[0, -1]] == pytest.approx([1 / 8, 1 / 16], rel=1e-3)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_the_rate_and_its_variability_are_those_asked_for(cv):
    summary = stats(synth(RateProfile.constant(50, 4000), rng(), cv=cv))
    assert summary.requests == pytest.approx(200_000, rel=0.03)
    assert summary.inter_arrival_cv == pytest.approx(cv, rel=0.03)


@pytest.mark.parametrize("cv", [0, 1, 2])
def test_an_exact_count_is_kept_inside_the_profile(cv):
    at_s = arrivals(RateProfile.ramp(1, 9, duration_s=100), rng(), cv=cv, requests=777)
    assert len(at_s) == 777
    assert at_s.min() >= 0
    assert at_s.max() < 100
    assert np.count_nonzero(at_s < 50) == pytest.approx(777 * 0.3, abs=40)


def test_equal_seeds_give_equal_traces():
    make = lambda seed: synth(  # noqa: E731
        RateProfile.constant(10, 100), rng(seed), prompt=Lengths(100, 1), output=Lengths(50, 0.5)
    )
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(make(5), name), getattr(make(5), name))
    assert not np.array_equal(make(5).arrival_s[:20], make(6).arrival_s[:20])


def test_steps_hold_their_rates_and_a_rate_of_zero_makes_nothing():
    steps = RateProfile.steps([(10, 5), (0, 20), (40, 5)])
    at_s = arrivals(steps, rng(), cv=0)
    assert len(at_s) == 250
    assert np.histogram(at_s, [0, 5, 25, 30])[0].tolist() == [50, 0, 200]


def test_a_curve_holds_each_rate_to_the_next_row_and_the_last_as_long_as_the_one_before():
    curve = RateProfile.curve(np.array([100.0, 110.0, 130.0]), np.array([1.0, 2.0, 3.0]), scale=10)
    assert (curve.duration_s, curve.mean_requests) == (50, 100 + 400 + 600)
    cut = curve.clipped(5, 10)
    assert cut.edges_s.tolist() == [105, 110, 115]
    assert cut.mean_requests == 50 + 100


@given(
    pieces=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0.01, 1000)),
        min_size=1,
        max_size=8,
    ),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    cut=st.tuples(st.floats(0, 0.9), st.floats(0.01, 1)),
)
@settings(deadline=None)
def test_times_invert_the_cumulative_rate(pieces, shares, cut):
    edges = np.concatenate(([0.0], np.cumsum([p[2] for p in pieces])))
    profile = RateProfile(edges, np.array([p[0] for p in pieces]), np.array([p[1] for p in pieces]))
    mean = profile.mean_requests
    counts = np.sort(np.array(shares)) * mean
    times = profile.times_s(counts)
    assert np.all(np.diff(times) >= 0)
    reached = np.array([profile.clipped(0, t).mean_requests if t > 0 else 0 for t in times])
    np.testing.assert_allclose(reached, counts, rtol=1e-6, atol=1e-6 * max(mean, 1))
    start_s, duration_s = cut[0] * profile.duration_s, cut[1] * profile.duration_s
    part = profile.clipped(start_s, duration_s)
    assert 0 <= part.mean_requests <= mean * (1 + 1e-9)


def test_lognormal_lengths_have_their_mean_and_cv_and_a_cap():
    drawn = Lengths(500, 0.8).draw(400_000, rng())
    assert drawn.dtype == np.int32
    assert drawn.mean() == pytest.approx(500, rel=0.01)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8, rel=0.02)
    capped = Lengths(500, 0.8, cap=600).draw(10_000, rng())
    assert (capped.max(), capped.min()) == (600, pytest.approx(50, abs=49))
    assert Lengths(2, 3).draw(1000, rng()).min() == 1
    assert set(Lengths(700, cap=600).draw(5, rng())) == {600}


def test_lengths_of_another_trace_are_drawn_in_pairs():
    other = Trace(np.zeros(3), np.array([1, 2, 3], np.int32), np.array([10, 20, 30], np.int32))
    made = synth(RateProfile.constant(10, 100), rng(), lengths_of=other)
    assert np.array_equal(made.output_tokens, made.prompt_tokens * 10)
    assert set(made.prompt_tokens) == {1, 2, 3}
    assert (made.format, made.paths) == ("synthetic", ())
    assert made.arrival_s[0] == 0


@pytest.mark.parametrize(("make", "rule"), [
    (lambda: RateProfile.constant(-1, 10), "rate: must be from 0"),
    (lambda: RateProfile.constant(float("nan"), 10), "finite"),
    (lambda: RateProfile.constant(1, 0), "duration_s: must be above 0"),
    (lambda: RateProfile.ramp(1, 2), "either duration_s or requests"),
    (lambda: RateProfile.ramp(0, 0, requests=5), "mean rate above 0"),
    (lambda: RateProfile.steps([]), "one or more pieces"),
    (lambda: RateProfile.curve(np.zeros(1), np.ones(1)), "at least two rows"),
    (lambda: RateProfile.curve(np.arange(2.0), np.ones(2), 0), "rate_scale: .*; got 0"),
    (lambda: RateProfile.constant(1, 9).clipped(9, None), "start_s: must be before the end"),
    (lambda: arrivals(RateProfile.constant(1, 9), rng(), cv=-1), "cv: must be from 0 to 100"),
    (lambda: arrivals(RateProfile.constant(1, 9), rng(), requests=0), "requests: must be from 1"),
    (lambda: arrivals(RateProfile.constant(1e9, 9), rng()), "at most 250,000,000 requests"),
    (lambda: arrivals(RateProfile.constant(0, 9), rng()), "above 0 somewhere"),
    (lambda: synth(RateProfile.constant(1e-9, 9), rng()), "at least one request; got none"),
    (lambda: Lengths(0), "tokens: must be above 0"),
    (lambda: Lengths(1, -1), "tokens cv: must be from 0"),
    (lambda: Lengths(1, 1, 0), "max tokens: must be from 1"),
])  # fmt: skip
def test_values_out_of_range_are_refused(make, rule):
    with pytest.raises(ConfigError, match=rule):
        make()
