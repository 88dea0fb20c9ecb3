"""The target that is never written."""

from typing import Any

import pytest

from autoscaler.controller import Controller
from autoscaler.errors import ConfigError
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Metrics, Observation, SetOutcome, SetResult, Signal, Slo
from autoscaler.parameters import from_mapping
from autoscaler.policies.static import Params as Width
from autoscaler.policies.static import Static
from autoscaler.targets import dry_run
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, check_target


class Log:
    def __init__(self) -> None:
        self.seen: list[tuple[Decision, SetOutcome | None]] = []

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
    ) -> None:
        self.seen.append((decision, outcome))


def test_the_loop_records_what_it_would_write_and_waits_for_nothing() -> None:
    clock, log = ManualClock(), Log()
    real = FakeTarget(clock)
    source = FakeSource(Metrics(30.0, queue_depth=Signal(5.0)))
    controller = Controller(Static(Width(4)))
    loop = ControlLoop(source, dry_run.DryRun(real), controller, clock, log, Slo())
    for _ in range(30):
        loop.tick()
        clock.advance(60.0)
    assert real.writes == []
    assert {decision.width for decision, _ in log.seen} == {4}
    said = SetOutcome(SetResult.SKIPPED, detail="dry run: would have written 2 -> 4")
    assert {outcome for _, outcome in log.seen} == {said}
    assert controller.resize is None
    assert loop.ready


def test_keeps_the_contract_of_its_port() -> None:
    check_target(dry_run.DryRun(FakeTarget(ManualClock())), write=False)


def test_is_built_around_any_other_kind() -> None:
    of = {"kind": "ray_serve", "url": "http://head:8265", "application": "a", "deployment": "b"}
    params = {"of": {**of, "max_width": 4, "gpus_per_width": 8}}
    target = dry_run.build(from_mapping(dry_run.Params, params, "here"))
    assert target.capabilities().gpus_per_width == 8


@pytest.mark.parametrize("of", [{}, {"kind": "dry_run"}, {"kind": 1}, {"kind": "nothing"}])
def test_a_kind_that_does_not_exist_is_named(of: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="kind"):
        dry_run.build(from_mapping(dry_run.Params, {"of": of}, "here"))
