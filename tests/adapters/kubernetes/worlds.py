"""A deployment, its operator and its controller around a fake API server, on a manual clock."""

import json
from pathlib import Path
from typing import Any

from autoscaler.cluster.connection import Access, Connection
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as Patience
from autoscaler.emulator.operator import Answer, Operator, Pace
from autoscaler.guards import Guards
from autoscaler.keeping import Keeper
from autoscaler.limits import Params as Limits
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Metrics, Observation, SetOutcome, Signal, Slo, Stage
from autoscaler.policies.static import Params as Width
from autoscaler.policies.static import Static
from autoscaler.targets import gpustack
from autoscaler.testing import FakeSource, ManualClock
from autoscaler.testing_apiserver import ApiServer

CRD = Path(__file__).parents[2] / "data" / "apiserver" / "modeldeployment-crd.yaml"
NAMESPACE, NAME = "gpustack-bench", "b2-elastic-ep"
EPOCH_S = 1_764_000_000.0
ARGUMENTS = ("--tensor-parallel-size", "2", "--elastic-ep-max-dp-size", "8")


def deployment(width: int = 2, arguments: tuple[str, ...] = ARGUMENTS) -> dict[str, Any]:
    role = {
        "name": "server",
        "kind": "Server",
        "replicas": 1,
        "size": 1,
        "elasticEp": {"width": width},
        "extraArgs": list(arguments),
    }
    return {"metadata": {"name": NAME}, "spec": {"roles": [role]}}


class StubEngine:
    """Resizes in ``resize_s``, unless it is told to answer otherwise."""

    def __init__(self, clock: ManualClock, width: int = 2, resize_s: float = 150.0) -> None:
        self.clock, self.resize_s = clock, resize_s
        self.answers: list[Answer] = []
        self.commands: list[int] = []
        self.flaky = False
        self._width, self._target, self._due_s = width, width, 0.0

    def scale(self, width: int) -> Answer:
        self.commands.append(width)
        if self.answers:
            return self.answers.pop(0)
        self._target, self._due_s = width, self.clock.now_s() + self.resize_s
        return Answer(200, f"Scaled to {width} data parallel engines")

    def width(self) -> int | None:
        if self.flaky or self.scaling():
            return None
        self._width = self._target
        return self._width

    def scaling(self) -> bool:
        return self._target != self._width and self.clock.now_s() < self._due_s

    def boot(self, width: int) -> None:
        self._width = self._target = width


