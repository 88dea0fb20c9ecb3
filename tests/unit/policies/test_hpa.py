"""The HPA's arithmetic against the tables H and W, which are read from its own tests.

Rows without a counterpart here:
H2-H4, H14, H15, H19 (its unknown extra series), H20-H23: metrics a Pod, and Pods that are failed,
deleting, unready, unscheduled or without a metric: a signal here is one number for the whole
deployment, or unknown.
H6, H8: unready Pods again; that a ratio above 1 makes it smaller (H8) is not copied.
H29-H34, H40: bounds are the guards', who have tests of their own; H33 is autoscaling/v1's cap.
"""

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Signal, SignalStatus, Slo, WidthStatus
from autoscaler.policies.hpa import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.ratio_scaling import Behaviour, Direction, Metric, rates, wanted
from autoscaler.testing import observation

CONTEXT = PolicyContext(Slo(), 5.0)
FREE = {"period_s": 0.0, "up_rates": (), "down_rates": (), "down_window_s": 0.0}
KV = {"signal": "kv_cache_usage_ratio", "target": 0.5, "per_width": False}


def policy(**params):
    return build(Params(**{**FREE, **params}), CONTEXT)


@pytest.mark.parametrize(
    ("row", "width", "value", "target", "per_width", "expected"),
    [
        ("H1", 3, 50.0, 30.0, False, 5),
        ("H5", 3, 20.0, 15.0, False, 4),
        ("H7", 1, 8.6, 4.4, False, 2),
        ("H9 object", 3, 20.0, 5.0, True, 4),
        ("H9 external", 3, 8.6, 2.15, True, 4),
        ("H10", 5, 28.0, 50.0, False, 3),
        ("H11", 5, 12.0, 20.0, False, 3),
        ("H12 object", 5, 6.0, 2.0, True, 3),
        ("H12 external", 5, 8.6, 2.867, True, 3),
        ("H13", 5, 8.6, 14.334, False, 3),
        ("H16 mean", 3, 102.0, 100.0, False, 3),
        ("H16 custom", 3, 62 / 3, 20.0, False, 3),
        ("H17 external", 3, 8.6, 8.888, False, 3),
        ("H17 per width", 4, 20.166, 5.0, True, 4),
        ("H18 just outside", 10, 50.0, 56.0, False, 9),
        ("H18 just inside", 10, 50.0, 55.0, False, 10),
        ("H19 without the extras", 4, 587.5, 100.0, False, 24),
        ("H28 the range rule: exactly 1.1 holds", 10, 11.0, 10.0, False, 10),
        ("H28 exactly 0.9 holds", 10, 9.0, 10.0, False, 10),
        ("T02 no load at width 0", 0, 0.0, 2.0, False, 0),
        ("T18 width 0 counts as 1", 0, 10.0, 2.0, False, 5),
        ("T20 a negative value is none", 4, -23.8, 2.0, True, 0),
    ],
)
def test_size_from_a_metric_T02_T18_T20(row, width, value, target, per_width, expected):
    assert wanted(Metric("queue_depth", target, per_width), value, width, 0.1) == expected, row


@pytest.mark.parametrize("value", [214_748_365.0, 1e18, 1.7e308])
def test_an_absurd_value_asks_for_the_largest_width_never_for_the_least_H27_T18(value):
    ask = policy(signal="queue_depth", target=0.1)
    assert ask.propose(observation(width=4, queue_depth=value)).width >= 10**9


def rate_limited(width, wish, up=(), down=(), changes=(), select="max"):
    behaviour = Behaviour(
        Direction(0.0, rates("up_rates", up), select),
        Direction(0.0, rates("down_rates", down), select),
    )
    for age_s, by in sorted(changes, reverse=True):
        behaviour.changed(by, 1000.0 - age_s)
    return behaviour.limited(wish, width, 1000.0)


def percent(amount, period_s=60.0):
    return {"percent": amount, "period_s": period_s}


def units(amount, period_s=60.0):
    return {"width": amount, "period_s": period_s}


ADDED = ((30.0, 1), (60.0, 5), (90.0, 9))
REMOVED = ((30.0, -1), (60.0, -5), (90.0, -9))


