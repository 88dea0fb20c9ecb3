"""What one tick costs: threshold policy, guards, convergence, record to a list. Prints JSON.

CPU time, so that a busy machine does not show in it.

Run: python benchmarks/tick.py [ticks]
"""

import json
import sys
from time import process_time

from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.decisions import MemoryLog
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import (
    Capabilities,
    Layer,
    Metrics,
    Observation,
    SetOutcome,
    SetResult,
    Signal,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.policies import threshold
from autoscaler.ports import PolicyContext
from autoscaler.testing import FakeSource, FakeTarget, ManualClock

REPEATS = 5


def observations(ticks: int) -> list[Observation]:
    """A load that wanders through every regime of the policy at a steady width."""
    can = Capabilities(1, 8, can_shrink=Tristate.YES)
    names = ("desired", "admitted", "allocated", "ray")
    layers = tuple(Layer(name, 4) for name in names)
    width = WidthStatus(4, 4, 4, 7, 7, "uid", layers)
    made = []
    for i in range(ticks):
        ttft_s = (0.3, 2.0, 4.5, 2.0)[(i // 20) % 4]
        metrics = Metrics(
            30.0,
            ttft_p95_s=Signal(ttft_s),
            ttft_p95_penalised_s=Signal(ttft_s),
            queue_depth=Signal(3.0),
            queue_wait_s=Signal(0.2),
            arrival_rps=Signal(9.0),
        )
        made.append(Observation(i, 1_000.0 + 5.0 * i, metrics, width, can, Slo()))
    return made


def new_controller() -> Controller:
    """The reference: threshold policy, default guards."""
    policy = threshold.build(threshold.Params(), PolicyContext(Slo(), 5.0))
    return Controller(policy, Guards(), Convergence())


def controller_tick_us(made: list[Observation]) -> float:
    """Controller and record, best of some repeats, in microseconds."""
    best = float("inf")
    for _ in range(REPEATS):
        controller, log = new_controller(), MemoryLog()
        conflict = SetOutcome(SetResult.CONFLICT)
        began = process_time()
        for obs in made:
            decision = controller.step(obs)
            if decision.width is not None:
                controller.on_outcome(decision, conflict, obs)
            log.record(decision, obs, None, controller.policy.state())
        best = min(best, process_time() - began)
    return best / len(made) * 1e6


def loop_tick_us(made: list[Observation]) -> float:
    """The whole loop with fakes, resizes included, best of some repeats, in microseconds."""
    best = float("inf")
    for _ in range(REPEATS):
        clock = ManualClock()
        target = FakeTarget(clock, 4)
        metrics = iter(made)
        source = FakeSource(lambda metrics=metrics: next(metrics).metrics)
        loop = ControlLoop(source, target, new_controller(), clock, MemoryLog(), Slo(), 5.0)
        began = process_time()
        loop.run(until_s=clock.now_s() + 5.0 * len(made))
        best = min(best, process_time() - began)
    return best / len(made) * 1e6


def main() -> None:
    """Measure and print."""
    made = observations(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
    result = {
        "schema": "autoscaler.benchmark.tick/v1",
        "ticks": len(made),
        "controller_tick_us": round(controller_tick_us(made), 2),
        "loop_tick_us": round(loop_tick_us(made), 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
