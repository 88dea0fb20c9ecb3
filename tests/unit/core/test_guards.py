"""Guards: one row a clamp, then what needs history."""

# test names carry case ids

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.errors import ConfigError
from autoscaler.guards import Guards, Params
from autoscaler.model import Capabilities, Proposal, Signal, SignalStatus, Tristate, WidthStatus
from autoscaler.testing import observation

CAN = Capabilities(1, 16, can_shrink=Tristate.YES)
LATTICE = replace(CAN, valid_widths=(2, 4, 8, 16))
FREE = {
    "cooldown_down_s": 0.0,
    "scale_down_window_s": 0.0,
    "settle_s": 0.0,
    "max_reversals_per_hour": None,
}
LATER_S = 100_000.0
NONE = Signal(None, SignalStatus.NO_OBSERVATIONS)


def warm(**params):
    """Guards with nothing but the named limits, past their warm-up."""
    guards = Guards(Params(**{**FREE, **params}))
    guards.remember(Proposal(0, "x", "x"), observation(now_s=0.0))
    return guards


def ask(guards, wish, width=4, can=CAN, now_s=LATER_S, **signals):
    obs = observation(now_s=now_s, width=width, capabilities=can, **signals)
    allowed, stages = guards.apply(Proposal(wish, "wish", "a wish"), obs)
    return allowed.width, [stage.code for stage in stages]


@pytest.mark.parametrize(
    ("params", "can", "width", "wish", "allowed", "codes"),
    [
        # bounds: H29 to H32, H34
        ({"min_width": 3, "max_width": 8}, CAN, 5, 7, 7, []),
        ({"min_width": 2, "max_width": 8}, CAN, 3, 1, 2, ["min_width"]),
        ({"min_width": 0, "max_width": 10}, replace(CAN, min_width=0), 1, 0, 0, []),
        ({"min_width": 1, "max_width": 10}, CAN, 20, 1000, 10, ["max_width"]),
        ({"min_width": 2}, CAN, 1, 1, 2, ["min_width"]),
        ({"max_width": 5}, CAN, 6, 6, 5, ["max_width"]),
        ({}, CAN, 4, 99, 16, ["max_width"]),
        ({}, CAN, 4, 10**18, 16, ["max_width"]),
        ({}, CAN, 4, -(10**400), 1, ["min_width"]),
        # not a number, infinite, not whole
        ({}, CAN, 4, math.nan, 4, ["non_finite"]),
        ({}, CAN, 4, np.float64("nan"), 4, ["non_finite"]),
        ({}, CAN, 4, math.inf, 16, ["saturated"]),
        ({}, CAN, 4, -math.inf, 1, ["saturated"]),
        ({}, CAN, 4, 1e18, 16, ["max_width"]),
        ({}, CAN, 4, 5.2, 6, []),
        ({}, CAN, 4, 2.2, 3, []),
        ({}, CAN, 4, np.int64(6), 6, []),
        # lattice: up rounds up, down rounds up, never below the wish
        ({}, LATTICE, 4, 5, 8, ["lattice"]),
        ({}, LATTICE, 8, 3, 4, ["lattice"]),
        ({}, LATTICE, 8, 5, 8, ["lattice"]),
        ({"max_width": 10}, LATTICE, 4, 9, 8, ["max_width"]),
        ({}, LATTICE, 3, 3, 3, []),
        ({"min_width": 3}, LATTICE, 4, 2, 4, ["min_width"]),
        ({"min_width": 9, "max_width": 15}, LATTICE, 4, 10, 4, ["nothing_permitted"]),
        # GPU budget
        ({"max_gpus": 12}, replace(CAN, gpus_per_width=2), 4, 8, 6, ["gpu_budget"]),
        ({"max_gpus": 12}, replace(LATTICE, gpus_per_width=2), 2, 8, 4, ["gpu_budget"]),
        ({"max_gpus": 7, "min_width": 4}, replace(CAN, gpus_per_width=2), 3, 5, 3, None),
        # step limit
        ({"max_step_up": 2}, CAN, 4, 9, 6, ["step_limit"]),
        ({"max_step_up": 2}, CAN, 4, 6, 6, []),
        ({"max_step_down": 3}, CAN, 9, 2, 6, ["step_limit"]),
        ({"max_step_up": 5}, LATTICE, 4, 16, 8, ["step_limit"]),
        ({"max_step_up": 1}, LATTICE, 4, 16, 8, ["step_limit"]),
        ({"max_step_down": 1}, LATTICE, 16, 2, 8, ["step_limit"]),
        ({"max_step_down": 13}, LATTICE, 16, 2, 4, ["step_limit"]),
        ({"max_step_up": 1, "min_width": 5}, CAN, 2, 2, 5, ["min_width"]),
        ({"max_step_down": 1, "max_width": 8}, CAN, 12, 3, 8, ["step_limit"]),
        # shrink support
        ({}, replace(CAN, can_shrink=Tristate.NO), 4, 2, 4, ["shrink_unsupported"]),
        ({}, replace(CAN, can_shrink=Tristate.UNKNOWN), 4, 2, 4, ["shrink_unsupported"]),
        ({"allow_shrink_attempt": True}, replace(CAN, can_shrink=Tristate.UNKNOWN), 4, 2, 2, []),
        (
            {"allow_shrink_attempt": True},
            replace(CAN, can_shrink=Tristate.NO),
            4,
            2,
            4,
            ["shrink_unsupported"],
        ),
        ({}, replace(CAN, can_shrink=Tristate.NO), 4, 6, 6, []),
    ],
)
def test_clamp_T18_G02_A22(params, can, width, wish, allowed, codes):
    got, said = ask(warm(**params), wish, width, can)
    assert got == allowed
    assert type(got) is int
    if codes is not None:
        assert said == codes


