"""Memory and switches on the object itself, and in the ConfigMap where there is none."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cluster.answers import Unclear
from autoscaler.cluster.connection import Access, Connection
from autoscaler.cluster.memory_map import MemoryMap
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.emulator.operator import Answer
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.guards import Guards
from autoscaler.keeping import Keeper
from autoscaler.limits import Params as Limits
from autoscaler.loop import ControlLoop
from autoscaler.model import Metrics, SetResult, Signal, Slo
from autoscaler.policies.static import Params as Width
from autoscaler.policies.static import Static
from autoscaler.targets import scale_subresource
from autoscaler.testing import FakeSource, ManualClock
from autoscaler.testing_apiserver import ApiServer, Fault, Rule, User

from .worlds import EPOCH_S, NAME, NAMESPACE, Log, World

Make = Callable[..., World]
MEMORY = "autoscaling.elastic-width.io/memory"
PAUSE = "autoscaling.elastic-width.io/pause"


def memory(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.get()["metadata"]["annotations"][MEMORY])
    return found


def test_width_and_memory_are_one_patch_where_there_are_no_annotations_yet(make: Make) -> None:
    world = make(remembers=True)
    assert "annotations" not in world.get()["metadata"]
    world.run(5.0)
    assert len(world.writes) == 1
    assert [op["op"] for op in json.loads(world.writes[0])] == [
        *("test", "test", "test", "add", "replace")
    ]
    assert memory(world)["resize"][:2] == [2, 4]
    assert memory(world)["in_flight"] is True
    world.run_until("converged")
    assert len(world.writes) == 2, "and once more when it is over"
    assert "in_flight" not in memory(world)
    assert world.get()["metadata"]["generation"] == 2, "a note is no change of the spec"
    assert set(world.run(300.0)) == {"steady"}
    assert len(world.writes) == 2, "nothing new, nothing written"


def test_other_annotations_stay_as_they_are(make: Make) -> None:
    world = make(remembers=True)
    world.annotate(other="mine")
    world.run_until("converged")
    held = world.get()["metadata"]["annotations"]
    assert held["autoscaling.elastic-width.io/other"] == "mine"
    assert set(held) == {MEMORY, "autoscaling.elastic-width.io/other"}
    assert world.widths == [4]


def test_annotations_that_came_between_reading_and_writing_are_not_lost_G63(make: Make) -> None:
    world = make(remembers=True)
    world.target.read()
    world.annotate(other="just now")
    assert world.target.set_width(4, 2, "a note").result is SetResult.CONFLICT
    world.target.read()
    assert world.target.set_width(4, 2, "a note").result is SetResult.APPLIED
    assert world.get()["metadata"]["annotations"] == {
        MEMORY: "a note",
        "autoscaling.elastic-width.io/other": "just now",
    }


def test_annotations_that_went_away_are_made_again_in_the_next_tick(make: Make) -> None:
    world = make(remembers=True)
    world.annotate(other="x")
    world.target.read()
    world.annotate(other=None)

    def change(found: dict[str, Any]) -> dict[str, Any]:
        del found["metadata"]["annotations"]
        return found

    world.api.store.change(world.kind, NAMESPACE, NAME, change)
    assert world.target.set_width(4, 2, "a note").result is SetResult.CONFLICT
    world.run_until("converged")
    assert memory(world)["desired"] == 4


AT = [0.0, 5.0, 60.0, 165.0, 180.0, 300.0]


@pytest.mark.parametrize("after_s", AT)
def test_a_restart_at_any_time_of_a_resize_neither_repeats_nor_forgets_it_A30(
    make: Make, after_s: float
) -> None:
    world = make(remembers=True, limits={"cooldown_up_s": 400.0})
    world.run(after_s)
    over = world.state == "converged"
    world.wanted = 6
    world.start()
    said = world.run(5.0)
    assert said[0] in ("steady", "resizing", "status_stale") or after_s == 0.0
    if not over and after_s:
        world.run_until("converged")
        assert world.widths == [4]
    world.run(900.0)
    assert world.widths == ([6] if after_s == 0.0 else [4, 6])
    times = [d.at_s for d in world.log.decisions if d.width is not None]
    if after_s:
        first = next(d for d in world.log.decisions if d.code == "converged" or d.at_s > times[0])
        assert times[1] - first.at_s >= 400.0, "the cool-down goes on"
    assert world.engine.commands == world.widths


def test_an_abandoned_resize_is_not_taken_for_a_new_one_A30(make: Make) -> None:
    world = make(remembers=True, limits={"cooldown_up_s": 0.0})
    world.engine.answers = [Answer(503, "busy")] * 5
    world.run_until("refused")
    before = memory(world)
    world.start()
    assert set(world.run(120.0)) == {"refused"}
    assert memory(world) == before
    assert world.widths == [4]


def test_a_lost_answer_is_still_a_question_in_the_next_process_A05(
    make: Make, api: ApiServer
) -> None:
    world = make(remembers=True)
    at = f"modeldeployments/{NAME}"
    api.faults.append(Fault("close", "PATCH", at, applied=False))
    world.run(10.0)  # asked, unclear; and that is kept in the tick after it
    assert memory(world)["applied"] is False
    world.start()
    assert set(world.run(75.0)) == {"ambiguous"}
    assert world.widths == [4]
    world.run_until("converged")
    assert world.widths == [4, 4]


def test_a_lost_answer_that_was_a_yes_is_found_by_the_next_process_A05(
    make: Make, api: ApiServer
) -> None:
    world = make(remembers=True)
    fault = Fault("close", "PATCH", f"modeldeployments/{NAME}", applied=True)
    api.faults.append(fault)
    world.run(5.0)
    world.start()
    world.run_until("converged")
    assert world.widths == [4]
    assert memory(world)["direction"] == 1


def test_garbage_in_the_annotation_is_counted_and_does_no_harm(make: Make) -> None:
    world = make(remembers=True)
    world.annotate(memory="{broken")
    world.run(5.0)
    assert world.loop.errors["memory", "MemoryUnusable"] == 1
    trail = world.log.decisions[0].trail
    assert (trail[0].code, trail[0].reason[:16]) == ("memory_unusable", "memory ignored: ")
    world.run_until("converged")
    assert memory(world)["desired"] == 4


def test_a_note_that_cannot_be_kept_costs_no_resize_and_is_tried_again(
    make: Make, api: ApiServer
) -> None:
    world = make(remembers=True)
    world.run(60.0)
    at = f"modeldeployments/{NAME}"
    api.faults.append(Fault("answer", "PATCH", at, None, status=500))
    world.run_until("converged")
    world.run(60.0)
    failed = world.loop.errors["memory", "Unclear"]
    assert 2 <= failed <= 4, "not in every tick"
    api.faults.clear()
    world.run(60.0)
    assert "in_flight" not in memory(world)
    assert world.loop.readable


@pytest.mark.parametrize(
    ("value", "code"), [("all", "paused"), ("up", "paused_up"), ("nonsense", "paused")]
)
def test_the_pause_annotation_holds_and_lets_go(make: Make, value: str, code: str) -> None:
    world = make(remembers=True)
    world.annotate(pause=value)
    world.run(60.0)
    assert {d.code for d in world.log.decisions} == {code}
    assert world.widths == []
    world.annotate(pause=None)
    world.run(5.0)
    assert world.widths == [4]


def test_a_pause_in_mid_flight_holds_what_comes_after(make: Make) -> None:
    world = make(remembers=True)
    world.run(60.0)
    world.annotate(pause="all")
    world.run_until("converged")
    assert world.log.decisions[-1].code == "paused"


def test_a_manual_width_is_respected_by_name_also_after_a_restart(make: Make) -> None:
    world = make(remembers=True, wanted=6, limits={"override_hold_s": 600.0})
    world.annotate(pause="all")
    world.run(10.0)
    world.annotate(pause=None)
    world.edit(4)
    world.run_until("converged")
    assert world.log.decisions[-1].code == "overridden"
    assert "'gitops' has set the width to 4" in world.log.decisions[-1].reason
    world.run(150.0)
    world.start()
    world.run(150.0)
    assert {d.code for d in world.log.decisions[-30:]} == {"overridden"}
    assert world.widths == []
    world.run(400.0)
    assert world.widths == [6], "then the policy goes on"


class Scaled:
    """A Deployment whose Pods are there at once, steered through /scale; memory in a ConfigMap."""

    def __init__(self, api: ApiServer, clock: ManualClock, folder: Path, wanted: int = 4) -> None:
        self.api, self.clock, self.wanted = api, clock, wanted
        self.kubeconfig = api.kubeconfig(folder / "kubeconfig")
        self.kind = api.store.resource("apps/v1", "deployments")
        self.maps = api.store.resource("v1", "configmaps")
        template = {"spec": {"containers": [{"name": "a", "image": "a"}]}}
        api.store.create(
            self.kind, NAMESPACE, {"metadata": {"name": "a"}, "spec": {"template": template}}
        )
        self.connection = Connection(Access(self.kubeconfig))
        self.target: Any = None
        self.log = Log()
        self.limits: dict[str, Any] = {}
        self.put(2, "helm")
        self.start()

    def start(self) -> None:
        self.close()
        self.target = scale_subresource.build(
            scale_subresource.Params(NAMESPACE, "a", "deployment", 8, 1, kubeconfig=self.kubeconfig)
        )
        free = {"cooldown_down_s": 0.0, "scale_down_window_s": 0.0, "settle_s": 0.0}
        limits = Limits(**{**free, "max_reversals_per_hour": None, **self.limits})
        controller = Controller(Static(Width(self.wanted)), Guards(limits), Convergence())
        source = FakeSource(Metrics(30.0, queue_depth=Signal(5.0), ttft_p95_s=Signal(1.0)))
        keeper = Keeper(MemoryMap(self.connection, "controller", "chat"), lambda: EPOCH_S)
        self.loop = ControlLoop(
            source, self.target, controller, self.clock, self.log, Slo(), keeper=keeper
        )

    def close(self) -> None:
        if self.target is not None:
            self.target.close()

    def put(self, replicas: int, manager: str) -> None:
        def change(found: dict[str, Any]) -> dict[str, Any]:
            found["spec"]["replicas"] = replicas
            return found

        self.api.store.change(self.kind, NAMESPACE, "a", change, manager=manager)

    def run(self, duration_s: float) -> list[str]:
        first = len(self.log.decisions)
        for _ in range(round(duration_s / 5)):
            found = self.api.store.get(self.kind, NAMESPACE, "a")
            n, generation = found["spec"]["replicas"], found["metadata"]["generation"]
            counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), n)
            status = {"observedGeneration": generation, **counts}
            how = lambda obj, status=status: {**obj, "status": status}  # noqa: E731
            self.api.store.change(self.kind, NAMESPACE, "a", how, subresource="status")
            self.loop.tick()
            self.clock.advance(5.0)
        return [decision.code for decision in self.log.decisions[first:]]

    @property
    def writes(self) -> int:
        return sum(r.method == "PATCH" and r.path.endswith("/scale") for r in self.api.requests)

    @property
    def memory(self) -> dict[str, Any]:
        kept = self.api.store.get(self.maps, "controller", "autoscaler-memory")["data"]["chat"]
        found: dict[str, Any] = json.loads(kept)
        return found


@pytest.fixture
def scaled(api: ApiServer, clock: ManualClock, tmp_path: Path) -> Iterator[Scaled]:
    made = Scaled(api, clock, tmp_path)
    yield made
    made.close()
    made.connection.close()


def test_the_memory_is_written_before_the_width_and_again_when_that_is_known(
    scaled: Scaled,
) -> None:
    scaled.run(5.0)
    changes = [(r.method, r.path.rpartition("/")[2]) for r in scaled.api.requests]
    assert [change for change in changes if change[0] != "GET"] == [
        ("POST", "configmaps"),
        ("PATCH", "scale"),
        ("PATCH", "autoscaler-memory"),
    ]
    assert scaled.memory["in_flight"] is True
    assert "applied" not in scaled.memory, "it is, by default"
    scaled.run(30.0)
    assert "in_flight" not in scaled.memory


def test_a_process_that_ends_between_memory_and_width_leaves_a_question_A30(
    scaled: Scaled,
) -> None:
    scaled.run(5.0)  # POST of the memory, PATCH of the width
    scaled.put(2, "nobody")  # as if the width had never been written

    def unknown(found: dict[str, Any]) -> dict[str, Any]:
        content = json.loads(found["data"]["chat"])
        found["data"]["chat"] = json.dumps({**content, "applied": False, "desired": 2})
        return found

    scaled.api.store.change(scaled.maps, "controller", "autoscaler-memory", unknown)
    scaled.start()
    assert set(scaled.run(75.0)) == {"ambiguous"}
    scaled.run(30.0)
    assert scaled.writes == 2
    assert scaled.memory["desired"] == 4


def test_cooldown_and_override_go_on_through_the_config_map_A30(scaled: Scaled) -> None:
    scaled.run(20.0)
    scaled.put(3, "kubectl-scale")
    scaled.run(10.0)
    scaled.start()
    assert set(scaled.run(1200.0)) == {"overridden"}
    assert "'kubectl-scale'" in scaled.log.decisions[-1].reason
    scaled.start()
    scaled.run(700.0)
    assert scaled.writes == 2


def test_a_fight_is_seen_said_once_ended_and_outlives_a_restart_G33_A17_A26(
    scaled: Scaled,
) -> None:
    scaled.limits = {"override_hold_s": 60.0, "fight_window_s": 900.0}
    scaled.start()
    for _ in range(3):
        scaled.run(100.0)
        assert scaled.api.store.get(scaled.kind, NAMESPACE, "a")["spec"]["replicas"] == 4
        scaled.put(2, "argocd-controller")
    assert scaled.writes == 3
    codes = scaled.run(300.0)
    assert codes[-1] == "fight"
    assert "'argocd-controller' has undone 3 of our writes" in scaled.log.decisions[-1].reason
    assert scaled.loop.errors["fight", "ForeignWriter"] == 1
    scaled.start()
    assert set(scaled.run(300.0)) == {"fight"}
    assert scaled.writes == 3
    assert scaled.loop.errors["fight", "ForeignWriter"] == 0, "said once, not once a process"
    scaled.run(320.0)
    assert scaled.writes == 4, "the other has been quiet"


def test_the_pause_annotation_holds_for_scale_as_well(scaled: Scaled) -> None:
    def change(found: dict[str, Any]) -> dict[str, Any]:
        found["metadata"]["annotations"] = {PAUSE: "up"}
        return found

    scaled.api.store.change(scaled.kind, NAMESPACE, "a", change)
    assert set(scaled.run(60.0)) == {"paused_up"}


def test_a_place_that_may_not_be_read_is_counted_and_stops_nothing(
    scaled: Scaled, tmp_path: Path
) -> None:
    scaled.api.tokens["poor"] = User("poor")
    poor = Connection(Access(scaled.api.kubeconfig(tmp_path / "poor", "poor")))
    scaled.connection.close()
    scaled.connection = poor
    scaled.start()
    scaled.run(30.0)
    assert scaled.writes == 1
    assert scaled.loop.errors["memory", "TargetForbidden"] in (2, 3)


def test_a_place_that_cannot_be_read_now_holds(scaled: Scaled) -> None:
    scaled.api.faults.append(Fault("answer", "GET", "autoscaler-memory", 2, status=500))
    assert scaled.run(10.0) == ["memory_unreadable"] * 2
    assert scaled.writes == 0
    scaled.run(5.0)
    assert scaled.writes == 1


def test_another_process_with_the_same_key_is_a_conflict_and_its_memory_is_taken_over(
    scaled: Scaled,
) -> None:
    scaled.wanted = 2
    scaled.start()
    scaled.run(10.0)
    other = MemoryMap(scaled.connection, "controller", "chat")
    other.remember('{"v":1,"desired":2,"over_at_s":1764000000.0}')
    scaled.loop.controller.policy = Static(Width(4))
    scaled.run(10.0)
    assert scaled.writes == 1
    assert scaled.log.outcomes[0].result is SetResult.CONFLICT
    assert "another process" in scaled.log.outcomes[0].detail
    recalled = [o for o in scaled.log.observations if o is not None and o.memory is not None]
    assert len(recalled) == 1


def test_two_targets_share_the_map_and_lose_nothing(scaled: Scaled) -> None:
    places = []
    for n in range(4):
        connection = Connection(Access(scaled.kubeconfig))
        places.append((connection, MemoryMap(connection, "controller", f"t{n}")))

    def work(place: MemoryMap, n: int) -> None:
        place.recall()
        for i in range(5):
            for _ in range(5):
                with suppress(TargetError):  # many rounds lost in a row: the caller comes again
                    place.remember(f"{n}-{i}")
                    break

    threads = [
        threading.Thread(target=work, args=(place, n)) for n, (_, place) in enumerate(places)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = scaled.api.store.get(scaled.maps, "controller", "autoscaler-memory")["data"]
    assert found == {f"t{n}": f"{n}-4" for n in range(4)}
    for connection, _ in places:
        connection.close()


def test_the_map_needs_get_create_and_patch_and_nothing_else(
    api: ApiServer, tmp_path: Path
) -> None:
    rule = Rule(("get", "create", "patch"), ("",), ("configmaps",), ("controller",))
    api.tokens["some"] = User("some", (rule,))
    connection = Connection(Access(api.kubeconfig(tmp_path / "k", "some")))
    place = MemoryMap(connection, "controller", "chat")
    assert place.recall() is None
    place.remember("one")
    place.remember("two")
    assert place.recall() == "two"
    with pytest.raises(TargetForbidden):
        MemoryMap(connection, "elsewhere", "chat").recall()
    api.faults.append(Fault("close", "PATCH", "autoscaler-memory", applied=True))
    with pytest.raises(Unclear):
        place.remember("three")
    place.remember("four")  # the one or the other was ours
    assert place.recall() == "four"
    connection.close()