@pytest.mark.parametrize(
    ("row", "given", "expected"),
    [
        ("H35", {"width": 10, "wish": 50, "up": [units(30)]}, 40),
        ("H36", {"width": 10, "wish": 50, "up": [percent(200)]}, 30),
        ("H37", {"width": 100, "wish": 2, "down": [units(20), percent(1)]}, 80),
        ("H38", {"width": 100, "wish": 2, "down": [units(2), percent(1)]}, 98),
        ("H39", {"width": 10, "wish": 2, "down": [units(5)]}, 5),
        ("H40 without its bound", {"width": 10, "wish": 2, "down": [percent(100)]}, 2),
        (
            "H41",
            {"width": 100, "wish": 500, "up": [units(150, 120)], "changes": ADDED},
            235,
        ),
        ("H42", {"width": 100, "wish": 500, "up": [percent(200, 120)], "changes": ADDED}, 255),
        ("H43", {"width": 100, "wish": 500, "up": [units(5, 120)], "changes": ADDED}, 100),
        ("H44", {"width": 100, "wish": 2, "down": [units(5, 120)], "changes": REMOVED}, 100),
        (
            "H45",
            {
                "width": 100,
                "wish": 0,
                "down": [percent(50, 120)],
                "changes": ((30.0, -2), (60.0, -4), (90.0, -6)),
            },
            56,
        ),
        (
            "H46",
            {
                "width": 100,
                "wish": 0,
                "down": [percent(10, 120)],
                "changes": ((30.0, -10), (60.0, -10), (90.0, -10)),
            },
            100,
        ),
        (
            "H47 up",
            {"width": 1, "wish": 9, "up": [units(2), percent(50)], "select": "min"},
            2,
        ),
        (
            "H47 down, H48",
            {"width": 5, "wish": 0, "down": [units(2), percent(50)], "select": "min"},
            3,
        ),
        ("H49 up", {"width": 5, "wish": 9, "up": [units(2)], "select": "disabled"}, 5),
        ("H49 down", {"width": 5, "wish": 1, "down": [units(2)], "select": "disabled"}, 5),
        ("H50 in", {"width": 9, "wish": 99, "up": [units(10)], "changes": ((58.0, 7),)}, 12),
        ("H50 out", {"width": 9, "wish": 99, "up": [units(10)], "changes": ((61.0, 7),)}, 19),
        (
            "H51",
            {
                "width": 30,
                "wish": 99,
                "up": [units(20)],
                "changes": ((29.0, 8), (59.0, 6), (61.0, 7), (61.0, 9)),
            },
            36,
        ),
        (
            "G38 on the border",
            {"width": 9, "wish": 99, "up": [units(1)], "changes": ((60.0, 7),)},
            10,
        ),
        ("no rates", {"width": 1, "wish": 99}, 99),
    ],
)
def test_H_rates(row, given, expected):
    assert rate_limited(**given) == expected, row


def test_H52_half_as_much_again_a_minute():
    ask = policy(signal="queue_depth", target=1.0, up_rates=(percent(50.0),))
    first = ask.propose(observation(0, 1000.0, 2, queue_depth=8.0))
    ask.propose(observation(1, 1005.0, 3, queue_depth=8.0))
    again = ask.propose(observation(2, 1065.0, 3, queue_depth=8.0))
    too_soon = ask.propose(observation(3, 1070.0, 5, queue_depth=8.0))
    assert (first.width, again.width, too_soon.width) == (3, 5, 5)
    assert too_soon.code == "rate_limited"


@pytest.mark.parametrize(
    ("row", "windows_s", "width", "wishes", "new", "expected"),
    [
        ("W1", (0, 300), 100, (), 5, 5),
        ("W2", (0, 300), 100, ((120, 4), (60, 5)), 3, 5),
        ("W3", (0, 300), 100, ((120, 1), (60, 2)), 3, 3),
        ("W4", (0, 300), 100, ((600, 10), (540, 9)), 3, 3),
        ("W5", (0, 300), 100, ((600, 10), (540, 9), (120, 5), (60, 4)), 3, 5),
        ("W6", (0, 180), 100, ((120, 4), (60, 5)), 3, 5),
        ("W7", (300, 0), 1, ((120, 4), (60, 5)), 7, 4),
        ("W8", (300, 0), 1, ((6000, 10), (180, 9), (120, 5), (60, 6)), 100, 5),
        ("W9", (300, 0), 100, ((120, 1), (60, 2)), 3, 3),
        ("W10", (0, 300), 1, ((120, 4), (60, 5)), 3, 3),
        ("W11", (0, 0), 1, ((120, 4), (60, 5)), 100, 100),
    ],
)
def test_W_stabilisation(row, windows_s, width, wishes, new, expected):
    behaviour = Behaviour(Direction(windows_s[0], ()), Direction(windows_s[1], ()))
    for age_s, wish in wishes:
        behaviour.remember(wish, 10_000.0 - age_s)
    behaviour.remember(new, 10_000.0)
    assert behaviour.stabilised(width, 10_000.0) == expected, row


