"""Every shipped policy behind the guards on silence, idleness and nonsense: what is written."""

import time
from pathlib import Path

import pytest

import autoscaler.policies
from autoscaler import limits, policy_file, profiles
from autoscaler.controller import Controller
from autoscaler.decisions import MemoryLog
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import Capabilities, Signal, SignalStatus, Slo, Tristate
from autoscaler.ports import PolicyContext
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation

MODULES = sorted(
    path.stem
    for path in Path(autoscaler.policies.__path__[0]).glob("*.py")
    if not path.stem.startswith("_")
)
DECIDING = [kind for kind in MODULES if kind not in ("hold", "static", "schedule")]
"""Those that look at what is measured: ``schedule`` leaves that to the policy inside it."""

TICK_S = 5.0
HOUR = 720
"""Ticks."""
NONE = Signal(None, SignalStatus.NO_OBSERVATIONS)
LOADED = {
    "arrival_rps": 17.0,
    "completion_rps": 17.0,
    "running": 44.0,
    "queue_depth": 0.0,
    "queue_wait_s": 0.0,
    "ttft_p95_s": 1.2,
    "prompt_tokens_mean": 1024.0,
    "output_tokens_mean": 256.0,
    "kv_cache_usage_ratio": 0.6,
}
"""What width 4 of the profile serves without a queue, and width 3 would not."""
IDLE = {
    "arrival_rps": 0.0,
    "completion_rps": 0.0,
    "running": 0.0,
    "queue_depth": 0.0,
    "queue_wait_s": 0.0,
    "ttft_p95_s": NONE,
    "ttft_observations": 0.0,
    "prompt_tokens_mean": NONE,
    "output_tokens_mean": NONE,
    "kv_cache_usage_ratio": 0.0,
}
"""0/0 is no number, and it is known that nothing came."""


class World:
    """A policy in the loop, with a target that does what it is told."""

    def __init__(self, kind, width, low=2):
        self.clock = ManualClock()
        can = Capabilities(low, 8, can_shrink=Tristate.YES)
        self.target = FakeTarget(self.clock, width, 60.0, can)
        self.source = FakeSource(observation().metrics)
        self.log = MemoryLog()
        context = PolicyContext(Slo(), TICK_S, profiles.load("assumed-wide"))
        self.policy = policy_file.load(kind).build(context)
        controller = Controller(self.policy, Guards(limits.Params(min_width=low)))
        self.loop = ControlLoop(
            self.source, self.target, controller, self.clock, self.log, Slo(), TICK_S
        )

    def ticks(self, count, signals):
        """Let so many ticks see these signals; what has been written in all."""
        self.source.metrics = observation(signals=signals).metrics
        self.loop.run(until_s=self.clock.now_s() + TICK_S * count - 1)
        self.clock.advance(TICK_S)
        return self.target.writes


@pytest.mark.parametrize("kind", DECIDING)
def test_known_idleness_leads_down_to_the_least_width_and_a_short_gap_to_nothing_M01(kind):
    world = World(kind, 4)
    before = list(world.ticks(HOUR // 3, LOADED))
    assert world.ticks(6, {**LOADED, "ttft_p95_s": NONE, "ttft_observations": 0.0}) == before
    assert world.ticks(6, LOADED) == before
    world.ticks(4 * HOUR, IDLE)
    assert world.target.effective == 2
    assert all(width >= 2 for width in world.target.writes)


UNKNOWN = Signal(None, SignalStatus.STALE)


@pytest.mark.parametrize("missing", ["ttft_p95_s", "queue_depth", "everything"])
@pytest.mark.parametrize("kind", DECIDING)
def test_missing_data_is_no_ground_for_less_however_quiet_the_rest_is_M04_M18_M21(kind, missing):
    world = World(kind, 4)
    quiet = {**IDLE, "ttft_p95_s": 0.1, "ttft_observations": 20.0, "arrival_rps": 0.5}
    blind = dict.fromkeys(quiet, UNKNOWN) if missing == "everything" else {missing: UNKNOWN}
    assert not [w for w in world.ticks(2 * HOUR, {**quiet, **blind}) if w < 4]
    world = World(kind, 4)  # and without it, the same quiet does lead down
    world.ticks(2 * HOUR, quiet)
    assert world.target.effective < 4


@pytest.mark.parametrize("kind", DECIDING)
def test_a_known_queue_grows_although_the_ttft_is_missing_M21(kind):
    world = World(kind, 2)
    world.ticks(60, {**LOADED, "arrival_rps": 9.0, "running": 24.0})
    queue = {"queue_depth": 400.0, "queue_wait_s": 40.0, "running": 32.0, "ttft_p95_s": UNKNOWN}
    world.ticks(HOUR // 2, {**LOADED, **queue, "completion_rps": 10.0, "arrival_rps": 20.0})
    assert world.target.effective > 2


@pytest.mark.parametrize("kind", DECIDING)
def test_no_demand_is_nothing_to_multiply_T02_T10(kind):
    world = World(kind, 2)
    assert world.ticks(HOUR, IDLE) == []
    off = World(kind, 0, low=0)  # width 0 and no demand: 2 x 0 is not 2
    assert off.ticks(HOUR, IDLE) == []
    codes = {entry.decision.code for entry in off.log.entries}
    assert all(entry.decision.reason for entry in off.log.entries), codes


@pytest.mark.parametrize("kind", DECIDING)
def test_a_single_request_each_minute_keeps_the_last_width_T08(kind):
    world = World(kind, 1, low=0)
    few = Signal(None, SignalStatus.FEW_SAMPLES)
    request = {**IDLE, "ttft_p95_s": few, "ttft_observations": 1.0, "arrival_rps": 1 / 30}
    for _ in range(60):
        world.ticks(1, {**request, "running": 1.0})
        world.ticks(5, request)
        assert world.ticks(6, IDLE) == []
    world.ticks(HOUR, IDLE)  # a gap longer than every delay is another matter
    assert set(world.target.writes) <= {0}


@pytest.mark.parametrize("width", [0, 2])
@pytest.mark.parametrize("kind", DECIDING)
def test_absurd_values_never_lead_to_less_and_never_beyond_the_bounds_T18(kind, width):
    world = World(kind, width, low=width)
    huge = dict.fromkeys(LOADED, 1e18)
    writes = world.ticks(HOUR // 4, huge)
    assert writes
    assert all(width < w <= 8 for w in writes)


@pytest.mark.parametrize("kind", DECIDING)
def test_idle_ticks_cost_no_more_than_10_ms_T26(kind):
    world = World(kind, 2)
    world.ticks(100, LOADED)  # what is compiled or read once
    began_s = time.process_time()  # what it costs is what is tested
    world.ticks(1000, IDLE)
    took_s = time.process_time() - began_s  # as above
    assert len(world.log.entries) == 1100
    assert took_s / 1000 < 0.010
