"""A cluster with the CRDs, an engine behind the operator's stand-in, and ``autoscaler run``."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.emulator.operator import Operator, Pace
from autoscaler.emulator.operator_engine import HttpEngine
from autoscaler.objects.resource import API_VERSION, PLURAL
from autoscaler.sim.resize import ResizeModel
from autoscaler.testing_apiserver import ApiServer
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, deployment
from tests.e2e.emulator.worlds import Caller, emulated, until
from tests.e2e.live.story import engine_profile, ramp
from tests.e2e.run.conftest import Process, World

OUR_CRD = Path(__file__).parents[3] / "deploy" / "base" / "width-autoscaler-crd.yaml"
SCALE, TICK_S, PASS_S = 20.0, 0.3, 0.4
RESIZE = ResizeModel("prepares beside", 20.0, 10.0, 10.0, new="reject", leaving="abort")
LOAD = ramp((0, 4), (4000, 4))
GUARDS = {
    "min_width": 2,
    "max_width": 4,
    "settle_s": 0.0,
    "cooldown_down_s": 0.0,
    "scale_down_window_s": 0.0,
}
PACE = Pace(1.0, 2.0, 3.0)


@dataclass
class Cluster:
    """What there is, and what people do with it."""

    api: ApiServer
    engine: Caller
    files: World

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {
            "source": {
                "kind": "scrape",
                "urls": [f"{self.engine.url}/metrics"],
                "scrape_interval_s": TICK_S,
                "timeout_s": 0.25,
            },
            "target": {"kind": "gpustack", "name": NAME, "timeout_s": 0.25},
            "policy": "static:3",
            "slo": {"ttft_p95_s": 5.0, "window_s": 3.0},
            "guards": GUARDS,
            **changes,
        }

    @property
    def kind(self) -> Any:
        return self.api.store.resource(API_VERSION, PLURAL)

    def create(self, name: str, spec: dict[str, Any]) -> None:
        self.api.store.create(self.kind, NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def edit(self, name: str, **changes: Any) -> None:
        def change(found: dict[str, Any]) -> dict[str, Any]:
            found["spec"] |= changes
            return found

        self.api.store.change(self.kind, NAMESPACE, name, change)

    def delete(self, name: str) -> None:
        self.api.store.delete(self.kind, NAMESPACE, name)

    def status(self, name: str) -> dict[str, Any]:
        found = self.api.store.get(self.kind, NAMESPACE, name).get("status")
        return found or {}

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        for one in self.status(name).get("conditions", ()):
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def width(self) -> int:
        models = self.api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        found = self.api.store.get(models, NAMESPACE, NAME)
        return int(found["spec"]["roles"][0]["elasticEp"]["width"])

    def status_writes(self) -> int:
        return sum(r.method == "PATCH" and r.path.endswith("/status") for r in self.api.requests)

    def run(self) -> Process:
        return self.files.start()

    def wait(self, happened: Any, limit_s: float = 20.0) -> None:
        until(happened, limit_s)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    over = threading.Event()
    clock = ScaledClock(SystemClock(), SCALE)
    options = {"profile": engine_profile(), "resize": RESIZE, "trace": LOAD}
    with (
        ApiServer() as api,
        emulated(2, version="0.30", time_scale=SCALE, max_width=4, **options) as engine,
    ):
        api.install(CRD)
        api.install(OUR_CRD)
        models = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        arguments = ("--elastic-ep-max-dp-size", "4")
        api.store.create(models, NAMESPACE, deployment(2, arguments))
        kubeconfig = api.kubeconfig(folder / "kubeconfig")
        connection = Connection(Access(kubeconfig))
        operator = Operator(connection, NAMESPACE, HttpEngine(engine.url), clock, PACE)
        operator.run_once()

        def operate() -> None:
            while not over.wait(PASS_S):
                operator.run_once()

        thread = threading.Thread(target=operate, daemon=True)
        thread.start()
        files = World(folder)
        objects = {
            "enabled": True,
            "namespaces": [NAMESPACE],
            "kubeconfig": kubeconfig,
            "timeout_s": 0.25,
        }
        files.save(tick_s=TICK_S, objects=objects)
        try:
            yield Cluster(api, engine, files)
        finally:
            for process in files.processes:
                process.close()
            over.set()
            thread.join(25)
            connection.close()