def test_no_metric_at_all_changes_nothing_H24_M18():
    said = policy(signal="running").propose(observation(width=4, running=None))
    assert (said.width, said.code) == (4, "unknown")


TWO = {"signal": "queue_depth", "target": 1.0, "also": (KV,)}


def test_a_healthy_metric_grows_although_another_is_missing_H25_M21_G10():
    said = policy(**TWO).propose(observation(width=3, queue_depth=4.0))
    assert (said.width, said.code) == (4, "ratio")
    said = policy(**TWO).propose(observation(width=5, queue_depth=20.0))
    assert (said.width, said.code) == (20, "ratio")


def test_no_shrink_while_one_metric_is_missing_H26_M18_M21():
    said = policy(**TWO).propose(observation(width=5, queue_depth=2.0))
    assert (said.width, said.code) == (5, "unknown")
    known = policy(**TWO).propose(observation(width=5, queue_depth=2.0, kv_cache_usage_ratio=0.1))
    assert known.width == 2


def test_a_wish_that_stands_is_not_to_shrink_on_what_has_become_unknown_M18():
    ask = policy(**TWO, period_s=15.0)
    known = {"queue_depth": 2.0, "kv_cache_usage_ratio": 0.1}
    assert ask.propose(observation(0, 1000.0, 5, **known)).width == 2
    lost = ask.propose(observation(1, 1005.0, 5, queue_depth=2.0, kv_cache_usage_ratio=None))
    assert (lost.width, lost.code) == (5, "unknown")
    assert ask.propose(observation(2, 1010.0, 5, **known)).width == 2


def test_the_largest_wish_of_several_metrics_wins_T12():
    said = policy(**TWO).propose(observation(width=4, queue_depth=6.0, kv_cache_usage_ratio=1.0))
    assert said.width == 8
    assert said.reason == "kv_cache_usage_ratio 1, target 0.5"


def test_a_latency_is_held_at_its_target_by_ratio():
    latency = policy(signal="ttft_p95_s", target=2.5, per_width=False)
    assert latency.propose(observation(width=4, ttft_p95_s=5.0)).width == 8


def test_a_missing_ttft_stops_a_shrink_whatever_the_signal_is_M04():
    ask = policy(signal="queue_depth", target=5.0)
    said = ask.propose(observation(width=4, ttft_p95_s=None, queue_depth=0.0))
    assert (said.width, said.code) == (4, "missing_data")


def test_a_saturated_quantile_may_grow_and_never_shrinks_G02():
    top = Signal(None, SignalStatus.TOP_BUCKET, 2560.0)
    latency = {"signal": "ttft_p95_s", "per_width": False}
    assert policy(target=2.5, **latency).propose(observation(width=4, ttft_p95_s=top)).width > 4
    assert policy(target=5000.0, **latency).propose(observation(width=4, ttft_p95_s=top)).width == 4


def test_after_a_start_what_is_there_is_kept_for_a_down_window():
    ask = policy(signal="queue_depth", target=5.0, down_window_s=300.0)
    said = [ask.propose(observation(i, 1000.0 + 5.0 * i, 4)) for i in range(61)]
    assert {p.width for p in said[:60]} == {4}
    assert said[59].code == "stabilised"
    assert said[60].width == 0


def test_between_two_evaluations_the_last_wish_stands():
    ask = policy(signal="queue_depth", target=1.0, period_s=15.0)
    widths = [
        ask.propose(observation(i, 1000.0 + 5.0 * i, 4, queue_depth=float(8 + i))).width
        for i in range(4)
    ]
    assert widths == [8, 8, 8, 11]


