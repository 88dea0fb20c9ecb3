"""The model-based policy: what it wishes, what holds it back, and that a person can read it."""

from dataclasses import replace

import numpy as np
import pytest

from autoscaler import policy_file, profiles
from autoscaler.errors import ConfigError
from autoscaler.model import Capabilities, Resize, Signal, SignalStatus, Slo, Tristate, WidthStatus
from autoscaler.policies import model_based
from autoscaler.policies.model_based import Params
from autoscaler.ports import PolicyContext
from autoscaler.scenario import Scenario
from autoscaler.sim.score import score
from autoscaler.testing import check_policy, observation
from autoscaler.traces import RateProfile, synth
from autoscaler.wiring.simulated import Run, play, resize_model

CAN = Capabilities(2, 16, can_shrink=Tristate.YES, pause_s=0.82)
TCP = "h100-dsv2lite-elastic-ep-tcp"
H200 = "h200-dsv2lite-shape-elastic-ep"


def policy(profile="assumed-wide", slo=None, **params):
    context = PolicyContext(slo or Slo(), 5.0, profiles.load(profile))
    return model_based.build(Params(**params), context)


def seen(tick, width, rps, queue=0.0, can=CAN, **more):
    """A tick at a steady width; the engine holds what it holds at such a load, or is full."""
    signals = {
        "arrival_rps": rps,
        "completion_rps": rps,
        "queue_depth": queue,
        "running": min(2.6 * (rps or 0.0), 16.0 * width),
        "prompt_tokens_mean": 1024.0,
        "output_tokens_mean": 256.0,
        "ttft_p95_s": 0.3,
        **more,
    }
    return observation(tick, 1_000.0 + 5.0 * tick, width, can, signals=signals)


def run(made, width, rates, **more):
    """The proposals, one a rate."""
    return [made.propose(seen(i, width, rps, **more)) for i, rps in enumerate(rates)]


def test_without_a_profile_it_says_what_to_do():
    with pytest.raises(ConfigError, match=r"profile: must be given .*calibrate"):
        model_based.build(Params(), PolicyContext(Slo(), 5.0))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lead_s", 0.0),
        ("quantile", 1.0),
        ("quantile", 0.4),
        ("wait_ratio", 0.0),
        ("correction_gain", 1.5),
        ("down_margin_ratio", 1.0),
        ("dwell_s", -1.0),
        ("breach_cost_ratio", float("nan")),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=rf"^{key}: must be a finite number"):
        Params(**{key: value})


@pytest.mark.parametrize("profile", ["assumed-wide", TCP, "gb200-ramp-13"])
def test_contract(profile):
    width = profiles.load(profile).known_widths[0]
    context = PolicyContext(Slo(), 5.0, profiles.load(profile))
    check_policy(lambda: policy_file.load("model_based").build(context), width)


def test_a_demand_that_fits_is_left_alone():
    said = run(policy(), 4, [17.0] * 60)
    assert {p.width for p in said} == {4}
    assert said[-1].code == "steady"


def test_a_ramp_is_met_before_the_width_is_full():
    said = run(policy(), 4, [10.0 + 0.15 * i for i in range(80)])
    grown = next(i for i, p in enumerate(said) if p.width > 4)
    # 20 requests/s fill width 4; a resize takes 120 s, 24 ticks, in which 3.6 more come.
    assert 10.0 + 0.15 * grown < 19.0
    assert said[grown].code == "demand_ahead"


def test_the_reason_tells_what_was_seen_expected_and_chosen():
    said = run(policy(), 4, [10.0 + 0.15 * i for i in range(80)])
    reason = next(p.reason for p in said if p.width > 4)
    for part in ("rps now", "expected in 120 s", "width 4 bears", "waiting", "width 5 bears"):
        assert part in reason
    # What was seen, what staying would lead to, and what the choice does.
    assert "p95 TTFT 0.3 s now" in reason
    assert "s then; width 5" in reason
    assert reason.count("p95 TTFT") == 2


def test_a_rise_in_the_first_minutes_is_no_reason_for_what_interrupts():
    can = replace(CAN, pause_s=60.0)
    said = run(policy(), 4, [14.0 + 0.1 * i for i in range(50)], can=can)
    early = next(p for p in said if p.code == "confirming")
    assert "too short a history" in early.reason
    assert {p.width for p in said} == {4}


def test_on_a_rise_nothing_is_given_back():
    said = run(policy(), 9, [28.0 + 0.1 * i for i in range(80)])
    # Width 8 bears 39, and would be left again within ten minutes.
    assert {p.width for p in said} == {9}


def resized(made, tick, before, after):
    """The tick in which a resize is in flight."""
    obs = seen(tick, before, 30.0)
    made.propose(replace(obs, resize=Resize(before, after, obs.now_s)))


