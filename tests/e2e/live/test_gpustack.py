"""The real loop and the GPUStack target, with an operator that drives an engine over HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoscaler import limits, policy_file
from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.controller import Controller
from autoscaler.convergence import Params as Patience
from autoscaler.decisions import JsonlLog, read
from autoscaler.emulator.faults import Faults
from autoscaler.emulator.operator import Operator
from autoscaler.emulator.operator_engine import HttpEngine
from autoscaler.errors import TargetError
from autoscaler.loop import ControlLoop
from autoscaler.model import Slo
from autoscaler.ports import SourceContext
from autoscaler.sim.resize import ResizeModel
from autoscaler.sources import scrape
from autoscaler.steering import Steering
from autoscaler.targets import gpustack
from autoscaler.testing_apiserver import ApiServer
from autoscaler.wiring import replayed
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, deployment
from tests.adapters.prometheus.servers import free_port
from tests.e2e.emulator.worlds import Caller, emulated
from tests.e2e.live.story import engine_profile, ramp

TIME_SCALE, TICK_S, PASS_S = 20.0, 5.0, 15.0
RESIZE = ResizeModel(
    "prepares beside the traffic, then 503s", 100.0, 30.0, 30.0, new="reject", leaving="abort"
)
POLICY = "kind: threshold\nqueue_high_per_width: 4\nup_for_s: 5\nstep_up: 2\n"
LOAD = ramp((0, 12), (40, 12), (60, 22), (4000, 22))


@dataclass
class Tick:
    """What was so when a tick was over."""

    code: str
    state: str
    phase: str
    effective: int | None
    layers: tuple[int | None, ...]
    engine: dict[str, Any]


@dataclass
class Stack:
    """Engine, operator, API server and loop; the operator has a thread of its own."""

    engine: Caller
    api: ApiServer
    loop: ControlLoop
    log: Path
    ticks: list[Tick] = field(default_factory=list)
    commands: list[int] = field(default_factory=list)

    def run(self, duration_s: float, until: str) -> None:
        """Run until the controller's state is ``until`` after something else."""
        kind = self.api.store.resource("worker.gpustack.ai/v1", "modeldeployments")

        def look() -> None:
            found = self.api.store.get(kind, NAMESPACE, NAME)
            obs, decision = self.loop.observation, self.loop.decision
            assert decision is not None
            state = self.loop.controller.convergence.state.value
            self.ticks.append(
                Tick(
                    decision.code,
                    state,
                    found["status"]["phase"],
                    None if obs is None else obs.width.effective,
                    () if obs is None else tuple(layer.value for layer in obs.width.layers),
                    self.engine.state(),
                )
            )
            before = {tick.state for tick in self.ticks[:-1]}
            if state == until and "resizing" in before:
                self.loop.stop()

        self.loop.run(self.loop.clock.now_s() + duration_s, look)

    @property
    def patches(self) -> list[int]:
        """Widths that the deployment was patched to."""
        return [
            json.loads(request.body)[-1]["value"]
            for request in self.api.requests
            if request.method == "PATCH" and request.path.endswith(f"modeldeployments/{NAME}")
        ]


