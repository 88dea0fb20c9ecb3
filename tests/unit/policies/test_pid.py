"""The PID's own claims: gains, anti-windup, time."""

import math
from dataclasses import replace

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Capabilities, Resize, Signal, SignalStatus, Slo, Tristate
from autoscaler.policies.pid import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

NONE = Signal(None, SignalStatus.NO_OBSERVATIONS)
TOP = Signal(None, SignalStatus.TOP_BUCKET, 2560.0)
LATTICE = Capabilities(2, 16, (2, 4, 8, 16), Tristate.YES)
PLAIN = {
    "target_ratio": 0.2,  # 1 s
    "kp": 0.5,
    "ki_per_s": 0.01,
    "kd_s": 0.0,
    "kq": 0.5,
    "ratio_high": 4.0,
    "up_share": 1.0,
}
"""Gains that make round numbers."""


class Asked:
    """The policy, asked every five seconds."""

    def __init__(self, width=4, capabilities=None, **params):
        self.policy = build(Params(**{**PLAIN, **params}), PolicyContext(Slo(), 5.0))
        self.tick, self.width, self.capabilities = 0, width, capabilities

    def __call__(self, ticks=1, resize=None, every_s=5.0, **signals):
        for _ in range(ticks):
            obs = observation(
                self.tick, 900.0 + every_s * self.tick, self.width, self.capabilities, **signals
            )
            said = self.policy.propose(replace(obs, resize=resize))
            self.tick += 1
        return said.width, said.code

    @property
    def integral(self):
        return self.policy.state()["integral"]


def test_on_target_nothing_changes():
    ask = Asked()
    assert ask(500, ttft_p95_s=1.0) == (4, "within_band")
    assert ask.integral == pytest.approx(math.log(4))


@pytest.mark.parametrize(("ttft_s", "width"), [(1.5, 4), (1.6, 5), (2.0, 5), (4.0, 8), (400.0, 8)])
def test_the_proportional_part_asks_for_the_square_root_of_the_ratio_with_a_gain_of_half(
    ttft_s, width
):
    assert Asked(ki_per_s=0.0)(ttft_p95_s=ttft_s)[0] == width


def test_the_integral_gets_where_the_proportional_part_does_not():
    ask = Asked()
    assert ask(ttft_p95_s=1.2) == (4, "within_band")
    # ln 5/4 - 0.5 ln 1.2 = 0.132 is missing; 0.01 ln 1.2 x 5 s = 0.0091 comes each tick.
    assert ask(14, ttft_p95_s=1.2) == (4, "within_band")
    assert ask(2, ttft_p95_s=1.2) == (5, "too_slow")


def test_the_queue_is_fed_forward_while_the_ttft_still_looks_well():
    # 32 waiting are 8 a width: 0.5 ln 2, and 4 x sqrt 2 = 5.66.
    assert Asked()(ttft_p95_s=1.0, queue_depth=32.0) == (5, "too_slow")
    assert Asked(kq=0.0)(ttft_p95_s=1.0, queue_depth=32.0) == (4, "within_band")


@pytest.mark.parametrize("missing", [None, Signal(None, SignalStatus.QUARANTINED)])
def test_the_queue_alone_may_grow_when_the_ttft_is_unknown_G11(missing):
    assert Asked()(ttft_p95_s=missing, queue_depth=32.0) == (5, "too_slow")


def test_failures_count():
    assert Asked()(ttft_p95_s=0.5, ttft_p95_penalised_s=30.0)[0] == 8


def test_quiet_is_left_one_place_at_a_time():
    ask = Asked(ratio_low=0.5)
    # 0.5 ln 0.5 is not enough of ln 3/4; the integral adds 0.01 ln 0.5 x 5 s each tick.
    assert ask(ttft_p95_s=0.1) == (3, "spare")
    ask.width = 3
    assert ask(6, ttft_p95_s=0.1) == (3, "settling")