@pytest.mark.parametrize(("budget", "width"), [(4, 8), (2, 10), (None, 8)])
def test_the_last_change_of_direction_of_an_hour_is_kept_for_growth(budget, width):
    made = model_based.build(
        Params(spare_widths=0.0),
        PolicyContext(Slo(), 5.0, profiles.load("assumed-wide"), max_reversals_per_hour=budget),
    )
    rates = [48.0] * 40 + [30.0] * 20
    for tick, rps in enumerate(rates):
        made.propose(seen(tick, 10, rps))
    for tick, (before, after) in enumerate([(10, 9), (9, 10)], len(rates)):
        resized(made, tick, before, after)  # down and up: one change of direction
    said = [made.propose(seen(tick, 10, 30.0)) for tick in range(62, 180)]
    assert said[-1].width <= width
    assert (said[-1].width == 10) is (budget == 2)


def test_a_step_of_demand_is_met_by_several_widths_at_once():
    said = run(policy(), 4, [12.0] * 40 + [20.0, 28.0, 36.0] + [45.0] * 6)
    assert max(p.width for p in said) >= 9


def test_a_burst_of_long_prompts_is_met_by_its_backlog_before_any_ttft_tells_T23():
    # 1 -> 8 requests/s of 8,000 tokens, of which 4.5 are served: 3.5 a second wait.
    made, tokens = policy(), {"prompt_tokens_mean": 8000.0}
    run(made, 2, [1.0] * 60, **tokens)
    grown = None
    for tick in range(6):
        burst = seen(60 + tick, 2, 8.0, queue=3.5 * 5 * (tick + 1), **tokens, completion_rps=4.5,
                     running=32.0, ttft_p95_s=0.4)  # fmt: skip
        grown = made.propose(burst)
        if grown.width > 2:
            break
    assert grown.width > 2
    assert tick < 3  # 52 waiting are 12 s of work; the first of them would be seen after 5 s
    assert "waiting" in grown.reason


def test_a_demand_that_has_just_jumped_is_looked_at_once_more():
    made = policy()
    run(made, 4, [18.0] * 60)
    first = made.propose(seen(60, 4, 30.0, queue=50.0))
    assert (first.width, first.code) == (4, "confirming")
    assert made.propose(seen(61, 4, 42.0, queue=150.0)).width > 4


def test_a_fall_is_followed_when_the_narrower_width_is_safe():
    said = run(policy(), 8, [30.0] * 30 + [12.0] * 60)
    assert said[-1].code == "demand_fits"
    assert 3 <= said[-1].width <= 5


def test_idle_goes_to_the_least_width():
    none = Signal(None, SignalStatus.NO_OBSERVATIONS)
    made = policy()
    run(made, 4, [5.0] * 20)
    said = [made.propose(seen(20 + i, 4, 0.0, ttft_p95_s=none)) for i in range(60)]
    assert said[-1].width == 2


def test_no_shrink_begins_on_missing_data():
    made = policy()
    said = run(made, 8, [10.0] * 60, ttft_p95_s=None)
    assert {p.width for p in said} == {8}
    assert "p95 TTFT unknown" in said[-1].reason


def test_a_lost_scrape_does_not_take_a_wish_back():
    # It would restart the guards' window: with one scrape in five lost nothing ever shrank.
    made = policy()
    wish = run(made, 8, [12.0] * 60)[-1].width
    assert wish < 8
    lost = made.propose(seen(60, 8, None, queue=None, ttft_p95_s=None))
    assert (lost.width, lost.code) == (wish, "unknown")


def test_data_lost_for_long_does():
    made = policy()
    run(made, 8, [12.0] * 60)
    lost = [made.propose(seen(60 + i, 8, None, queue=None, ttft_p95_s=None)) for i in range(80)]
    assert lost[-1].width == 8


@pytest.mark.parametrize("profile", [TCP, H200])
def test_it_refuses_to_widen_where_that_loses_throughput_and_says_why_A35(profile):
    known = profiles.load(profile).known_widths
    can = Capabilities(known[0], known[-1], can_shrink=Tristate.YES)
    said = run(policy(profile), known[0], [9.0] * 60, queue=200.0, can=can)
    assert {p.width for p in said} == {known[0]}
    assert said[-1].code == "widening_does_not_help"
    assert "of the wider ones" in said[-1].reason
    assert "bears most" in said[-1].reason


def test_an_infeasible_objective_gets_the_best_width_and_is_called_so_A32():
    said = run(policy(), 4, [300.0] * 40, queue=5_000.0)
    assert (said[-1].width, said[-1].code) == (16, "slo_infeasible")
    assert "no width holds it" in said[-1].reason
    said = run(policy(), 16, [300.0] * 40, queue=5_000.0)
    assert (said[-1].width, said[-1].code) == (16, "slo_infeasible")


