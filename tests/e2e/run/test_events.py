"""``autoscaler run`` on a GPUStack deployment: what ``kubectl describe`` shows of it afterwards."""

import threading
from contextlib import contextmanager

import pytest

from autoscaler.clock import SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.emulator.operator import Operator, Pace
from autoscaler.testing_apiserver import ApiServer, Rule, User
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, StubEngine, deployment
from tests.unit.capacity.objects import a_node, a_pod

TICK_S = 0.5


class Cluster:
    """An API server, an operator's stand-in with a thread of its own, and a target's section."""

    def __init__(self, api, operator, kubeconfig):
        self.api, self.operator, self.kubeconfig = api, operator, kubeconfig
        self.target = {
            "kind": "gpustack",
            "namespace": NAMESPACE,
            "name": NAME,
            "kubeconfig": kubeconfig,
            "timeout_s": 0.45,
        }

    def events(self):
        """Reasons, oldest first."""
        kind = self.api.store.resource("events.k8s.io/v1", "events")
        found = sorted(self.api.store.list(kind, NAMESPACE), key=lambda e: e["eventTime"])
        return [event["reason"] for event in found]

    def notes(self, reason):
        kind = self.api.store.resource("events.k8s.io/v1", "events")
        return [e["note"] for e in self.api.store.list(kind, NAMESPACE) if e["reason"] == reason]


@contextmanager
def cluster(folder, pace=None, user=None):
    clock, over = SystemClock(), threading.Event()
    with ApiServer(clock) as api:
        api.install(CRD)
        kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        api.store.create(kind, NAMESPACE, deployment(2))
        connection = Connection(Access(api.kubeconfig(folder / "of-the-operator")))
        engine = StubEngine(clock, resize_s=1.0)
        operator = Operator(connection, NAMESPACE, engine, clock, pace or Pace(0.1, 0.2, 0.3))

        def operate():
            while not over.wait(0.2):
                operator.run_once()

        operator.run_once()
        thread = threading.Thread(target=operate, daemon=True)
        thread.start()
        token = "admin"  # noqa: S105  # opens nothing but the fake server
        if user is not None:
            token = user.name
            api.tokens[token] = user
        try:
            yield Cluster(api, operator, api.kubeconfig(folder / "kubeconfig", token))
        finally:
            over.set()
            thread.join(10)
            connection.close()
            assert not thread.is_alive()


@pytest.mark.parametrize("mode", ["events", "no_events", "dry_run"])
def test_a_resize_is_told_in_events_unless_nobody_wants_them_or_nothing_is_written(
    mode, world, tmp_path
):
    with cluster(tmp_path) as found:
        world.add_target("chat", target=found.target)
        world.save(tick_s=TICK_S, events={"enabled": mode != "no_events"})
        process = world.start(*(["--dry-run"] if mode == "dry_run" else []))
        done = (
            (lambda: len(world.entries()) >= 6) if mode == "dry_run" else lambda: converged(world)
        )
        world.await_true(done, 60.0)
        assert process.end() == 0
        if mode == "events":
            assert found.events() == ["ResizeRequested", "ResizeConverged"]
            assert found.notes("ResizeRequested")[0].startswith("width 2 -> 4: ")
        else:
            assert found.events() == []
        assert not process.events("events_lost")


def test_without_the_permission_the_loop_goes_on_and_says_so_once(world, tmp_path):
    rules = (
        Rule(("get", "patch"), ("worker.gpustack.ai",), ("modeldeployments",), (NAMESPACE,)),
        Rule(("get",), ("",), ("configmaps",), (NAMESPACE,)),
    )
    with cluster(tmp_path, user=User("limited", rules)) as found:
        world.add_target("chat", target=found.target)
        world.save(tick_s=TICK_S)
        process = world.start()
        world.await_true(lambda: converged(world), 60.0)
        lost = 'autoscaler_errors_total{class="TargetForbidden",port="events",target="chat"} 2.0'
        world.await_true(lambda: lost in process.page("/metrics").text)
        assert process.end() == 0
        assert len(process.events("events_lost")) == 1
        assert "cannot create resource" in process.events("events_lost")[0]["problem"]
        assert found.events() == []


def test_missing_gpus_are_told_and_when_they_come_the_growth_is_asked_for_A07(world, tmp_path):
    """The nodes are full, then one is added; the target cannot shrink, so that looking decides."""
    with cluster(tmp_path) as found:
        store = found.api.store
        nodes, pods = store.resource("v1", "nodes"), store.resource("v1", "pods")
        store.create(nodes, "", a_node("full", 4))
        labels = {"app.kubernetes.io/instance": NAME, "app.kubernetes.io/component": "server"}
        for i in range(2):
            store.create(pods, NAMESPACE, a_pod(f"rank-{i}", 2, node="full", labels=labels))
        world.add_target("chat", target=found.target)
        world.save(tick_s=TICK_S)
        process = world.start()
        world.await_true(lambda: found.events() == ["CapacityMissing"], 60.0)
        seen = len(world.entries())
        world.await_true(lambda: len(world.entries()) >= seen + 5, 60.0)
        assert {entry["outcome"] and entry["outcome"]["result"] for entry in world.entries()} == {
            None
        }
        (note,) = found.notes("CapacityMissing")
        assert note.startswith("4 more GPUs are needed for width 4, there are 0: 0 of 4 nvidia.com")

        store.create(nodes, "", a_node("new", 4))
        world.await_true(lambda: converged(world), 60.0)
        world.await_true(lambda: "ResizeConverged" in found.events())
        assert process.end() == 0
        assert found.events() == ["CapacityMissing", "ResizeRequested", "ResizeConverged"]


def converged(world):
    """Whether a tick has seen width 4 serve."""
    return any(
        (e["observation"] or {"width": {}})["width"].get("effective") == 4 for e in world.entries()
    )
