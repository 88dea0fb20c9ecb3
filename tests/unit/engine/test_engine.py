"""What single requests experience in the engine, by hand computation."""

import numpy as np
import pytest

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import ABORTED, COMPLETED, REJECTED
from autoscaler.engine.physics import Physics


def load(*requests: tuple[float, int, int]) -> Load:
    arrival_s, prompt, output = zip(*requests, strict=True)
    return Load(np.array(arrival_s, float), np.array(prompt, np.int32), np.array(output, np.int32))


def physics(ranks: int = 1, slots: int = 4, **costs: float) -> Physics:
    given = {"prefill_flat_s": 0.1, "prefill_token_s": 0.001} | costs
    return Physics(ranks, slots, np.array([0.0] + [0.01] * slots), **given)


def test_a_lone_request_pays_overhead_prefill_and_its_decode_steps():
    engine = Engine(load((0, 100, 5)), physics(overhead_s=0.02, api_serial_s=0.001))
    engine.run()
    assert engine.first_s[0] == pytest.approx(0.021 + 0.1 + 0.1)
    assert engine.finish_s[0] == pytest.approx(0.221 + 4 * 0.01)


def test_zero_prompt_and_zero_output_are_served_as_one_token():
    engine = Engine(load((0, 0, 0)), physics())
    engine.run()
    assert engine.outcome[0] == COMPLETED
    assert engine.first_s[0] == engine.finish_s[0] == pytest.approx(0.101)


def test_a_prompt_over_the_budget_is_prefilled_in_chunks():
    engine = Engine(load((0, 250, 1)), physics(token_budget=100))
    engine.run()
    assert engine.first_s[0] == pytest.approx(3 * 0.1 + 250 * 0.001)


def test_running_requests_wait_for_the_prefill_of_another_rank():
    engine = Engine(load((0, 1, 3), (0.105, 100, 1)), physics(ranks=2))
    engine.run()
    # First token at 0.101; one decode step ends at 0.111, where the second request is found.
    assert engine.finish_s[0] == pytest.approx(0.111 + 0.2)


def test_mixed_steps_add_up_only_by_the_mixed_share():
    alone = Engine(load((0, 1, 3), (0.105, 100, 1)), physics(mixed_share=0.5))
    alone.run()
    assert alone.finish_s[0] == pytest.approx(0.111 + 0.2 + 0.005)


def test_a_request_beyond_the_slots_waits_for_one():
    engine = Engine(load((0, 1, 11), (0, 1, 11)), physics(slots=1))
    engine.run()
    assert engine.first_s[0] == pytest.approx(0.101)
    assert engine.first_s[1] == pytest.approx(0.101 + 0.1 + 0.101)


def test_one_api_server_serves_its_requests_one_by_one():
    engine = Engine(load((0, 1, 1), (0, 1, 1), (0, 1, 1)), physics(api_serial_s=1.0))
    engine.run()
    assert engine.first_s.tolist() == pytest.approx([1.101, 2.101, 3.101])


def test_least_load_counts_waiting_four_times():
    engine = Engine(load(*[(0, 1, 50)] * 8), physics(ranks=4, slots=2))
    engine.advance(0.2)
    assert engine.ranks["admitted"].tolist() == [2, 2, 2, 2]


def test_round_robin_goes_in_turn_whatever_the_load():
    requests = [(0.0, 1, 1000), (0.5, 1, 1), (1.0, 1, 1000), (1.5, 1, 1)]
    engine = Engine(load(*requests), physics(ranks=2, round_robin=True, api_servers=2))
    engine.advance(2.0)
    assert engine.ranks["decoding"].tolist() == [2, 0]


def test_a_closed_loop_keeps_its_clients_busy():
    n = 40
    requests = load(*[(0, 10, 20)] * n)
    engine = Engine(requests, physics(slots=8), clients=5, turnaround_s=0.5)
    engine.run()
    assert engine.state["completed"] == n
    ended = np.sort(engine.finish_s)
    assert engine.arrival_s[5:].tolist() == pytest.approx((ended[: n - 5] + 0.5).tolist())


def random_load(rng: np.random.Generator, n: int = 3000) -> Load:
    return Load(
        np.cumsum(rng.exponential(0.02, n)),
        rng.integers(1, 400, n).astype(np.int32),
        rng.integers(1, 120, n).astype(np.int32),
    )