@pytest.mark.parametrize(
    ("signals", "shrinks"),
    [
        ({}, True),
        ({"ttft_p95_s": None}, False),
        ({"queue_depth": None}, False),
        ({"queue_depth": None, "ttft_p95_s": None}, False),
        ({"ttft_p95_s": Signal(None, SignalStatus.TOP_BUCKET, 2560.0)}, False),
        ({"ttft_p95_s": Signal(None, SignalStatus.FEW_SAMPLES)}, False),
        ({"ttft_p95_s": NONE, "arrival_rps": 0.0}, True),
        ({"ttft_p95_s": NONE, "arrival_rps": None, "ttft_observations": 0.0}, True),
        ({"ttft_p95_s": NONE, "arrival_rps": None, "queue_depth": 1.0}, False),
        ({"ttft_p95_s": NONE, "arrival_rps": 0.5}, False),
        ({"ttft_p95_s": NONE, "arrival_rps": 0.0, "running": 3.0}, False),
        ({"ttft_p95_s": None, "arrival_rps": None}, False),
    ],
)
def test_missing_data_never_shrinks_but_may_grow_M04_M18_M21_G10_G11(signals, shrinks):
    width, codes = ask(warm(), 2, **signals)
    assert (width, codes) == ((2, []) if shrinks else (4, ["missing_data"]))
    assert ask(warm(), 6, **signals) == (6, [])


def test_unknown_effective_width_never_shrinks_A19():
    obs = observation(now_s=LATER_S, width=4, capabilities=CAN)
    obs = replace(obs, width=WidthStatus(4, None, 4))
    allowed, stages = warm().apply(Proposal(2, "x", "x"), obs)
    assert (allowed.width, stages[-1].code) == (4, "missing_data")


def test_no_shrink_before_a_full_window_after_the_start_T11_M30_R8():
    guards = Guards(Params(**{**FREE, "scale_down_window_s": 300.0}))
    assert ask(guards, 2, now_s=0.0) == (4, ["warming_up"])
    assert ask(guards, 2, now_s=299.0) == (4, ["warming_up"])
    assert ask(guards, 6, now_s=299.5) == (6, [])
    guards = Guards(Params(**{**FREE, "scale_down_window_s": 300.0}))
    ask(guards, 2, now_s=0.0)
    assert ask(guards, 2, now_s=300.0) == (2, [])


