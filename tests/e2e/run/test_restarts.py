"""``autoscaler run`` is killed at each state of a resize; the next process goes on from there.

The API server, the operator's stand-in and both processes are real; SIGKILL leaves no time to say
anything. The operator and its engine live fifty times as fast, so that five refusals take seconds.
"""

import json
import signal
import threading
from contextlib import contextmanager

import pytest

from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.emulator.operator import Answer, Operator
from autoscaler.testing_apiserver import ApiServer, Fault
from autoscaler.wiring import replayed
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, StubEngine, deployment

from .conftest import FREE

SPEED = 50.0
HOLD_S = 6.0
MEMORY = "autoscaling.elastic-width.io/memory"
AT = f"modeldeployments/{NAME}"


class Cluster:
    """An API server and an operator with an engine."""

    def __init__(self, api, engine, world, folder):
        self.api, self.engine, self.world = api, engine, world
        self.kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        self.kubeconfig = api.kubeconfig(folder / "kubeconfig")

    def configure(self, policy="static:4", **guards):
        target = {"kind": "gpustack", "namespace": NAMESPACE, "name": NAME}
        target |= {"kubeconfig": self.kubeconfig, "timeout_s": 0.9}
        self.world.settings["targets"] = []
        self.world.add_target(
            "chat",
            policy,
            target=target,
            guards={**FREE, "min_width": 2, **guards},
            convergence={"ambiguous_hold_s": HOLD_S, "timeout_s": HOLD_S},
        )
        self.world.save(tick_s=1.0, events={"enabled": False})

    def start(self):
        return self.world.start()

    def kill(self, process):
        """No time to say anything."""
        process.process.send_signal(signal.SIGKILL)
        assert process.process.wait(5) == -signal.SIGKILL
        self.seen = len(self.entries())

    def entries(self):
        """Whole lines; the last one may have been cut off."""
        if not self.world.log.exists():
            return []
        return [json.loads(line) for line in self.world.log.read_text("utf-8").split("\n")[:-1]]

    def codes(self):
        """What convergence said in each tick of the process that runs now."""
        said = []
        for entry in self.entries()[self.seen :]:
            trail = [stage for stage in entry["trail"] if stage["name"] in ("convergence", "loop")]
            said.append(trail[0]["code"])
        return said

    def await_code(self, *codes, timeout_s=25.0):
        self.world.await_true(lambda: set(codes) & set(self.codes()), timeout_s)

    seen = 0

    @property
    def widths(self):
        """Every width that was asked for, taken or not."""
        found = [r for r in self.api.requests if r.method == "PATCH" and r.path.endswith(AT)]
        patches = [json.loads(request.body) for request in found]
        return [patch[-1]["value"] for patch in patches if isinstance(patch, list)]

    @property
    def width(self):
        found = self.api.store.get(self.kind, NAMESPACE, NAME)
        return found["spec"]["roles"][0]["elasticEp"]["width"]

    @property
    def memory(self):
        held = self.api.store.get(self.kind, NAMESPACE, NAME)["metadata"].get("annotations", {})
        return json.loads(held.get(MEMORY, "{}"))


@pytest.fixture
def cluster(world, tmp_path):
    with running(world, tmp_path) as made:
        made.configure()
        yield made
    replay = replayed.replay(world.log, lambda _: None)
    assert replay.differences == []
    assert replay.decisions > 0


@contextmanager
def running(world, folder):
    clock, over = ScaledClock(SystemClock(), SPEED), threading.Event()
    with ApiServer(clock) as api:
        api.install(CRD)
        kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        api.store.create(kind, NAMESPACE, deployment(2))
        connection = Connection(Access(api.kubeconfig(folder / "of-the-operator")))
        engine = StubEngine(clock, resize_s=2.0 * SPEED)
        operator = Operator(connection, NAMESPACE, engine, clock)

        def operate():
            while not over.wait(0.2):
                operator.run_once()

        operator.run_once()
        thread = threading.Thread(target=operate, daemon=True)
        thread.start()
        try:
            yield Cluster(api, engine, world, folder)
        finally:
            over.set()
            thread.join(10)
            connection.close()
            assert not thread.is_alive()


def hung(cluster, *, applied):
    """The process asks, and is killed while it waits for an answer."""
    fault = Fault("hang", "PATCH", AT, applied=applied)
    cluster.api.faults.append(fault)
    process = cluster.start()
    cluster.world.await_true(lambda: fault.seen == 1, 15.0)
    cluster.world.await_true(lambda: not applied or cluster.width == 4, 5.0)
    cluster.kill(process)


def test_killed_while_asking_and_the_width_was_taken_A30(cluster):
    hung(cluster, applied=True)
    assert cluster.memory["in_flight"] is True, "it came with the width"
    cluster.start()
    cluster.await_code("converged")
    assert cluster.entries()[cluster.seen]["observation"]["memory"]["ours"] is True
    assert (cluster.widths, cluster.width) == ([4], 4)
    assert cluster.engine.commands == [4]


def test_killed_while_asking_and_nothing_was_taken_A30(cluster):
    hung(cluster, applied=False)
    assert cluster.memory == {}, "nor did the memory of it"
    cluster.start()
    cluster.await_code("converged")
    assert (cluster.widths, cluster.width) == ([4, 4], 4)
    assert cluster.engine.commands == [4], "asked twice, taken once: the width is absolute"


def test_killed_while_it_was_unclear_and_held_by_the_next_one_A30_A05(cluster):
    cluster.api.faults.append(Fault("close", "PATCH", AT, applied=False))
    process = cluster.start()
    cluster.world.await_true(lambda: cluster.memory.get("applied") is False, 15.0)
    asked_at_s = cluster.memory["resize"][2]
    cluster.kill(process)
    cluster.start()
    cluster.await_code("converged")
    assert "not_applied" in cluster.codes()
    assert (cluster.widths, cluster.width) == ([4, 4], 4)
    assert cluster.memory["resize"][2] - asked_at_s >= HOLD_S


