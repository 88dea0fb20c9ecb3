"""The threshold policy's own claims."""

# test names carry case ids

from dataclasses import replace

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Capabilities, Resize, Signal, SignalStatus, Slo, Tristate
from autoscaler.policies.threshold import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

NONE = Signal(None, SignalStatus.NO_OBSERVATIONS)
LATTICE = Capabilities(2, 16, (2, 4, 8, 16), Tristate.YES)
HIGH = {"ttft_p95_s": 9.0}
BAND = {"ttft_p95_s": 3.0}


class Asked:
    """The policy, asked every five seconds."""

    def __init__(self, width=4, **params):
        self.policy = build(Params(**params), PolicyContext(Slo(), 5.0))
        self.tick, self.width = 0, width

    def __call__(self, ticks=1, **signals):
        for _ in range(ticks):
            obs = observation(self.tick, 900.0 + 5.0 * self.tick, self.width, **signals)
            said = self.policy.propose(obs)
            self.tick += 1
        return said.width, said.code


@pytest.mark.parametrize(
    "signals",
    [
        {"ttft_p95_s": 4.0},
        {"ttft_p95_s": Signal(None, SignalStatus.TOP_BUCKET, 2560.0)},
        {"ttft_p95_penalised_s": 30.0, "ttft_p95_s": 0.5},
        {"queue_depth": 32.0},
        {"queue_depth": 32.0, "ttft_p95_s": None},
        {"queue_depth": None, "ttft_p95_s": 4.0},
        {"queue_wait_s": 4.0},
    ],
)
def test_any_one_high_signal_grows_once_it_lasted_G02_G04_G11(signals):
    ask = Asked()
    assert ask(3, **signals) == (4, "high_not_yet")
    assert ask(**signals) == (5, "high")


def test_a_peak_shorter_than_its_duration_is_ignored():
    ask = Asked()
    ask(3, **HIGH)
    ask(1, **BAND)
    assert ask(3, **HIGH) == (4, "high_not_yet")


def test_an_unread_tick_neither_confirms_nor_denies():
    ask = Asked()
    ask(3, **HIGH)
    assert ask(ttft_p95_s=None, queue_depth=None) == (4, "unknown")
    assert ask(**HIGH) == (5, "high")


def test_shrinks_after_a_long_quiet_and_not_before():
    ask = Asked()
    assert ask(24) == (4, "within_band")
    assert ask() == (3, "quiet")


@pytest.mark.parametrize(
    "noise",
    [{"ttft_p95_s": 1.3}, {"queue_depth": 5.0}, {"queue_wait_s": 1.3}, {"ttft_p95_s": None}],
)
def test_quiet_needs_every_signal_all_the_time_M21_T01(noise):
    ask = Asked()
    ask(20)
    ask(1, **noise)
    assert ask(24)[0] == 4
    assert ask()[0] == 3


@pytest.mark.parametrize(
    "signals",
    [
        {"ttft_p95_s": None},
        {"queue_depth": None},
        {"ttft_p95_s": None, "queue_depth": None, "arrival_rps": None},
        {"ttft_p95_s": Signal(None, SignalStatus.FEW_SAMPLES)},
        {"ttft_p95_s": NONE, "queue_depth": 3.0},
        {"ttft_p95_s": NONE, "arrival_rps": None, "ttft_observations": None, "queue_depth": None},
    ],
)
def test_unknown_never_shrinks_M04_M18_M23(signals):
    assert Asked()(500, **signals)[0] == 4


def test_waiting_requests_without_a_first_token_are_a_stall_M23():
    assert Asked()(ttft_p95_s=NONE, queue_depth=3.0) == (4, "stalled")


def test_known_idleness_steps_down_to_the_minimum_and_a_short_gap_holds_M01():
    idle = {"ttft_p95_s": NONE, "arrival_rps": 0.0, "ttft_observations": 0.0}
    ask = Asked()
    assert ask(24, **idle) == (4, "within_band")
    assert ask(1, **idle) == (3, "idle")
    ask.width = 1
    assert ask(1, **idle) == (1, "at_min_width")