def test_without_a_scale_down_window_the_metrics_window_has_to_fill_M26():
    guards = Guards(Params(**FREE))
    assert ask(guards, 2, now_s=0.0) == (4, ["warming_up"])
    assert ask(guards, 2, now_s=29.0) == (4, ["warming_up"])
    assert ask(guards, 2, now_s=30.0) == (2, [])


def test_scale_down_goes_no_lower_than_the_highest_wish_in_the_window():
    guards = warm(scale_down_window_s=300.0)
    assert ask(guards, 7, width=8, now_s=5_000.0) == (7, [])
    assert ask(guards, 2, width=8, now_s=5_100.0) == (7, ["scale_down_window"])
    assert ask(guards, 3, width=8, now_s=5_299.0) == (7, ["scale_down_window"])
    assert ask(guards, 2, width=8, now_s=5_300.0) == (3, ["scale_down_window"])
    assert ask(guards, 2, width=3, now_s=5_301.0) == (3, ["scale_down_window"])


def test_an_old_wish_that_is_no_longer_permitted_is_rounded_up_or_cut():
    guards = warm(scale_down_window_s=300.0)
    ask(guards, 5, width=8, now_s=5_000.0)
    assert ask(guards, 2, 16, LATTICE, now_s=5_100.0) == (8, ["scale_down_window"])
    assert ask(guards, 2, 6, LATTICE, now_s=5_105.0) == (6, ["scale_down_window"])
    assert ask(guards, 2, 9, replace(CAN, max_width=4), now_s=5_110.0) == (
        4,
        ["scale_down_window"],
    )


def test_wishes_during_a_resize_count_for_the_window():
    guards = warm(scale_down_window_s=300.0)
    guards.remember(Proposal(6, "x", "x"), observation(now_s=5_000.0, capabilities=CAN))
    assert ask(guards, 2, width=8, now_s=5_200.0) == (6, ["scale_down_window"])


def test_cooldowns_count_from_the_end_of_the_last_real_resize():
    guards = warm(cooldown_up_s=60.0, cooldown_down_s=300.0)
    guards.resized(2, 4, 1_000.0)
    guards.settled(1_180.0)
    assert ask(guards, 6, now_s=1_239.0) == (4, ["cooldown_up"])
    assert ask(guards, 6, now_s=1_240.0) == (6, [])
    assert ask(guards, 2, now_s=1_479.0) == (4, ["cooldown_down"])
    assert ask(guards, 2, now_s=1_480.0) == (2, [])


def test_asking_moves_no_timer_G28():
    guards = warm(cooldown_up_s=60.0)
    guards.resized(2, 4, 1_000.0)
    guards.settled(1_000.0)
    for now_s in range(1_005, 1_060, 5):
        assert ask(guards, 6, now_s=float(now_s))[1] == ["cooldown_up"]
    assert ask(guards, 6, now_s=1_060.0) == (6, [])


def test_metrics_settle_after_a_resize_A36_M26():
    guards = warm(settle_s=30.0)
    guards.resized(2, 4, 1_000.0)
    guards.settled(1_180.0)
    assert ask(guards, 6, now_s=1_205.0) == (4, ["settling"])
    assert ask(guards, 2, now_s=1_206.0) == (4, ["settling"])
    assert ask(guards, 6, now_s=1_210.0) == (6, [])
    eager = warm(settle_s=30.0, settle_holds_growth=False)
    eager.settled(1_180.0)
    assert ask(eager, 6, now_s=1_185.0) == (6, [])
    assert ask(eager, 2, now_s=1_186.0) == (4, ["settling"])


def test_reversals_are_budgeted_in_a_rolling_hour_T25_T06_A24():
    guards = warm(max_reversals_per_hour=2)
    for at_s, old, new in [(0, 2, 4), (600, 4, 2), (1200, 2, 4)]:
        guards.resized(old, new, float(at_s))
    assert ask(guards, 2, now_s=1_800.0) == (4, ["flap_budget"])
    assert ask(guards, 6, now_s=1_800.0) == (6, [])  # on in the same direction is no reversal
    assert ask(guards, 2, now_s=4_200.0) == (2, [])  # the first reversal is an hour old