@pytest.mark.parametrize("tick_s", [0.013, 0.5, 7.0])
def test_the_size_of_the_ticks_changes_nothing(tick_s):
    shape = physics(ranks=3, slots=8, kv_token_s=1e-7, prefill_flat_s=0.01, prefill_token_s=1e-5)
    whole = Engine(random_load(np.random.default_rng(3)), shape)
    whole.run()
    parts = Engine(random_load(np.random.default_rng(3)), shape)
    until_s = 0.0
    while parts.state["completed"] < 3000:
        until_s += tick_s
        parts.advance(until_s)
    assert np.allclose(whole.finish_s, parts.finish_s, rtol=0, atol=1e-9)
    assert whole.itl_counts.tolist() == parts.itl_counts.tolist()


def test_every_token_and_request_is_counted_once():
    requests = random_load(np.random.default_rng(5))
    engine = Engine(requests, physics(ranks=2, slots=8, prefill_flat_s=0.01, prefill_token_s=1e-5))
    engine.run()
    assert engine.state["output_tokens"] == requests.output_tokens.sum()
    assert engine.state["prompt_tokens"] == requests.prompt_tokens.sum()
    assert engine.ttft_counts.sum() == len(requests.arrival_s)
    assert engine.itl_counts.sum() == (requests.output_tokens - 1).sum() == engine.itl_fine.sum()
    assert engine.state["kv_tokens"] == 0
    assert not engine.ranks["admitted"].any()


def test_a_stall_stops_every_token_and_takes_nothing_in():
    engine = Engine(load((0, 1, 11), (0.5, 1, 1)), physics())
    engine.advance(0.15)
    engine.stall(2.0)
    engine.advance(1.9)
    assert np.isnan(engine.finish_s).all()
    engine.run()
    # A step was in progress: it ends at 0.151, so five decode steps are left after the pause.
    assert engine.first_s[1] == pytest.approx(2.0 + 0.101)


def test_a_closed_door_turns_away_or_queues():
    requests = [(0.0, 1, 1), (1.0, 1, 1), (3.0, 1, 1)]
    for reject, outcomes in ((True, [COMPLETED, REJECTED, COMPLETED]), (False, [COMPLETED] * 3)):
        engine = Engine(load(*requests), physics())
        engine.advance(0.5)
        engine.close(0.5)
        engine.advance(2.0)
        assert engine.open(2.0, reject=reject) == int(reject)
        engine.run()
        assert engine.outcome.tolist() == outcomes
        if reject:
            assert engine.finish_s[1] == 1.0
        else:
            assert engine.first_s[1] == pytest.approx(2.101)


def test_dropped_ranks_lose_their_requests_and_the_others_go_on():
    engine = Engine(load(*[(0, 1, 100)] * 6), physics(ranks=2, slots=2))
    engine.advance(0.5)
    assert engine.drop(1, 9.0) == 3  # two running, one waiting
    engine.change(physics(ranks=1, slots=2))
    engine.run()
    assert sorted(engine.outcome.tolist()) == [COMPLETED] * 3 + [ABORTED] * 3
    assert set(engine.finish_s[engine.outcome == ABORTED]) == {9.0}
    assert engine.state["kv_tokens"] == 0


def test_ranks_with_work_cannot_vanish():
    engine = Engine(load(*[(0, 1, 100)] * 6), physics(ranks=2, slots=2))
    engine.advance(0.5)
    with pytest.raises(ValueError, match="drained or dropped"):
        engine.change(physics(ranks=1, slots=2))


def test_a_drained_rank_gets_nothing_new():
    engine = Engine(load(*[(0.2 * k, 1, 20) for k in range(20)]), physics(ranks=2, slots=4))
    engine.advance(0.35)
    engine.drain(1)
    engine.advance(1.5)
    assert engine.drained
    engine.change(physics(ranks=1, slots=4))
    engine.run()
    assert (engine.outcome == COMPLETED).all()


def test_new_ranks_take_new_requests():
    engine = Engine(load(*[(0.1 * k, 1, 50) for k in range(20)]), physics(slots=2), max_ranks=3)
    engine.advance(0.5)
    engine.change(physics(ranks=3, slots=2))
    engine.run()
    assert (engine.outcome == COMPLETED).all()


def test_a_decode_table_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match=r"slots_per_rank \+ 1 = 5"):
        Physics(1, 4, np.zeros(4))