def test_below_ratio_low_all_is_equally_quiet():
    quiet, quieter = Asked(kd_s=50.0), Asked(kd_s=50.0)
    for ttft_s in (0.1, 0.4, 0.05, 0.3):
        assert quiet(ttft_p95_s=ttft_s) == quieter(ttft_p95_s=0.1)
    assert quiet.policy.state() == quieter.policy.state()


def test_the_derivative_sees_a_rise_before_the_target_is_reached():
    rising = Asked(ki_per_s=0.0, kd_s=20.0, ratio_low=0.1)
    for ttft_s in (0.2, 0.4, 0.7):
        said = rising(ttft_p95_s=ttft_s)
    assert (said[0] > 4, said[1]) == (True, "too_slow")
    assert Asked(ki_per_s=0.0, ratio_low=0.1)(3, ttft_p95_s=0.7)[0] <= 4


def test_the_derivative_is_of_the_measurement_and_filtered():
    ask = Asked(ki_per_s=0.0, kp=0.0, kd_s=20.0, filter_s=15.0)
    ask(ttft_p95_s=1.0)
    ask(ttft_p95_s=2.0)
    assert ask.policy.state()["slope_per_s"] == pytest.approx(math.log(2) / 5 * 5 / 20)


def test_nothing_winds_up_while_a_resize_is_in_flight_A09():
    ask = Asked()
    resize = Resize(4, 5, 900.0)
    assert ask(36, resize=resize, ttft_p95_s=60.0, queue_depth=500.0) == (5, "resizing")
    assert ask.integral == pytest.approx(math.log(4))
    ask.width = 5
    assert ask(6, ttft_p95_s=60.0) == (5, "settling")
    assert ask.integral == pytest.approx(math.log(5))


def test_the_ttft_of_the_resize_is_no_ground_for_a_decision_A36():
    ask = Asked()
    ask(resize=Resize(4, 5, 900.0))
    ask.width = 5
    assert ask(6, ttft_p95_s=60.0) == (5, "settling")
    assert ask(ttft_p95_s=1.0) == (5, "within_band")


def test_a_resize_that_was_never_seen_in_flight_is_followed_too():
    ask = Asked()
    ask(ttft_p95_s=1.0)
    ask.width = 8
    assert ask(ttft_p95_s=60.0) == (8, "settling")
    assert ask.integral == pytest.approx(math.log(8))


def test_the_integral_stops_once_the_next_place_is_asked_for():
    ask = Asked()
    ask(20, ttft_p95_s=1.2)
    reached = ask.integral
    assert ask(1000, ttft_p95_s=1.2) == (5, "too_slow")
    assert ask.integral == reached
    assert ask(ttft_p95_s=0.7) == (4, "within_band")


def test_the_integral_crosses_a_wide_gap_of_the_lattice_and_stops_there():
    ask = Asked(8, LATTICE)
    assert ask(60, ttft_p95_s=1.2)[0] == 8
    assert ask(15, ttft_p95_s=1.2)[0] == 16
    assert ask(500, ttft_p95_s=1.2)[0] == 16
    assert math.log(8) < ask.integral < math.log(16)


def test_the_integral_never_leaves_the_permitted_widths_and_comes_back_at_once():
    ask = Asked(width=8)
    assert ask(1000, ttft_p95_s=1.2) == (8, "slo_infeasible")
    assert ask.integral == pytest.approx(math.log(8))
    ask = Asked(width=1)
    assert ask(1000, ttft_p95_s=0.1) == (1, "within_band")
    assert ask.integral == 0.0


def test_a_saturated_ttft_counts_for_the_proportional_part_only():
    ask = Asked(width=8, kd_s=20.0)
    before = ask(ttft_p95_s=1.0), ask.integral
    assert ask(100, ttft_p95_s=TOP) == (8, "slo_infeasible")
    assert ask.integral == before[1]
    assert ask.policy.state()["slope_per_s"] == 0.0
    assert Asked()(ttft_p95_s=TOP)[0] == 8