def test_a_recovered_boot_is_no_direction():
    guards = warm(max_reversals_per_hour=1)
    guards.resized(2, 4, 0.0)
    guards.resized(4, 4, 10.0)
    guards.resized(4, 2, 20.0)
    assert ask(guards, 6, now_s=30.0) == (4, ["flap_budget"])


def test_after_a_failed_growth_anything_below_the_spec_is_a_decrease():
    obs = observation(now_s=LATER_S, capabilities=replace(CAN, can_shrink=Tristate.NO))
    obs = replace(obs, width=WidthStatus(8, 2, 2, failure="no capacity"))
    allowed, stages = warm().apply(Proposal(4, "x", "x"), obs)
    assert (allowed.width, stages[-1].code) == (2, "shrink_unsupported")
    assert warm().apply(Proposal(10, "x", "x"), obs)[0].width == 10


def test_where_nothing_serves_a_growth_smaller_than_the_failed_one_needs_no_ttft():
    guards = warm(settle_s=0.0, cooldown_down_s=0.0)
    silent = Signal(None, SignalStatus.NO_OBSERVATIONS)
    obs = observation(0, LATER_S, 0, CAN, ttft_p95_s=silent, queue_depth=50.0)
    obs = replace(obs, width=WidthStatus(8, 0, 0, failure="grow failed"))
    assert guards.apply(Proposal(2, "high", "wish"), obs)[0].width == 2


def test_a_clamped_growth_keeps_the_policys_code_and_a_hold_takes_the_guards():
    obs = observation(now_s=LATER_S, width=4, capabilities=CAN)
    wish = Proposal(9, "high", "it hurts")
    grown, _ = warm(max_step_up=1).apply(wish, obs)
    assert (grown.width, grown.code) == (5, "high")
    assert grown.reason == "it hurts; 9 is more than 1 away from 4"
    held, _ = warm(max_width=4).apply(wish, obs)
    assert (held.width, held.code) == (4, "max_width")


def test_reach_is_what_target_bounds_lattice_and_budget_leave():
    guards = Guards(Params(min_width=3, max_width=12, max_gpus=18))
    reach = guards.reach(replace(LATTICE, gpus_per_width=2))
    assert (reach.min_width, reach.max_width, reach.valid_widths) == (4, 8, (4, 8))
    assert guards.reach(CAN).max_width == 12
    empty = Guards(Params(min_width=9, max_width=15)).reach(LATTICE)
    assert empty.min_width > empty.max_width


@pytest.mark.parametrize(
    ("key", "bad", "rule"),
    [
        ("min_width", -1, "a whole number >= 0"),
        ("min_width", 1.5, "a whole number >= 0"),
        ("max_width", 0, "a whole number >= 1"),
        ("max_gpus", 0, "a whole number >= 1"),
        ("max_step_up", 0, "a whole number >= 1"),
        ("max_step_down", True, "a whole number >= 1"),
        ("cooldown_up_s", -1.0, "a finite number >= 0"),
        ("cooldown_down_s", math.inf, "a finite number >= 0"),
        ("scale_down_window_s", math.nan, "a finite number >= 0"),
        ("max_reversals_per_hour", 0, "a whole number >= 1"),
        ("settle_s", "30", "a finite number >= 0"),
    ],
)
def test_params_name_key_rule_and_value(key, bad, rule):
    with pytest.raises(ConfigError) as caught:
        Params(**{key: bad})
    assert str(caught.value) == f"guards.{key}: must be {rule}; got {bad!r}"


def test_a_step_is_counted_from_what_serves_and_not_from_what_is_starting_G41():
    obs = observation(now_s=LATER_S, width=10, capabilities=CAN)
    obs = replace(obs, width=WidthStatus(12, 10, 10, failure="two never came"))
    allowed, stages = warm(max_step_up=2).apply(Proposal(16, "x", "x"), obs)
    assert (allowed.width, stages[-1].code) == (12, "step_limit")