@contextmanager
def stacked(folder: Path, faults: Faults | None = None) -> Iterator[Stack]:
    real = SystemClock()
    clock = ScaledClock(real, TIME_SCALE)
    slo, over = Slo(), threading.Event()
    options = {"profile": engine_profile(), "resize": RESIZE, "trace": LOAD, "faults": faults}
    with (
        ApiServer(clock) as api,
        emulated(2, version="0.30", time_scale=TIME_SCALE, max_width=4, **options) as call,
        (folder / "decisions.jsonl").open("w", encoding="utf-8") as lines,
    ):
        api.install(CRD)
        kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        arguments = ("--elastic-ep-max-dp-size", "4")
        api.store.create(kind, NAMESPACE, deployment(2, arguments))
        kubeconfig = api.kubeconfig(folder / "kubeconfig")

        class Engine(HttpEngine):
            def scale(self, width: int) -> Any:
                stack.commands.append(width)
                return super().scale(width)

        connection = Connection(Access(kubeconfig))
        operator = Operator(connection, NAMESPACE, Engine(call.url, answer_timeout_s=20.0), clock)

        def operate() -> None:
            while not over.wait(PASS_S / TIME_SCALE):
                operator.run_once()

        target = gpustack.build(
            gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig, timeout_s=0.5)
        )
        source = scrape.build(
            scrape.Params((f"{call.url}/metrics",), scrape_interval_s=TICK_S),
            SourceContext(
                slo, clock, lambda: loop.observation and loop.observation.width.effective
            ),
        )
        policy = folder / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        steering = Steering(
            policy_file.load(str(policy)),
            slo,
            TICK_S,
            limits.Params(min_width=2, max_width=4),
            Patience(),
        )
        controller: Controller = steering.build()
        log = JsonlLog(lines, steering.describe("chat"))
        loop = ControlLoop(source, target, controller, clock, log, slo, TICK_S)
        stack = Stack(call, api, loop, folder / "decisions.jsonl")
        operator.run_once()
        thread = threading.Thread(target=operate, daemon=True)
        thread.start()
        try:
            yield stack
        finally:
            over.set()
            thread.join(25)
            target.close()
            connection.close()
            assert not thread.is_alive()


def replay_is_equal(stack: Stack) -> None:
    result = replayed.replay(stack.log, lambda notice: None)
    assert not result.differences
    assert result.equal == result.decisions == len(list(read(stack.log)))


def test_a_ramp_is_answered_and_the_five_layers_are_believed_not_the_phase_A01(
    tmp_path: Path,
) -> None:
    with stacked(tmp_path) as stack:
        stack.run(700.0, "converged")
    assert stack.patches == [4]
    assert stack.commands == [4]
    asked = next(i for i, tick in enumerate(stack.ticks) if tick.state == "resizing")
    during, last = stack.ticks[asked:-1], stack.ticks[-1]
    assert {tick.phase for tick in during} == {"Ready"}, "it says so from the first second on"
    assert len(during) * TICK_S > 100, "the preparation alone takes longer"
    assert {tick.state for tick in during} == {"resizing"}
    assert 4 not in {tick.effective for tick in during}
    # The members are there long before the engine serves with them.
    assert any(tick.layers[1:4] == (4, 4, 4) and tick.effective != 4 for tick in during)
    assert (last.state, last.effective, last.engine["width"]) == ("converged", 4, 4)
    assert last.layers == (4,) * len(last.layers)
    assert len(last.layers) >= 5
    # What was proven may be a pass old, but is never more than what serves.
    assert all((tick.effective or 0) <= tick.engine["width"] for tick in stack.ticks)
    replay_is_equal(stack)


def test_a_refusal_of_the_engine_is_the_operators_to_retry_and_ours_to_wait_for(
    tmp_path: Path,
) -> None:
    with stacked(tmp_path, Faults(resize="refuse")) as stack:
        stack.run(900.0, "converged")
    assert stack.patches == [4]
    assert stack.commands == [4, 4]
    reasons = [entry.obs.width.detail for entry in read(stack.log) if entry.obs]
    assert any("native failure: 500 Scale failed; next attempt in" in text for text in reasons)
    assert stack.ticks[-1].effective == stack.ticks[-1].engine["width"] == 4


def test_a_replaced_instance_boots_over_http(tmp_path: Path) -> None:
    with emulated(2, profile=engine_profile(), resize=RESIZE, max_width=4) as call:
        engine = HttpEngine(call.url)
        assert engine.width() == 2
        assert not engine.scaling()
        engine.boot(3)
        assert engine.width() == 3
    assert engine.width() is None
    assert engine.scale(4).status is None
    assert not engine.scaling()


def test_what_cannot_be_reached_is_a_target_error() -> None:
    with pytest.raises(TargetError, match="POST /_emulator/restart: no connection"):
        HttpEngine(f"http://127.0.0.1:{free_port()}").boot(2)