def test_during_a_resize_it_waits():
    made = policy()
    run(made, 4, [17.0] * 30)
    obs = replace(seen(30, 4, 60.0, queue=900.0), resize=Resize(4, 6, 1_140.0))
    assert (made.propose(obs).width, made.propose(obs).code) == (6, "resizing")


def test_growth_where_nothing_is_known_but_the_pain():
    unknown = {"arrival_rps": None, "running": None, "prompt_tokens_mean": None}
    said = run(policy("gb200-ramp-13"), 16, [None] * 5, queue=900.0, **unknown)
    assert said[-1].code in ("hurts_unmodelled", "unknown")
    assert said[-1].width >= 16


@pytest.mark.parametrize("can_shrink", [Tristate.NO, Tristate.YES])
def test_what_cannot_be_taken_back_is_not_done_for_a_forecast_error(can_shrink):
    can = replace(CAN, can_shrink=can_shrink)
    noisy = np.random.default_rng(3).normal(17.5, 2.0, 200)
    widest = max(p.width for p in run(policy(), 4, noisy.tolist(), can=can))
    assert widest == 4 or can_shrink is Tristate.YES


def test_a_target_that_cannot_shrink_is_widened_for_what_lasts():
    can = replace(CAN, can_shrink=Tristate.NO)
    said = run(policy(), 4, [15.0 + 0.1 * i for i in range(80)], can=can)
    assert max(p.width for p in said) > 4


def test_where_a_resize_interrupts_it_is_wider_and_a_shrink_has_to_pay_for_it():
    pausing = replace(CAN, pause_s=58.0)
    rates = [12.0 + 0.1 * i for i in range(100)]
    brief, long = (max(p.width for p in run(policy(), 4, rates, can=c)) for c in (CAN, pausing))
    assert long > brief
    quiet = [33.0] * 60
    assert run(policy(), 8, quiet)[-1].width == 7
    assert run(policy(), 8, quiet, can=pausing)[-1].width == 8


def test_only_permitted_widths_are_wished_for():
    can = replace(CAN, valid_widths=(2, 4, 8, 16))
    said = run(policy(), 4, [12.0] * 30 + [30.0] * 10, can=can)
    assert {p.width for p in said} <= {2, 4, 8, 16}


def test_the_lead_time_is_learned_from_a_growth():
    made = policy()
    run(made, 4, [17.0] * 10)
    made.propose(replace(seen(10, 4, 17.0), resize=Resize(4, 6, 1_050.0)))
    made.propose(replace(seen(40, 6, 17.0), width=WidthStatus(6, 6, 6)))
    assert made.state()["lead_s"] == 150.0


def simulated(rates, width, believed=None):
    """A run against the simulated fleet; ``believed``: the profile that the policy goes by."""
    trace = synth(rates, np.random.default_rng(1))
    scenario = Scenario(profile=("assumed-wide",), resize="elastic-nixl")
    choice = policy_file.load("model_based")
    wrong = None if believed is None else profiles.load(believed)
    run = Run(profiles.load("assumed-wide"), choice, width, 2, 16, believed=wrong)
    fleet, _ = play(scenario, trace, run, resize_model("elastic-nixl"))
    return score(fleet, scenario.slo)


def ramp():
    return RateProfile.ramp(12.0, 48.0, duration_s=1800.0)


def test_a_ramp_is_served_within_the_objective_at_little_more_than_it_takes():
    entry = simulated(ramp(), 4)
    assert entry["slo"]["windows_ok_ratio"] >= 0.99
    # The least width at each moment, from a lead time earlier on: 3.35 GPU-hours.
    assert entry["gpu_hours"] < 1.15 * 3.5
    assert entry["resizes"]["reversals"] <= 1


@pytest.mark.parametrize("believed", ["assumed-wide@0.7", "assumed-wide@1.3"])
def test_a_profile_that_is_wrong_by_a_third_is_corrected_in_time(believed):
    entry = simulated(ramp(), 4, believed)
    assert entry["slo"]["windows_ok_ratio"] >= 0.98


def test_a_constant_load_is_left_in_peace():
    entry = simulated(RateProfile.constant(38.0, 2400.0), 9)
    assert entry["resizes"]["reversals"] == 0
    assert entry["slo"]["windows_ok_ratio"] == 1.0


def test_it_says_what_a_width_bears_once_it_knows_the_mix():
    made = policy()
    assert made.capacity_rps(4) is None
    run(made, 4, [4.0] * 12)
    bears = [made.capacity_rps(width) for width in (4, 8)]
    assert 0 < bears[0] < bears[1]
    assert made.capacity_rps(1000) is None
