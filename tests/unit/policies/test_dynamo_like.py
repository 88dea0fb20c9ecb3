"""Dynamo's two paths, as far as its documentation and issues state them."""

from dataclasses import replace

import pytest

from autoscaler import profiles
from autoscaler.errors import ConfigError
from autoscaler.model import Resize, Signal, SignalStatus, Slo
from autoscaler.policies.dynamo_like import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

NONE = Signal(None, SignalStatus.NO_OBSERVATIONS)


class Asked:
    """The policy, asked every five seconds."""

    def __init__(self, width=4, profile=None, slo=None, **params):
        self.slo = slo or Slo()
        given = {"min_observations": 1, **params}
        self.policy = build(Params(**given), PolicyContext(self.slo, 5.0, profile))
        self.tick, self.width = 0, width

    def __call__(self, ticks=1, **signals):
        for _ in range(ticks):
            obs = observation(
                self.tick, 900.0 + 5.0 * self.tick, self.width, slo=self.slo, **signals
            )
            self.said = self.policy.propose(obs)
            self.tick += 1
        return self.said.width, self.said.code


BURST = {"queue_depth": 40.0, "queue_wait_s": 6.0}


@pytest.mark.parametrize(
    ("wait_s", "expected"),
    [(6.0, (5, "load")), (4.5, (4, "within_band")), (2.5, (3, "spare"))],
)
def test_one_step_by_what_a_request_would_wait_now(wait_s, expected):
    assert Asked()(queue_depth=40.0, queue_wait_s=wait_s) == expected


def test_the_backlog_counts_before_any_slow_request_has_ended_T23():
    ask = Asked()
    ask(ttft_p95_s=0.4)
    # 1 -> 8 rps on a capacity of 4.5: after 10 s 35 requests wait, that is 7.8 s.
    assert ask(ttft_p95_s=0.4, queue_depth=35.0, queue_wait_s=35 / 4.5) == (5, "load")


def test_the_estimate_adds_what_prefill_alone_takes():
    ask = Asked()
    ask(ttft_p95_s=0.9)
    ask(ttft_p95_s=0.4)
    obs = observation(9, 910.0, queue_depth=10.0, queue_wait_s=2.0)
    assert ask.policy.estimate_s(obs) == pytest.approx(2.4)


ITL = Slo(itl_p95_s=0.032)


@pytest.mark.parametrize(
    ("width", "itl_s", "expected"),
    [
        (2, 0.023, (2, "within_band")),  # T01: 23 ms at 2, and again at 1: 2 <-> 1 for ever
        (4, 0.018, (3, "spare")),
        (4, 0.020, (4, "within_band")),
        (4, 0.040, (5, "load")),
    ],
)
def test_down_only_with_room_for_the_load_on_one_less_T01(width, itl_s, expected):
    assert Asked(width=width, slo=ITL)(itl_p95_s=itl_s) == expected


def test_an_itl_that_is_unknown_stops_a_shrink_and_a_silent_one_does_not():
    assert Asked(slo=ITL)(itl_p95_s=None) == (4, "unknown")
    assert Asked(slo=ITL)(itl_p95_s=NONE) == (3, "spare")


def test_waits_for_its_first_observations():
    ask = Asked(min_observations=5)
    assert ask(4, **BURST) == (4, "warming_up")
    assert ask(**BURST) == (5, "load")


def test_no_decision_while_a_change_is_in_progress_A09():
    obs = observation(0, 900.0, 4, **BURST)
    policy = Asked().policy
    for i in range(36):
        resizing = replace(obs, now_s=900.0 + 5 * i, resize=Resize(4, 5, 890.0))
        assert policy.propose(resizing).width == 5
    assert policy.propose(replace(obs, now_s=1090.0)).width == 5


