"""Requests that are pushed while the engine runs are served as if they had been known."""

import numpy as np
import pytest

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import ABORTED, COMPLETED
from autoscaler.engine.live import LiveLoad, room
from autoscaler.engine.physics import Physics


def physics(ranks: int = 2, slots: int = 4) -> Physics:
    decode_s = np.array([0.0] + [0.01] * slots)
    return Physics(ranks, slots, decode_s, prefill_flat_s=0.02, prefill_token_s=1e-4)


def test_pushed_requests_are_served_like_known_ones():
    rng = np.random.default_rng(1)
    n = 500
    known = Load(
        np.cumsum(rng.exponential(0.05, n)),
        rng.integers(1, 300, n).astype(np.int32),
        rng.integers(1, 60, n).astype(np.int32),
    )
    whole = Engine(known, physics())
    whole.run()
    engine = Engine(room(8), physics())
    live = LiveLoad(engine)
    for i in range(n):
        engine.advance(known.arrival_s[i])
        live.push(known.arrival_s[i], int(known.prompt_tokens[i]), int(known.output_tokens[i]))
    engine.run()
    assert len(live) == n
    assert np.allclose(engine.finish_s[:n], whole.finish_s, rtol=0, atol=1e-9)


def test_tokens_so_far_follow_the_steps():
    engine = Engine(room(), physics())
    live = LiveLoad(engine)
    index = np.array([live.push(0.0, 100, 5), live.push(0.0, 100, 1), live.push(9.0, 1, 1)])
    assert live.next_s() == 0.0
    seen = []
    at_s = 0.0
    while at_s < 1.0:
        engine.advance(at_s)
        seen.append(tuple(live.produced(index)))
        at_s = max(live.next_s(), at_s + 1e-4)
    assert [t for t in dict.fromkeys(seen)] == [(n, min(n, 1), 0) for n in range(6)]  # noqa: C416
    assert live.next_s() == 9.0


def test_a_client_may_choose_the_rank():
    engine = Engine(room(), physics(ranks=4))
    live = LiveLoad(engine)
    index = np.array([live.push(0.0, 1, 9, rank) for rank in (2, 2, 2, None)])
    assert live.ranks(index).tolist() == [-1] * 4
    engine.advance(0.05)
    assert live.ranks(index).tolist() == [2, 2, 2, 0]
    assert engine.ranks["admitted"].tolist() == [1, 0, 3, 0]


def test_a_rank_that_takes_nothing_new_is_not_chosen():
    engine = Engine(room(), physics(ranks=2))
    live = LiveLoad(engine)
    engine.drain(1)
    index = np.array([live.push(0.0, 1, 9, 1)])
    engine.advance(0.05)
    assert live.ranks(index).tolist() == [0]


@pytest.mark.parametrize("victim", [0, 1, 2, 3, 4])
def test_a_cancelled_request_leaves_room_and_all_accounts_balance(victim):
    engine = Engine(room(), physics(ranks=1, slots=2))
    live = LiveLoad(engine)
    for _ in range(5):
        live.push(0.0, 10, 100)
    engine.advance(0.1)
    live.cancel(victim)
    engine.advance(0.12)
    ended = engine.outcome[victim]
    assert ended == (COMPLETED if victim < 2 else ABORTED)
    engine.run()
    others = [i for i in range(5) if i != victim]
    assert (engine.outcome[others] == COMPLETED).all()
    assert engine.state["kv_tokens"] == 0
    assert engine.state["waiting"] == engine.state["heap"] == 0
    assert not engine.ranks["admitted"].any()
    assert (
        engine.state["output_tokens"]
        == engine.output_tokens[: len(live)][engine.outcome[: len(live)] == COMPLETED].sum()
    )


def test_a_request_cancelled_on_its_way_in_ends_with_its_first_token():
    engine = Engine(room(), physics())
    live = LiveLoad(engine)
    index = live.push(1.0, 10, 100)
    live.cancel(index)
    engine.run()
    assert engine.output_tokens[index] == 1
    assert engine.finish_s[index] == engine.first_s[index]
