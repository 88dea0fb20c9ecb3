"""WVA's saturation rule: what its documentation says, on one deployment's signals."""

from dataclasses import replace

import pytest

from autoscaler.errors import ConfigError
from autoscaler.model import Capabilities, Resize, Slo, Tristate
from autoscaler.policies.wva_like import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

CONTEXT = PolicyContext(Slo(), 5.0)
LATTICE = Capabilities(2, 16, (2, 4, 8, 16), Tristate.YES)


class Asked:
    """The policy, asked every five seconds."""

    def __init__(self, width=4, **params):
        self.policy = build(Params(**params), CONTEXT)
        self.tick, self.width = 0, width

    def __call__(self, ticks=1, **signals):
        for _ in range(ticks):
            obs = observation(self.tick, 900.0 + 5.0 * self.tick, self.width, **signals)
            said = self.policy.propose(obs)
            self.tick += 1
        return said.width, said.code


def load(kv, queue):
    return {"kv_cache_usage_ratio": kv, "queue_depth": queue}


@pytest.mark.parametrize(
    ("kv", "queue", "expected"),
    [
        (0.52, 0.0, (3, "spare")),  # 0.693 on three: 0.107 left
        (0.53, 0.0, (4, "unsafe")),  # 0.707 on three: 0.093 left
        (0.4, 0.0, (3, "spare")),
        (0.4, 4.0, (3, "spare")),  # 1 an engine, 1.33 on three: 3.67 left
        (0.4, 6.5, (4, "unsafe")),  # 1.6 an engine, 2.17 on three: 2.83 left
        (0.4, 9.0, (5, "saturated")),  # 2.25 an engine: 2.75 left
        (0.71, 0.0, (5, "saturated")),
        (0.69, 0.0, (4, "unsafe")),
        (1.0, 500.0, (5, "saturated")),
    ],
)
def test_one_more_where_spare_runs_low_one_less_where_the_rest_has_enough(kv, queue, expected):
    assert Asked()(**load(kv, queue)) == expected


def test_no_way_down_that_would_lead_up_again_T01():
    ask = Asked(width=2)
    assert ask(**load(0.4, 0.0)) == (2, "unsafe")


def test_between_two_decisions_the_last_wish_stands():
    ask = Asked(peak_window_s=0.0)
    assert ask(**load(0.4, 0.0)) == (3, "spare")
    assert ask(11, **load(0.9, 0.0)) == (3, "spare")
    assert ask(**load(0.9, 0.0)) == (5, "saturated")


def test_a_wish_that_stands_is_not_to_shrink_on_what_has_become_unknown_M04_M18():
    ask = Asked()
    assert ask(**load(0.4, 0.0)) == (3, "spare")
    assert ask(ttft_p95_s=None, **load(0.4, 0.0)) == (4, "missing_data")
    assert ask(**load(None, 0.0)) == (4, "unknown")
    assert ask(**load(0.4, None)) == (4, "unknown")
    assert ask(**load(0.4, 0.0)) == (3, "spare")


def test_a_peak_within_the_window_counts():
    ask = Asked()
    ask(**load(0.6, 0.0))
    ask(**load(0.9, 0.0))
    assert ask(11, **load(0.1, 0.0)) == (5, "saturated")
    assert ask(12, **load(0.1, 0.0)) == (3, "spare")


def test_peaks_of_another_width_are_forgotten():
    ask = Asked()
    ask(**load(0.9, 0.0))
    ask.width = 8
    assert ask(**load(0.5, 0.0)) == (7, "spare")


def test_no_growth_while_a_change_is_pending_A09():
    obs = observation(0, 900.0, 4, **load(0.9, 50.0))
    said = build(Params(), CONTEXT).propose(replace(obs, resize=Resize(4, 5, 890.0)))
    assert (said.width, said.code) == (5, "resizing")


def test_steps_are_places_on_the_lattice_and_the_safety_check_knows_it():
    policy = build(Params(period_s=0.0, peak_window_s=0.0), CONTEXT)
    obs = observation(0, 900.0, 8, capabilities=LATTICE, **load(0.9, 0.0))
    assert policy.propose(obs).width == 16
    obs = observation(1, 905.0, 8, capabilities=LATTICE, **load(0.36, 0.0))
    assert policy.propose(obs).code == "unsafe"
    obs = observation(2, 910.0, 8, capabilities=LATTICE, **load(0.34, 0.0))
    assert policy.propose(obs).width == 4


@pytest.mark.parametrize(
    ("width", "signals", "code"),
    [(8, load(0.9, 0.0), "at_max_width"), (1, load(0.1, 0.0), "at_min_width")],
)
def test_the_ends_of_the_lattice(width, signals, code):
    assert Asked(width=width)(**signals) == (width, code)


def test_running_requests_stand_for_a_kv_cache_that_is_not_read():
    assert Asked(slots_per_width=16)(running=46.0, queue_depth=0.0) == (5, "saturated")
    assert Asked(slots_per_width=16)(running=20.0, queue_depth=0.0) == (3, "spare")


def test_without_kv_cache_and_slots_only_the_queue_asks_and_only_for_more():
    assert Asked()(running=1.0, queue_depth=0.0) == (4, "unknown")
    assert Asked()(running=1.0, queue_depth=20.0) == (5, "saturated")


@pytest.mark.parametrize(
    "signals", [{"queue_depth": None}, {"ttft_p95_s": None}, {"kv_cache_usage_ratio": None}]
)
def test_unknown_never_shrinks_M04_M18(signals):
    ask = Asked()
    assert {ask(**{**load(0.1, 0.0), **signals})[0] for _ in range(100)} == {4}


def test_a_clock_that_went_back_decides_at_once_T15():
    policy = build(Params(), CONTEXT)
    policy.propose(observation(0, 1000.0, 4, **load(0.5, 0.0)))
    assert policy.propose(observation(1, 900.0, 4, **load(0.9, 0.0))).width == 5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kv_cache_threshold_ratio": 1.2}, "kv_cache_threshold_ratio: must be"),
        ({"queue_threshold": 0}, "queue_threshold: must be a finite number > 0; got 0"),
        ({"kv_spare_trigger_ratio": 0.9}, "kv_spare_trigger_ratio: must be .* <= 0.8; got 0.9"),
        ({"queue_spare_trigger": 6}, "queue_spare_trigger: must be .* <= 5; got 6"),
        ({"period_s": -1}, "period_s: must be"),
        ({"peak_window_s": -1}, "peak_window_s: must be"),
        ({"slots_per_width": 0}, "slots_per_width: must be a whole number >= 1; got 0"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)