def test_a_clock_that_went_back_evaluates_at_once():
    ask = policy(signal="queue_depth", target=1.0, period_s=15.0)
    ask.propose(observation(0, 1000.0, 4, queue_depth=8.0))
    assert ask.propose(observation(1, 900.0, 4, queue_depth=9.0)).width == 9


def test_rates_and_windows_count_from_the_desired_width_while_a_resize_runs_A09():
    ask = policy(signal="queue_depth", target=1.0, up_rates=(units(2.0),))
    ask.propose(observation(0, 1000.0, 2, queue_depth=8.0))
    obs = observation(1, 1005.0, 2, queue_depth=8.0)
    resizing = type(obs)(
        obs.tick, obs.now_s, obs.metrics, WidthStatus(4, 2, 2), obs.capabilities, obs.slo
    )
    said = ask.propose(resizing)
    assert (said.width, said.code) == (4, "rate_limited")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"signal": "cpu"}, "signal: must be one of ttft_p95_s, .*; got 'cpu'"),
        ({"target": 0}, "target: must be a finite number > 0; got 0"),
        ({"also": ({"signal": "running"},)}, r"also\[0\]: target: must be given"),
        ({"also": (3,)}, "also: must be a list of mappings"),
        ({"tolerance": -0.1}, "tolerance: must be"),
        ({"period_s": -1}, "period_s: must be"),
        ({"up_window_s": float("nan")}, "up_window_s: must be"),
        ({"down_window_s": -1}, "down_window_s: must be"),
        ({"up_select": "most"}, "up_select: must be one of max, min, disabled; got 'most'"),
        ({"down_rates": ({"pods": 1.0},)}, r"down_rates\[0\]: must have period_s and either"),
        ({"up_rates": ({"percent": 0.0, "period_s": 15.0},)}, r"up_rates\[0\].percent: must be"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)


def of(obs, desired, effective):
    """The observation, of a width that is only partly there."""
    width = WidthStatus(desired, effective, effective)
    return Observation(obs.tick, obs.now_s, obs.metrics, width, obs.capabilities, obs.slo)


def test_a_percentage_is_of_what_serves_and_not_of_what_starts_G41():
    ask = policy(signal="queue_depth", target=1.0, up_rates=(percent(20.0, 15.0),))
    steady = ask.propose(observation(0, 1000.0, 10, queue_depth=60.0))
    assert steady.width == 12
    ask.propose(of(observation(1, 1005.0, queue_depth=60.0), 15, 10))
    starting = ask.propose(of(observation(2, 1060.0, queue_depth=60.0), 15, 10))
    assert starting.width == 15  # not 18
    served = ask.propose(observation(3, 1120.0, 15, queue_depth=60.0))
    assert served.width == 18


def test_surplus_members_of_a_roll_out_do_not_run_the_wish_up_G30():
    ask = policy(signal="ttft_p95_s", target=2.5, per_width=False)
    wishes = set()
    for i in range(30):
        # 125 run while 100 are wanted; what is wished for is written at once.
        obs = of(observation(i, 1000.0 + 15 * i, ttft_p95_s=3.0), 100, None)
        wishes.add(ask.propose(obs).width)
    assert wishes == {120}  # 383, 479, 589, 664 in the report


def test_a_metric_that_never_was_holds_with_its_name_and_an_explicit_zero_lets_go_G25():
    ask = policy(**TWO)
    said = [ask.propose(observation(i, 1000.0 + 15 * i, 8, queue_depth=1.0)) for i in range(400)]
    assert {(p.width, p.code) for p in said} == {(8, "unknown")}
    assert said[-1].reason == (
        "no shrink while kv_cache_usage_ratio is unknown (no_series); "
        "queue_depth 1, 0.125 a width, target 1 a width"
    )
    zero = observation(400, 7000.0, 8, queue_depth=1.0, kv_cache_usage_ratio=0.0)
    assert ask.propose(zero).width == 1


def test_the_reason_has_the_total_and_what_it_is_a_width_G18():
    said = policy(signal="running", target=3000.0).propose(observation(width=3, running=10_200.0))
    assert said.width == 4
    assert said.reason == "running 10200, 3400 a width, target 3000 a width"
