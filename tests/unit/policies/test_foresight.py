"""What the model-based policy looks ahead with: forecast, backlog, curves, correction, lead."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler import profiles
from autoscaler.engine.capacity import Criterion, capacity_rps
from autoscaler.foresight.backlog import after, breach_s, drain_s
from autoscaler.foresight.correction import Correction
from autoscaler.foresight.curves import SHARES, Curves, Mix
from autoscaler.foresight.forecast import Forecast
from autoscaler.foresight.lead import Hold, LeadTime
from autoscaler.foresight.mix import MixTracker
from autoscaler.foresight.sizing import Bears, Growth, cheapest
from autoscaler.foresight.trend import Line
from autoscaler.model import Metrics, Resize, Signal, Slo, WidthStatus
from autoscaler.testing import observation

MIX = Mix(1024.0, 256.0)


def curves(name="assumed-wide", slo=None):
    return Curves(profiles.load(name), slo or Slo(), 0.6, extrapolate=False)


def integrated(queue, line, capacity_rps, until_s, step_s=0.01):
    t = 0.0
    while t < until_s:
        rps = line.level_rps + line.slope_rps_per_s * (t + step_s / 2)
        queue = max(queue + (rps - capacity_rps) * step_s, 0.0)
        t += step_s
    return queue


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0, 100), st.floats(1, 30), st.floats(-0.2, 0.2), st.floats(1, 30), st.floats(1, 60)
)
def test_the_backlog_agrees_with_integration(queue, level, slope, capacity, ahead_s):
    if level + slope * ahead_s < 0:
        return  # demand is not negative; the closed form does not clip it
    line = Line(level, slope)
    expected = integrated(queue, line, capacity, ahead_s)
    assert after(queue, line, capacity, ahead_s) == pytest.approx(expected, rel=0.02, abs=0.6)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 100), st.floats(1, 30), st.floats(-0.05, 0.2), st.floats(1, 30), st.floats(1, 200)
)
def test_the_breach_is_when_the_backlog_reaches_the_limit(queue, level, slope, capacity, limit):
    line = Line(level, slope)
    at_s = breach_s(queue, line, capacity, limit)
    if at_s == 0:
        assert queue >= limit
    elif at_s < 100 and level + slope * at_s >= 0:
        assert after(queue, line, capacity, at_s) == pytest.approx(limit, rel=1e-3, abs=1e-2)


def forecast(quantile=0.9):
    return Forecast(30.0, quantile, 3600.0, 0.05)


def feed(made, rate, until_s, seed=None, start_s=5.0):
    """Samples of a rolling window of 30 s each 5 s; ``rate`` of time; exact or Poisson."""
    rng = np.random.default_rng(seed)
    per_s = [rate(t + 0.5) for t in range(int(until_s))]
    arrived = np.array(per_s if seed is None else rng.poisson(per_s), float)
    summed = np.concatenate(([0.0], np.cumsum(arrived)))
    for now in np.arange(max(start_s, 5.0), until_s + 1e-9, 5.0):
        span = min(now, 30.0)
        made.add(float(now), float(summed[int(now)] - summed[int(now - span)]) / span, 105.0)
    return made


def test_a_constant_demand_is_foretold_as_it_is():
    line = feed(forecast(), lambda _: 20.0, 600).line
    assert line.at(105.0) == pytest.approx(20.0, rel=1e-6)


def test_a_ramp_is_foretold_a_lead_time_ahead_through_poisson_noise():
    misses = [
        feed(forecast(), lambda t: 10 + 0.03 * t, 900, seed).line.at(105.0) / (10 + 0.03 * 1005) - 1
        for seed in range(8)
    ]
    assert abs(np.mean(misses)) < 0.03
    assert max(abs(m) for m in misses) < 0.12


def test_a_step_is_taken_for_a_step_and_not_for_a_slope():
    made = feed(forecast(), lambda t: 10.0 if t < 600 else 40.0, 620, seed=1)
    assert made.line.level_rps == pytest.approx(40.0, rel=0.25)
    assert made.line.at(105.0) < 60.0


def test_a_demand_that_runs_out_is_never_foretold_below_zero_T20():
    made = forecast()
    for i, rps in enumerate((100.0, 80.0, 60.0, 40.0, 20.0, 10.0, 0.0, 0.0)):
        made.add(5.0 * (i + 1), rps, 105.0)
        assert made.line.level_rps >= 0.0
        assert min(made.line.at(ahead_s) for ahead_s in (0.0, 5.0, 105.0, 1e6)) >= 0.0
    assert made.line.at(105.0) == 0.0
    assert made.error_rps >= 0.0


def test_misses_of_both_signs_do_not_make_a_good_forecast_T21():
    # Up for a lead time, down for a lead time: on average the forecast is right, and never is.
    steady = feed(forecast(0.95), lambda _: 20.0, 3600)
    waves = feed(forecast(0.95), lambda t: 30.0 if int(t) // 105 % 2 else 10.0, 3600)
    assert steady.error_rps < 0.5
    assert waves.error_rps > 2.0


def test_one_sample_far_off_is_a_surprise_and_no_step_yet():
    made = feed(forecast(), lambda _: 10.0, 600)
    made.add(605.0, 40.0, 105.0)
    assert made.surprised


def test_bursts_that_come_again_are_remembered():
    made = feed(forecast(), lambda t: 40.0 if t % 600 > 500 else 10.0, 2400, seed=2)
    assert made.recurring_rps(2400.0) > 35.0
    assert feed(forecast(), lambda _: 10.0, 2400, seed=2).recurring_rps(2400.0) == 0.0


def test_the_error_never_lifts_the_highest_demand_seen_by_much():
    made = feed(forecast(0.95), lambda t: 40.0 if t % 600 > 300 else 5.0, 2700, seed=3)
    assert made.line.level_rps + made.error_rps < 1.2 * 45.0


def test_irregular_arrivals_show_in_the_dispersion():
    rng = np.random.default_rng(0)
    made = forecast()
    smooth = feed(forecast(), lambda _: 20.0, 1800, seed=0).dispersion
    for i in range(1, 360):
        made.add(5.0 * i, float(rng.normal(20.0, 3.0)), 105.0)
    assert smooth < 2.0 < made.dispersion


def test_a_clock_that_goes_back_starts_the_forecast_anew():
    made = feed(forecast(), lambda _: 20.0, 600)
    made.add(100.0, 5.0, 105.0)
    assert made.line.level_rps == pytest.approx(5.0)


@pytest.mark.parametrize("width", [2, 8])
def test_the_capacity_is_that_of_an_open_loop_search(width):
    found = curves()
    assert found.refine([width], MIX, 10)
    curve = found.curve(width, MIX)
    prompt, output = found.lengths(MIX, 61)
    searched = capacity_rps(
        found.physics(width), prompt, output, criterion=Criterion(duration_s=900.0)
    )
    assert curve.bearable_rps == pytest.approx(searched, rel=0.06)
    assert list(curve.in_system) == sorted(curve.in_system)


def test_over_tcp_wider_bears_less_A35():
    found = curves("h100-dsv2lite-elastic-ep-tcp")
    found.refine([2, 3, 4], MIX, 10)
    bearable = [found.curve(w, MIX).bearable_rps for w in (2, 3, 4)]
    assert bearable == sorted(bearable, reverse=True)


def test_an_itl_objective_bounds_what_is_bearable():
    # h100 RDMA, width 2: a step with a prompt takes 62 ms and more.
    name = "h100-dsv2lite-elastic-ep-rdma"
    free, bound = curves(name), curves(name, Slo(itl_p95_s=0.02))
    for found in (free, bound):
        found.refine([2], MIX, 10)
    assert bound.curve(2, MIX).bearable_rps < 0.8 * free.curve(2, MIX).bearable_rps


def test_a_ttft_objective_that_no_load_meets_leaves_nothing_to_bear():
    found = curves(slo=Slo(ttft_p95_s=0.001))
    found.refine([2], MIX, 10)
    assert found.curve(2, MIX).bearable_rps == 0.0


def test_capacities_between_grid_points_lie_between_theirs():
    found = curves()
    rps = []
    for output in (256.0, 300.0, 384.0):
        mix = Mix(1024.0, output)
        found.refine([4], mix, 10)
        rps.append(found.curve(4, mix).capacity_rps)
    assert rps == sorted(rps, reverse=True)
    assert rps[1] * 300 == pytest.approx(rps[0] * 256, rel=0.06)


def test_plays_are_rationed_and_unplayed_widths_unknown():
    found = curves()
    assert not found.refine([2, 3, 4], MIX, 1)
    assert found.curve(2, MIX) is not None
    assert found.curve(3, MIX) is None


def test_widths_beyond_the_profile_are_not_known_unless_asked_for():
    assert not curves().knows(17)
    assert Curves(profiles.load("assumed-wide"), Slo(), 0.6, extrapolate=True).knows(17)


@pytest.mark.parametrize("truth", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_the_profile_is_corrected_by_what_is_in_the_system(truth, share):
    found = curves()
    found.refine([4], MIX, 10)
    curve = found.curve(4, MIX)
    at = np.interp(share, (0, *SHARES, 1), (0, *curve.in_system, curve.slots))
    metrics = Metrics(
        30.0,
        arrival_rps=Signal(truth * share * curve.capacity_rps),
        queue_depth=Signal(0.0),
        running=Signal(float(at)),
    )
    correction = Correction(0.03)
    for i in range(200):
        correction.observe(5.0 * i, 4, metrics, curve)
    assert correction.factor == pytest.approx(truth, rel=0.05)


def test_while_requests_wait_all_the_time_completions_give_the_capacity():
    found = curves()
    found.refine([4], MIX, 10)
    curve = found.curve(4, MIX)
    metrics = Metrics(
        30.0,
        arrival_rps=Signal(50.0),
        queue_depth=Signal(400.0),
        running=Signal(64.0),
        completion_rps=Signal(0.8 * curve.capacity_rps),
    )
    correction = Correction(0.03)
    for i in range(200):
        correction.observe(5.0 * i, 4, metrics, curve)
    assert correction.factor == pytest.approx(0.8, rel=0.02)


def test_unknown_signals_correct_nothing():
    found = curves()
    found.refine([4], MIX, 10)
    correction = Correction(0.03)
    for i in range(50):
        correction.observe(5.0 * i, 4, Metrics(30.0), found.curve(4, MIX))
    assert correction.factor == 1.0


def test_mean_lengths_are_not_believed_while_the_engine_fills_up():
    # At the start of a run the tokens of 60 running requests were divided by 2 that had ended.
    tracker = MixTracker(60.0, 5.0, None)
    filling = Metrics(
        30.0,
        prompt_tokens_mean=Signal(1024.0),
        output_tokens_mean=Signal(4000.0),
        arrival_rps=Signal(8.0),
        completion_rps=Signal(0.5),
    )
    tracker.observe(10.0, filling)
    assert tracker.mix is None
    steady = replace(filling, output_tokens_mean=Signal(256.0), completion_rps=Signal(8.0))
    tracker.observe(40.0, steady)
    assert tracker.mix == Mix(1024.0, 256.0)


def status(obs, effective, resize):
    return replace(obs, width=WidthStatus(effective, effective, effective), resize=resize)


def test_the_slowest_of_the_last_growths_is_planned_with():
    lead = LeadTime(120.0)
    now_s = 0.0
    for took_s in (90.0, 100.0, 80.0):
        resize = Resize(2, 4, now_s)
        lead.observe(status(observation(0, now_s + 5), 2, resize))
        lead.observe(status(observation(1, now_s + took_s), 4, None))
        now_s += 1000.0
    assert lead.value_s == 100.0


def test_a_growth_that_failed_teaches_no_lead_time():
    lead = LeadTime(120.0)
    lead.observe(status(observation(0, 5.0), 2, Resize(2, 4, 0.0)))
    lead.observe(status(observation(1, 300.0), 2, None))
    assert lead.value_s == 120.0


@pytest.mark.parametrize("slope", [-0.05, 0.0, 0.02])
@pytest.mark.parametrize("spare", [-1.0, 2.0, 5.0])
def test_a_backlog_is_gone_when_the_sum_of_seconds_says_so(slope, spare):
    queue, limit, rate, step_s = 300.0, 50.0, 20.0, 0.05
    line, at_s = Line(rate - spare, slope), 0.0
    while queue > limit and at_s < 2000.0:
        queue += (line.at(at_s) - rate) * step_s
        at_s += step_s
    expected = at_s if at_s < 2000.0 else math.inf
    assert drain_s(300.0, line, rate, limit) == pytest.approx(expected, rel=0.01)


def test_what_is_seen_late_is_expected_to_have_gone_on_meanwhile():
    late, on_time = (Forecast(30.0, 0.9, 3600.0, 0.05) for _ in range(2))
    for i in range(120):
        on_time.add(5.0 * i, 10.0 + 0.02 * 5.0 * i, 100.0)
        late.add(5.0 * i, 10.0 + 0.02 * (5.0 * i - 40.0), 100.0, age_s=40.0)
    assert late.line.level_rps == pytest.approx(on_time.line.level_rps, abs=0.1)


def test_the_hold_of_the_guards_runs_down_while_less_is_wished_for():
    hold = Hold(300.0)
    hold.wished(3, 4, 100.0)
    hold.wished(3, 4, 120.0)
    assert hold.remaining_s(150.0) == 250.0
    assert hold.remaining_s(500.0) == 0.0
    hold.wished(4, 4, 400.0)
    assert hold.remaining_s(500.0) == 300.0


def growth(waiting, catch_up=20.0, slope=0.0):
    line = Line(20.0, slope)
    return Growth(waiting, line, line, 100.0, 0.0, 145.0, 400.0, catch_up)


BEARS = [Bears(w, 5.0 * w, 10.0 * w, 25.0 * w, 0.1) for w in range(4, 17)]


def test_the_least_width_that_lasts_is_chosen():
    assert cheapest(BEARS[1:], Bears(3, 15.0, 30.0, 75.0, 0.1), growth(0.0)).width >= 5
    steep = cheapest(BEARS[1:], BEARS[0], growth(0.0, slope=0.1))
    flat = cheapest(BEARS[1:], BEARS[0], growth(0.0, slope=0.01))
    assert flat.width < steep.width


def test_a_backlog_is_worth_more_width_T23():
    present = BEARS[0]
    few, many = (cheapest(BEARS[1:], present, growth(q)).width for q in (0.0, 2000.0))
    assert few < many


def test_where_no_width_lasts_there_is_none_to_choose():
    line = Line(500.0, 0.0)
    reckoned = Growth(0.0, line, line, 100.0, 0.0, 145.0, 400.0, 20.0)
    assert cheapest(BEARS[1:], BEARS[0], reckoned) is None
    assert math.isinf(breach_s(0.0, Line(1.0, 0.0), 2.0, 1.0))