def test_idle_at_the_minimum_changes_nothing_T02_T10():
    ask = Asked(width=1)
    idle = {"ttft_p95_s": NONE, "arrival_rps": 0.0}
    assert {ask(1, **idle) for _ in range(20)} == {(1, "within_band")}
    assert ask(100, **idle) == (1, "at_min_width")
    assert ask(100, **BAND) == (1, "within_band")


def test_no_wind_up_in_a_resize_A09():
    ask = Asked()
    ask(3, **HIGH)
    resizing = replace(observation(3, 915.0, 4, **HIGH), resize=Resize(4, 5, 910.0))
    for i in range(36):
        said = ask.policy.propose(replace(resizing, now_s=915.0 + 5 * i))
        assert (said.width, said.code) == (5, "resizing")
    ask.tick = 40
    assert ask(3, **HIGH) == (4, "high_not_yet")


def test_still_high_at_the_widest_is_reported_as_infeasible_A32():
    assert Asked(width=8)(10, **HIGH) == (8, "slo_infeasible")


def test_steps_are_places_on_the_lattice():
    policy = build(Params(step_up=2, up_for_s=0, down_for_s=0), PolicyContext(Slo(), 5.0))
    assert policy.propose(observation(width=4, capabilities=LATTICE, **HIGH)).width == 16
    assert policy.propose(observation(width=4, capabilities=LATTICE)).width == 2


def test_a_clock_that_went_back_starts_the_duration_anew_T15():
    policy = build(Params(), PolicyContext(Slo(), 5.0))
    assert policy.propose(observation(now_s=1000.0, **HIGH)).code == "high_not_yet"
    assert policy.propose(observation(now_s=900.0, **HIGH)).code == "high_not_yet"
    assert policy.propose(observation(now_s=914.0, **HIGH)).code == "high_not_yet"
    assert policy.propose(observation(now_s=915.0, **HIGH)).code == "high"


def test_shrinks_back_to_a_width_only_below_the_load_that_hurt_it_T01():
    ask = Asked(width=2)
    assert ask(4, arrival_rps=10.0, **HIGH) == (3, "high")
    ask.width = 3
    assert ask(50, arrival_rps=10.0) == (3, "would_hurt")
    assert ask(50, arrival_rps=8.0) == (3, "would_hurt")
    assert ask(1, arrival_rps=7.9) == (2, "quiet")


def test_what_hurt_is_forgotten_in_time_and_unknown_arrivals_ask_no_memory_T01():
    ask = Asked(width=2, remember_s=600.0)
    ask(4, arrival_rps=10.0, **HIGH)
    ask.width = 3
    assert ask(50, arrival_rps=None) == (2, "quiet")
    assert ask(50, arrival_rps=10.0) == (3, "would_hurt")
    assert ask(25, arrival_rps=10.0) == (2, "quiet")
    forgetful = Asked(width=2, remember_s=0.0)
    forgetful(4, arrival_rps=10.0, **HIGH)
    forgetful.width = 3
    assert forgetful(25, arrival_rps=10.0) == (2, "quiet")


def test_the_limits_follow_the_objective():
    policy = build(Params(up_for_s=0), PolicyContext(Slo(ttft_p95_s=1.0), 5.0))
    assert policy.propose(observation(ttft_p95_s=0.8)).code == "high"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"ttft_high_ratio": 0}, "ttft_high_ratio: must be a finite number > 0; got 0"),
        ({"ttft_low_ratio": 0.8}, r"ttft_low_ratio: must be < ttft_high_ratio \(0.8\); got 0.8"),
        ({"queue_low_per_width": 9}, r"queue_low_per_width: must be < queue_high_per_width \(8\)"),
        ({"up_for_s": float("nan")}, "up_for_s: must be a finite number >= 0; got nan"),
        ({"down_for_s": -1}, "down_for_s: must be"),
        ({"step_up": 0}, "step_up: must be a whole number >= 1; got 0"),
        ({"step_down": 1.0}, "step_down: must be a whole number"),
        ({"idle_for_s": float("inf")}, "idle_for_s: must be"),
        ({"return_ratio": 1.5}, "return_ratio: must be a finite number > 0 and <= 1; got 1.5"),
        ({"remember_s": -1}, "remember_s: must be"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)