class Log:
    """Keeps what the loop records."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.outcomes: list[SetOutcome] = []
        self.observations: list[Observation | None] = []

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
    ) -> None:
        self.decisions.append(decision)
        self.observations.append(obs)
        if outcome is not None:
            self.outcomes.append(outcome)


def said(decision: Decision) -> Stage:
    """What convergence said in a tick; the whole decision where nothing could be read."""
    return next(s for s in decision.trail if s.name in ("convergence", "loop"))


class World:
    """Everything, with a policy that wants one width for good."""

    def __init__(
        self,
        api: ApiServer,
        clock: ManualClock,
        folder: Path,
        *,
        wanted: int = 4,
        pace: Pace | None = None,
        timeout_s: float = 1200.0,
        remembers: bool = False,
        limits: dict[str, Any] | None = None,
        **params: Any,
    ) -> None:
        self.api, self.clock = api, clock
        self.kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        self.maps = api.store.resource("v1", "configmaps")
        self.created = api.store.create(self.kind, NAMESPACE, deployment())
        self.uid = self.created["metadata"]["uid"]
        kubeconfig = api.kubeconfig(folder / "kubeconfig")
        self.engine = StubEngine(clock)
        self.operations = Connection(Access(kubeconfig))
        self.operator = Operator(self.operations, NAMESPACE, self.engine, clock, pace)
        self.params = gpustack.Params(NAMESPACE, NAME, kubeconfig=kubeconfig, **params)
        self.wanted, self.timeout_s, self.remembers = wanted, timeout_s, remembers
        self.limits = limits or {}
        self.target = gpustack.build(self.params)
        self.log = Log()
        self.start()
        self.operator.run_once()

    def start(self) -> None:
        """A new process; the one before may have ended anywhere."""
        self.target.close()
        self.target = gpustack.build(self.params)
        source = FakeSource(Metrics(30.0, queue_depth=Signal(5.0), ttft_p95_s=Signal(1.0)))
        free = {"min_width": 2, "cooldown_down_s": 0.0, "scale_down_window_s": 0.0}
        controller = Controller(
            Static(Width(self.wanted)),
            Guards(Limits(**{**free, **self.limits})),
            Convergence(Patience(timeout_s=self.timeout_s)),
        )
        keeper = Keeper(self.target, lambda: EPOCH_S) if self.remembers else None
        self.loop = ControlLoop(
            source, self.target, controller, self.clock, self.log, Slo(), keeper=keeper
        )

    def close(self) -> None:
        self.operations.close()
        self.target.close()

    def run(self, duration_s: float, *, operator: bool = True) -> list[str]:
        """Let time pass: a tick every 5 s, a pass every 15 s; returns what convergence said."""
        first = len(self.log.decisions)
        for tick in range(round(duration_s / 5)):
            if operator and tick % 3 == 2:
                self.operator.run_once()
            self.loop.tick()
            self.clock.advance(5.0)
        return [said(decision).code for decision in self.log.decisions[first:]]

    def run_until(self, code: str, limit_s: float = 2000.0) -> Stage:
        """Let time pass until convergence says this."""
        for _ in range(round(limit_s / 15)):
            if code in self.run(15.0):
                return next(said(d) for d in reversed(self.log.decisions) if said(d).code == code)
        raise AssertionError(f"no {code!r} in {limit_s} s; last: {self.last}")

    @property
    def last(self) -> Stage:
        """What convergence said in the last tick."""
        return said(self.log.decisions[-1])

    @property
    def state(self) -> str:
        return self.loop.controller.convergence.state.value

    @property
    def writes(self) -> list[bytes]:
        """Bodies of the patches of the deployment itself."""
        return [
            r.body
            for r in self.api.requests
            if r.method == "PATCH" and r.path.endswith(f"modeldeployments/{NAME}")
        ]

    @property
    def widths(self) -> list[int]:
        """Widths that the deployment was patched to, whether it took them or not."""
        patches = [json.loads(body) for body in self.writes]
        return [patch[-1]["value"] for patch in patches if isinstance(patch, list)]

    def annotate(self, **switches: str | None) -> None:
        """An operator sets annotations of ours; None takes one away."""

        def change(found: dict[str, Any]) -> dict[str, Any]:
            held = found["metadata"].setdefault("annotations", {})
            for key, value in switches.items():
                held[f"autoscaling.elastic-width.io/{key}"] = value
                if value is None:
                    del held[f"autoscaling.elastic-width.io/{key}"]
            return found

        self.api.store.change(self.kind, NAMESPACE, NAME, change, manager="kubectl-annotate")

    def get(self) -> dict[str, Any]:
        return self.api.store.get(self.kind, NAMESPACE, NAME)

    def edit(self, width: int) -> None:
        """Somebody else changes the width."""

        def change(found: dict[str, Any]) -> dict[str, Any]:
            found["spec"]["roles"][0]["elasticEp"]["width"] = width
            return found

        self.api.store.change(self.kind, NAMESPACE, NAME, change, manager="gitops")

    def observation(self, **changes: Any) -> None:
        """Somebody rewrites fields of the observation document; None drops one."""

        def change(found: dict[str, Any]) -> dict[str, Any]:
            document = json.loads(found["data"]["observation.json"])
            for key, value in changes.items():
                if value is None:
                    document.pop(key)
                else:
                    document[key] = value
            found["data"]["observation.json"] = json.dumps(document)
            return found

        name = f"elastic-observation-{self.uid}"
        self.api.store.change(self.maps, NAMESPACE, name, change)
