"""The fleet against textbook queues: with constant step times it is M/M/c and M/D/c.

One rank with c slots is one queue before c servers. A step of 1 ms against a service of 500 ms
keeps the boundary effect small: an arrival waits half a step for the next boundary, and the step
that prefills it is its first token. Both are known and taken off.
"""

import math

import numpy as np
import pytest

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.physics import Physics

STEP_S = 0.001
TOKENS = 500
REQUESTS = 6_000_000


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/c."""
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    top = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return top / (below + top)


def mean_wait_s(servers: int, load: float, output: np.ndarray, rng: np.random.Generator) -> float:
    rate = load * servers / (TOKENS * STEP_S)
    arrival_s = np.cumsum(rng.exponential(1 / rate, len(output)))
    physics = Physics(
        ranks=1,
        slots_per_rank=servers,
        decode_s=np.full(servers + 1, STEP_S),
        prefill_flat_s=STEP_S,
        token_budget=1 << 40,
    )
    engine = Engine(Load(arrival_s, np.ones(len(output), np.int32), output), physics)
    engine.run()
    # The first fifth is left out: it starts from an empty system.
    settled = slice(len(output) // 5, None)
    return float((engine.first_s - arrival_s)[settled].mean()) - 1.5 * STEP_S


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (16, 0.8)])
def test_mean_wait_is_that_of_m_m_c(servers, load):
    rng = np.random.default_rng(7)
    output = np.maximum(np.round(rng.exponential(TOKENS, REQUESTS)), 1).astype(np.int32)
    theory_s = erlang_c(servers, servers * load) * TOKENS * STEP_S / (servers * (1 - load))
    assert mean_wait_s(servers, load, output, rng) == pytest.approx(theory_s, rel=0.02)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_wait_is_that_of_m_d_1(load):
    rng = np.random.default_rng(11)
    output = np.full(REQUESTS, TOKENS, np.int32)
    theory_s = load * TOKENS * STEP_S / (2 * (1 - load))  # Pollaczek and Khinchine
    assert mean_wait_s(1, load, output, rng) == pytest.approx(theory_s, rel=0.02)


def m_d_c_wait_s(servers: int, load: float, service_s: float) -> float:
    """Mean wait in M/D/c by Cosmetatos' correction of M/M/c, good to well under 1 % here."""
    m_m_c = erlang_c(servers, servers * load) * service_s / (servers * (1 - load))
    excess = (1 - load) * (servers - 1) * (math.sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    return 0.5 * (1 + excess) * m_m_c


@pytest.mark.parametrize(("servers", "load"), [(4, 0.8), (8, 0.9)])
def test_mean_wait_is_that_of_m_d_c(servers, load):
    rng = np.random.default_rng(13)
    output = np.full(REQUESTS, TOKENS, np.int32)
    theory_s = m_d_c_wait_s(servers, load, TOKENS * STEP_S)
    assert mean_wait_s(servers, load, output, rng) == pytest.approx(theory_s, rel=0.02)
