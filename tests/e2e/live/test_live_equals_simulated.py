"""One scenario live over HTTP, in scaled time, and simulated: the same widths at the same times."""

from typing import Any

import numpy as np

from autoscaler import limits, policy_file
from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.controller import Controller
from autoscaler.decisions import MemoryLog
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.ports import PolicyContext, SourceContext
from autoscaler.scenario import Scenario
from autoscaler.sim.resize import ResizeModel
from autoscaler.sources import scrape
from autoscaler.targets import vllm
from autoscaler.targets._engine import EngineApi
from autoscaler.traces import Trace
from autoscaler.wiring.simulated import Run, play
from tests.e2e.emulator.worlds import emulated
from tests.e2e.live.story import engine_profile, ramp

TIME_SCALE = 20.0
END_S = 800.0
LOAD = ramp(
    (0, 12), (40, 12), (60, 22), (220, 22), (240, 32), (400, 32), (420, 10), (END_S, 10)
)  # fmt: skip
SCENARIO = Scenario(min_width=2, max_width=4, initial_width=2)
RESIZE = ResizeModel("prepares beside the traffic", 30.0, 0.82, 1.96)
POLICY = """
kind: threshold
queue_high_per_width: 4
up_for_s: 5
down_for_s: 10
step_down: 2
"""

Changes = list[tuple[float, int]]


def asked_for(log: MemoryLog, offset_s: float) -> Changes:
    """When which width was asked for, in seconds since the trace began."""
    return [
        (entry.decision.at_s + offset_s, entry.decision.width)
        for entry in log.entries
        if entry.outcome is not None and entry.decision.width is not None
    ]


def proven(log: MemoryLog, offset_s: float) -> Changes:
    """When which width was seen to serve first."""
    found: Changes = []
    for entry in log.entries:
        width = None if entry.obs is None else entry.obs.width.effective
        if width is not None and (not found or found[-1][1] != width):
            found.append((entry.decision.at_s + offset_s, width))
    return found


def simulated(policy: Any) -> MemoryLog:
    log = MemoryLog()
    trace = Trace(LOAD.arrival_s, LOAD.prompt_tokens, LOAD.output_tokens)
    run = Run(engine_profile(), policy, 2, 2, 4)
    play(SCENARIO, trace, run, RESIZE, log)
    return log


def live(policy: Any) -> tuple[MemoryLog, float, float]:
    """The log, what to add to its times to get the trace's, and how late a tick began at most."""
    log, slo, tick_s = MemoryLog(), SCENARIO.slo, SCENARIO.tick_s
    profile = engine_profile()
    clock = ScaledClock(SystemClock(), TIME_SCALE)
    options = {"profile": profile, "resize": RESIZE, "trace": LOAD}
    with emulated(2, version="0.30", time_scale=TIME_SCALE, max_width=4, **options) as call:
        loop: ControlLoop
        source = scrape.build(
            scrape.Params((f"{call.url}/metrics",), scrape_interval_s=tick_s),
            SourceContext(
                slo, clock, lambda: loop.observation and loop.observation.width.effective
            ),
        )
        target = vllm.Vllm(
            vllm.Params(call.url, 4, profile.gpus(1), 2, can_shrink=True, timeout_s=0.15),
            EngineApi(call.url, None, None),
            clock,
        )
        built = policy.build(PolicyContext(slo, tick_s, profile))
        guards = Guards(limits.Params(min_width=2, max_width=4))
        loop = ControlLoop(source, target, Controller(built, guards), clock, log, slo, tick_s)
        offset_s = call.state()["now_s"] - clock.now_s()
        late_s: list[float] = []
        loop.run(END_S - offset_s, lambda: late_s.append(loop.lateness_s))
    return log, offset_s, max(late_s)


def test_live_and_simulated_ask_for_the_same_widths_within_two_ticks_S06_S18(tmp_path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    policy = policy_file.load(str(path))
    expected = simulated(policy)
    happened, offset_s, late_s = live(policy)
    if late_s > SCENARIO.tick_s:
        # Somebody else had the machine for a quarter of a second: that is not what is compared.
        happened, offset_s, late_s = live(policy)
    for told in (asked_for, proven):
        simulated_ones = [change for change in told(expected, 0.0) if change[0] < END_S - 20]
        live_ones = told(happened, offset_s)
        assert [w for _, w in live_ones] == [w for _, w in simulated_ones]
        apart_s = np.subtract([at for at, _ in live_ones], [at for at, _ in simulated_ones])
        first = 1 if told is proven else 0  # the first proof is the beginning
        # In whole ticks: those of the live loop begin a fraction of one later.
        ticks = np.round(apart_s[first:] / SCENARIO.tick_s)
        assert np.all(np.abs(ticks) <= 2), apart_s
    assert [w for _, w in asked_for(happened, offset_s)] == [3, 4, 2]
