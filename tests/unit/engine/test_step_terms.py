"""Engine terms that real runs asked for: scheduling ahead, host-bound prefill, mixed steps."""

import numpy as np
import pytest

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.physics import Physics

STEP_S = 0.010


def serve(arrival_s, *, prompt=100, output=50, ranks=1, slots=4, **terms):
    n = len(arrival_s)
    load = Load(np.array(arrival_s), np.full(n, prompt, np.int32), np.full(n, output, np.int32))
    given = {"prefill_flat_s": STEP_S} | terms
    physics = Physics(
        ranks=ranks, slots_per_rank=slots, decode_s=np.full(slots + 1, STEP_S), **given
    )
    engine = Engine(load, physics)
    engine.run()
    return engine


def test_a_request_that_comes_during_a_step_joins_the_next_one():
    assert serve([0.0, 0.025]).first_s == pytest.approx([0.01, 0.04])


def test_scheduled_ahead_it_joins_the_one_after():
    assert serve([0.0, 0.025], schedule_ahead=True).first_s == pytest.approx([0.01, 0.05])


def test_scheduled_ahead_an_idle_engine_still_starts_at_once():
    assert serve([0.0, 9.0], schedule_ahead=True).first_s == pytest.approx([0.01, 9.01])


def test_scheduled_ahead_an_idle_rank_starts_with_the_next_step():
    engine = serve([0.0, 0.005], ranks=2, schedule_ahead=True)
    assert engine.first_s == pytest.approx([0.01, 0.02])


def test_scheduled_ahead_a_freed_slot_stays_empty_for_a_step():
    plain = serve([0.0, 0.001], slots=1, output=10)
    ahead = serve([0.0, 0.001], slots=1, output=10, schedule_ahead=True)
    assert plain.first_s[1] == pytest.approx(0.11)
    # The only request of the rank has ended: nothing runs that the next could be behind.
    assert ahead.first_s[1] == pytest.approx(0.11)
    two = serve([0.0, 0.001, 0.002], slots=2, output=10, schedule_ahead=True)
    assert two.first_s[2] == pytest.approx(two.finish_s[0] + 2 * STEP_S)


def test_scheduled_ahead_everything_is_served_and_nothing_twice():
    generator = np.random.default_rng(3)
    arrival_s = np.cumsum(generator.exponential(0.05, 400))
    engine = serve(list(arrival_s), ranks=3, slots=2, schedule_ahead=True, token_budget=64)
    assert engine.state["completed"] == 400
    assert engine.state["output_tokens"] == 400 * 50
    assert np.all(engine.finish_s > engine.first_s)


def test_a_prefill_step_lasts_its_least_time():
    assert serve([0.0], prefill_floor_s=0.05).first_s == pytest.approx([0.05])
    assert serve([0.0], prefill_floor_s=0.005).first_s == pytest.approx([STEP_S])


def test_the_least_time_spreads_as_its_power_says():
    arrival_s = np.arange(4000) * 10.0
    terms = {"prefill_floor_s": 0.05, "prefill_spread_s": 0.04, "output": 2}
    even = serve(list(arrival_s), **terms).first_s - arrival_s
    tailed = serve(list(arrival_s), prefill_spread_power=4.0, **terms).first_s - arrival_s
    assert 0.05 <= even.min() < 0.0505
    assert 0.0895 < even.max() <= 0.09
    assert np.median(even) == pytest.approx(0.07, rel=0.02)
    assert np.median(tailed) == pytest.approx(0.05 + 0.04 / 16, rel=0.02)
    assert abs(np.corrcoef(even[1:], even[:-1])[0, 1]) < 0.05


def test_decoding_beside_a_prompt_costs_per_cached_token():
    engine = serve([0.0, 0.015], mixed_kv_token_s=1e-4)
    # 101 tokens were cached at 0.01, another with each step since.
    assert engine.first_s[1] == pytest.approx(0.02 + STEP_S + 102e-4)