def test_the_slow_path_is_a_floor_for_the_fast_one():
    ask = Asked(rps_per_width=5.0)
    assert ask(36, arrival_rps=14.0) == (4, "floor")  # the width at the start
    assert ask(arrival_rps=14.0) == (3, "spare")
    ask.width = 3
    assert ask(5, arrival_rps=14.0) == (3, "floor")
    assert ask(72, arrival_rps=24.0) == (5, "floor")


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_the_profile_says_what_one_unit_bears(width):
    ask = Asked(width=width, profile=profiles.load("assumed-wide"))
    ask(37, arrival_rps=100.0, prompt_tokens_mean=1024.0, output_tokens_mean=256.0)
    # Its open-loop capacity is about 5 requests/s a width (profile's provenance).
    assert 18 <= ask.policy.state()["floor"] <= 23


def test_an_itl_objective_makes_the_batch_and_the_capacity_smaller():
    profile = profiles.load("assumed-wide")
    floors = []
    for slo in (Slo(), Slo(itl_p95_s=0.0065)):
        ask = Asked(profile=profile, slo=slo)
        ask(37, arrival_rps=14.0, itl_p95_s=0.006)
        floors.append(ask.policy.state()["floor"])
    assert floors[1] > 2 * floors[0]


def test_a_falling_trend_predicts_nothing_below_zero_T20():
    ask = Asked(rps_per_width=5.0, predictor="linear", history=8, throughput_interval_s=5.0)
    for rps in (100.0, 80.0, 60.0, 40.0, 20.0, 10.0, 0.0, 0.0, 0.0):
        ask(arrival_rps=rps)
    assert ask.policy.predicted_rps() == 0.0
    assert ask.policy.state()["floor"] == 0


def test_a_rising_trend_goes_on():
    ask = Asked(rps_per_width=5.0, predictor="linear", throughput_interval_s=5.0)
    for rps in (0.0, 10.0, 20.0, 30.0):
        ask(arrival_rps=rps)
    assert ask.policy.predicted_rps() == pytest.approx(40.0)
    assert ask.policy.state()["floor"] == 8


def test_unknown_arrivals_leave_the_floor_where_it_was():
    ask = Asked(rps_per_width=5.0)
    ask(37, arrival_rps=14.0)
    assert ask(100, arrival_rps=None)[0] == 3
    assert ask.policy.state()["floor"] == 3


@pytest.mark.parametrize(
    "signals",
    [
        {"ttft_p95_s": None},
        {"queue_depth": None},
        {"queue_depth": 3.0, "queue_wait_s": None},
    ],
)
def test_unknown_never_shrinks_M04(signals):
    assert Asked()(500, **signals)[0] == 4


@pytest.mark.parametrize(
    ("width", "signals", "code"),
    [(8, BURST, "at_max_width"), (1, {}, "at_min_width")],
)
def test_the_ends_of_the_lattice(width, signals, code):
    assert Asked(width=width)(**signals) == (width, code)


def test_a_clock_that_went_back_ends_the_intervals_T15():
    policy = build(Params(min_observations=1), PolicyContext(Slo(), 5.0))
    policy.propose(observation(0, 1000.0, 4))
    assert policy.propose(observation(1, 1001.0, 4, **BURST)).code == "spare"
    assert policy.propose(observation(2, 900.0, 4, **BURST)).code == "load"


def test_absurd_numbers_stay_numbers_G27_T18():
    ask = Asked(rps_per_width=1e-9, throughput_interval_s=5.0)
    ask(2, arrival_rps=1e18)
    assert ask.policy.state()["floor"] == 10**9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"load_interval_s": -1}, "load_interval_s: must be"),
        ({"throughput_interval_s": 0}, "throughput_interval_s: must be a finite number > 0"),
        ({"down_sensitivity_ratio": 80}, "down_sensitivity_ratio: must be .* <= 1; got 80"),
        ({"min_observations": 0}, "min_observations: must be a whole number >= 1; got 0"),
        ({"predictor": "arima"}, "predictor: must be one of constant, linear; got 'arima'"),
        ({"history": 1}, "history: must be a whole number >= 2; got 1"),
        ({"rps_per_width": 0}, "rps_per_width: must be"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)
