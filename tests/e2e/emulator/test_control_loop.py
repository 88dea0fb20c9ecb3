"""The real control loop, scraper and target against the emulated engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from autoscaler import limits
from autoscaler.clock import SystemClock
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as Patience
from autoscaler.emulator.faults import Faults
from autoscaler.engine.fleet import Load
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Observation, SetOutcome, Slo
from autoscaler.policies import static
from autoscaler.ports import PolicyContext, SourceContext
from autoscaler.sources import scrape
from autoscaler.targets import vllm
from tests.e2e.emulator.worlds import Caller, emulated

TICK_S = 0.25
SLO = Slo(window_s=30.0)


class Log:
    """Keeps what was recorded."""

    def __init__(self) -> None:
        self.rows: list[tuple[Decision, Observation | None, SetOutcome | None]] = []

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        *_: Any,
        **__: Any,
    ) -> None:
        self.rows.append((decision, obs, outcome))

    @property
    def writes(self) -> list[int]:
        return [d.width for d, _, outcome in self.rows if outcome is not None and d.width]

    @property
    def codes(self) -> list[str]:
        return [decision.code for decision, _, _ in self.rows]


def steady_load(seconds: float = 2000.0) -> Load:
    n = int(seconds * 4)
    return Load(np.arange(n) / 4, np.full(n, 10, np.int32), np.full(n, 20, np.int32))


@contextmanager
def controlled(
    width: int = 4, **options: Any
) -> Iterator[tuple[Caller, ControlLoop, Log, vllm.Vllm]]:
    """A loop that wants ``width``, on an engine at 2; 40 simulated seconds a real one."""
    with emulated(2, time_scale=40.0, trace=steady_load(), **options) as call:
        clock = SystemClock()
        target = vllm.build(
            vllm.Params(url=call.url, max_width=4, gpus_per_width=1, timeout_s=0.2,
                        answer_timeout_s=5.0, lost_after_s=2.0)
        )  # fmt: skip
        parameters = scrape.Params(
            urls=(f"{call.url}/metrics",), scrape_interval_s=TICK_S, timeout_s=0.2
        )
        source = scrape.build(parameters, SourceContext(SLO, clock, lambda: None))
        policy = static.build(static.Params(width=width), PolicyContext(SLO, TICK_S))
        guards = Guards(limits.Params(min_width=2, max_width=4, settle_s=0.3))
        controller = Controller(policy, guards, Convergence(Patience(timeout_s=20.0)))
        log = Log()
        yield call, ControlLoop(source, target, controller, clock, log, SLO, TICK_S), log, target


def run(loop: ControlLoop, seconds: float, until_stage: str | None = None) -> None:
    """Run, no longer than until the convergence says ``until_stage`` of a resize of ours."""

    def enough() -> None:
        log = loop.log
        assert isinstance(log, Log)
        stages = {stage.code for stage in log.rows[-1][0].trail}
        if log.writes and until_stage in stages:
            loop.stop()

    loop.run(loop.clock.now_s() + seconds, enough)


def test_the_loop_widens_holds_through_the_503s_and_converges_once_A36():
    with controlled() as (call, loop, log, _):
        run(loop, 12.0, "converged")
        assert log.writes == [4]
        asked = next(i for i, row in enumerate(log.rows) if row[2] is not None)
        during = log.rows[asked + 1 : -1]
        assert {d.code for d, _, _ in during} <= {"resizing", "target_unreadable"}
        assert any("503" in d.reason for d, _, _ in during)
        last = log.rows[-1]
        assert last[1] is not None
        assert last[1].width.effective == 4
        assert call.state()["width"] == 4


def test_a_hang_is_not_answered_with_a_second_resize_A05():
    faults = Faults(resize="hang", resize_times=9)
    with controlled(faults=faults, version="0.30") as (call, loop, log, _):
        run(loop, 4.0)
        assert log.writes == [4]
        assert call.state()["phase"] == "preparing"
        assert "resizing" in log.codes


def test_a_commit_that_fails_is_named_and_the_real_width_counts_A20():
    with controlled(faults=Faults(resize="fail_commit", resize_times=9)) as (call, loop, log, _):
        run(loop, 8.0, "failed")
        assert log.writes == [4]
        reasons = [stage.reason for d, _, _ in log.rows for stage in d.trail]
        assert any("500 Scale failed; asked for 4" in reason for reason in reasons)
        assert call.state()["width"] == 2