@pytest.mark.parametrize("dt_s", [0.0, -5.0])
def test_without_time_integral_and_derivative_skip_the_tick_T15(dt_s):
    policy = build(Params(**{**PLAIN, "kd_s": 20.0}), PolicyContext(Slo(), 5.0))
    policy.propose(observation(0, 1000.0, 4, ttft_p95_s=1.0))
    before = policy.state()
    said = policy.propose(observation(1, 1000.0 + dt_s, 4, ttft_p95_s=2.0))
    after = policy.state()
    assert (after["integral"], after["slope_per_s"]) == (before["integral"], 0.0)
    assert said.width == 5  # the proportional part needs no time


def test_a_gap_between_two_ticks_counts_as_three_at_most():
    ask = Asked()
    ask(ttft_p95_s=1.1)
    before = ask.integral
    ask(every_s=600.0, ttft_p95_s=1.1)
    assert ask.integral - before == pytest.approx(0.01 * math.log(1.1) * 15.0)


@pytest.mark.parametrize(
    "signals",
    [
        {"ttft_p95_s": None},
        {"queue_depth": None, "ttft_p95_s": 0.1},
        {"ttft_p95_s": None, "queue_depth": None, "arrival_rps": None},
        {"ttft_p95_s": NONE, "queue_depth": 0.5},
    ],
)
def test_unknown_never_shrinks_M04_M23(signals):
    ask = Asked()
    assert {ask(**signals)[0] for _ in range(200)} == {4}


def test_known_idleness_is_quiet():
    idle = {"ttft_p95_s": NONE, "arrival_rps": 0.0, "ttft_observations": 0.0}
    assert Asked()(50, **idle) == (3, "spare")


def test_idle_at_the_minimum_changes_nothing_T02_T10():
    idle = {"ttft_p95_s": NONE, "arrival_rps": 0.0, "ttft_observations": 0.0}
    assert Asked(width=1)(500, **idle) == (1, "within_band")


def test_shrinks_back_to_a_width_only_below_the_load_that_hurt_it_T01():
    ask = Asked(width=2)
    assert ask(arrival_rps=10.0, ttft_p95_s=4.0)[1] == "too_slow"
    ask.width = 3
    assert ask(200, arrival_rps=9.0, ttft_p95_s=0.1) == (3, "would_hurt")
    assert ask(arrival_rps=7.9, ttft_p95_s=0.1) == (2, "spare")


def test_absurd_numbers_ask_for_the_widest_and_stay_numbers_T06_T18():
    said = Asked()(ttft_p95_s=1e18, queue_depth=1e18)
    assert said == (8, "too_slow")


def test_the_target_follows_the_objective():
    policy = build(Params(**PLAIN), PolicyContext(Slo(ttft_p95_s=50.0), 5.0))
    assert policy.propose(observation(width=4, ttft_p95_s=10.0)).code == "within_band"


def test_the_reason_shows_every_part():
    policy = build(Params(**PLAIN), PolicyContext(Slo(), 5.0))
    said = policy.propose(observation(width=4, ttft_p95_s=4.0, queue_depth=32.0))
    assert said.reason == (
        "p95 TTFT 4 s, target 1 s, 32 waiting: output 11.3 (P +0.69, I 1.39, D +0.00, queue +0.35)"
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"target_ratio": 0}, "target_ratio: must be a finite number > 0; got 0"),
        ({"kp": -1}, "kp: must be a finite number >= 0; got -1"),
        ({"ki_per_s": float("inf")}, "ki_per_s: must be"),
        ({"kd_s": -1}, "kd_s: must be"),
        ({"filter_s": -1}, "filter_s: must be"),
        ({"kq": -1}, "kq: must be"),
        ({"queue_per_width": 0}, "queue_per_width: must be"),
        ({"ratio_low": 1.0}, "ratio_low: must be < 1; got 1.0"),
        ({"ratio_low": 0.0}, "ratio_low: must be a finite number > 0"),
        ({"ratio_high": 1.0}, "ratio_high: must be a finite number > 1"),
        ({"up_share": 1.5}, "up_share: must be a finite number > 0 and <= 1; got 1.5"),
        ({"down_share": 0}, "down_share: must be"),
        ({"return_ratio": 1.5}, "return_ratio: must be"),
        ({"remember_s": -1}, "remember_s: must be"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)
