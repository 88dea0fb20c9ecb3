"""Queue threshold: what KEDA's trigger and the HPA behind it do, and where this differs."""

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.policies.queue_threshold import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation


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


@pytest.mark.parametrize(("waiting", "width"), [(5.0, 1), (5.4, 1), (6.0, 2), (26.0, 5)])
def test_more_than_five_waiting_a_width_grow(waiting, width):
    assert Asked(width=1)(queue_depth=waiting)[0] == width


def test_growth_is_no_faster_than_the_default_rates():
    assert Asked(width=2)(queue_depth=500.0) == (6, "rate_limited")


def test_an_empty_queue_shrinks_however_much_is_running():
    ask = Asked()
    assert ask(60, running=60.0) == (4, "stabilised")
    assert ask(3, running=60.0)[0] == 0


def test_an_unknown_queue_is_not_zero_G05_G06():
    assert Asked()(500, queue_depth=None) == (4, "unknown")


def test_a_missing_ttft_stops_the_shrink_M04():
    assert Asked()(500, ttft_p95_s=None) == (4, "missing_data")


def test_P9_the_fallback_comes_after_so_many_evaluations():
    ask = Asked(fallback_width=6)
    assert ask(9, queue_depth=None) == (4, "unknown")
    assert ask(queue_depth=None) == (6, "fallback")
    assert ask(queue_depth=20.0)[0] == 4


def test_one_transition_then_constant_G09():
    ask = Asked(fallback_width=6)
    ask(9, queue_depth=None)
    ask.width = 6
    assert {ask(queue_depth=None)[0] for _ in range(200)} == {6}


def test_P10_the_fallback_is_never_below_what_is_there_G10():
    assert Asked(width=8, fallback_width=6)(50, queue_depth=None) == (8, "unknown")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"threshold": 0}, "threshold: must be a finite number > 0; got 0"),
        ({"tolerance": -1}, "tolerance: must be"),
        ({"period_s": -1}, "period_s: must be"),
        ({"down_window_s": -1}, "down_window_s: must be"),
        ({"fallback_width": 1.5}, "fallback_width: must be a whole number"),
        ({"fallback_after": 0}, "fallback_after: must be a whole number >= 1; got 0"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)