def test_killed_in_flight_A30(cluster):
    process = cluster.start()
    cluster.await_code("resizing", "status_stale")
    asked_at_s = cluster.memory["resize"][2]
    cluster.kill(process)
    cluster.start()
    cluster.await_code("converged")
    assert set(cluster.codes()) <= {"resizing", "status_stale", "converged", "steady"}
    assert (cluster.widths, cluster.width) == ([4], 4)
    assert cluster.memory["resize"][:2] == [2, 4]
    assert cluster.memory["resize"][2] == pytest.approx(asked_at_s, abs=0.2)


def test_killed_while_cooling_down_A30_G28(cluster):
    cluster.configure(cooldown_up_s=8.0)
    process = cluster.start()
    cluster.world.await_true(lambda: "over_at_s" in cluster.memory, 15.0)
    cluster.world.await_true(lambda: "in_flight" not in cluster.memory, 15.0)
    over_at_s = cluster.memory["over_at_s"]
    cluster.kill(process)
    cluster.configure("static:6", cooldown_up_s=8.0)
    cluster.start()
    cluster.world.await_true(lambda: cluster.width == 6, 30.0)
    assert cluster.widths == [4, 6]
    assert "cooldown_up" in {e["decision"]["code"] for e in cluster.entries()[cluster.seen :]}
    waited_s = cluster.memory["resize"][2] - over_at_s
    assert 8.0 - 0.2 <= waited_s < 8.0 + 12.0, "counted from the end of the resize"


def test_killed_after_a_refusal_A30(cluster):
    cluster.engine.answers = [Answer(503, "busy")] * 5
    process = cluster.start()
    cluster.await_code("refused")
    cluster.world.await_true(lambda: cluster.memory.get("state") == "refused", 5.0)
    before = cluster.memory
    cluster.kill(process)
    cluster.configure("static:6")
    cluster.start()
    cluster.world.await_true(lambda: len(cluster.codes()) >= 3, 15.0)
    assert set(cluster.codes()) == {"refused"}
    assert cluster.memory == before
    assert (cluster.widths, cluster.engine.commands) == ([4], [4] * 5)


def test_killed_before_the_time_is_out_and_after_A30(cluster):
    cluster.engine.resize_s = 1e9
    process = cluster.start()
    cluster.await_code("resizing", "status_stale")
    asked_at_s = cluster.memory["resize"][2]
    cluster.kill(process)
    process = cluster.start()
    cluster.await_code("timed_out")
    cluster.world.await_true(lambda: cluster.memory["state"] == "timed_out", 5.0)
    told = next(s for s in cluster.entries()[-1]["trail"] if s["name"] == "convergence")
    assert told["code"].startswith("timed_out")
    cluster.kill(process)
    cluster.start()
    cluster.world.await_true(lambda: len(cluster.codes()) >= 3, 15.0)
    assert set(cluster.codes()) == {"timed_out_hold"}, "reported once, by whichever process"
    assert cluster.widths == [4]
    assert cluster.memory["resize"][2] == pytest.approx(asked_at_s, abs=0.2)


def test_switches_and_dry_run_are_seen_in_decisions_telemetry_and_the_log(cluster):
    def annotate(found):
        found["metadata"]["annotations"] = {"autoscaling.elastic-width.io/pause": "up"}
        return found

    cluster.api.store.change(cluster.kind, NAMESPACE, NAME, annotate)
    process = cluster.start()
    cluster.await_code("steady")
    page = process.page("/metrics").text
    line = 'autoscaler_decisions_total{outcome="hold",reason="paused_up",target="chat"}'
    assert line in page
    said = process.await_line("decision")
    assert (said["code"], said["reason"]) == ("paused_up", "the annotation pause says 'up'")
    cluster.kill(process)
    cluster.world.settings["targets"][0] |= {"dry_run": True, "pause": "down"}
    cluster.world.save()
    cluster.start()
    cluster.world.await_true(lambda: len(cluster.codes()) >= 2, 15.0)
    last = cluster.entries()[-1]
    assert last["outcome"]["result"] == "skipped"
    assert "dry run: would have written 2 -> 4" in last["outcome"]["detail"]
    assert cluster.widths == []


def test_killed_in_flight_with_the_memory_in_a_file_A30(world):
    entry = world.add_target("chat")
    entry["target"]["resize_reads"] = 14
    world.save(tick_s=0.5, memory={"path": "memory.json"})
    process = world.start()
    kept = world.folder / "memory.json"
    world.await_true(lambda: world.read_state("chat").get("writes") == [4], 15.0)
    world.await_true(lambda: len(world.entries()) >= 3, 15.0)
    process.process.send_signal(signal.SIGKILL)
    process.process.wait(5)
    before = json.loads(json.loads(kept.read_text())["chat"])
    assert (before["in_flight"], before["ours"], before["resize"][:2]) == (True, True, [2, 4])
    seen = len([line for line in world.log.read_text("utf-8").split("\n")[:-1] if line])
    again = world.start()
    world.await_true(lambda: len(world.entries()) >= seen + 3, 15.0)
    first = world.entries()[seen]
    assert first["trail"][0]["reason"] == "the last resize 2 -> 4, in flight"
    assert first["decision"]["code"] == "resizing"
    over = lambda: "in_flight" not in json.loads(json.loads(kept.read_text())["chat"])  # noqa: E731
    world.await_true(over, 20.0)
    assert again.end() == 0
    assert world.read_state("chat")["writes"] == [4]
    assert not again.events("memory_ends_with_the_process")
