"""WidthAutoscaler objects, steered by the real program against a real HTTP API server."""

from pathlib import Path

from autoscaler.testing_apiserver import Fault
from tests.adapters.kubernetes.worlds import NAMESPACE
from tests.e2e.objects.worlds import GUARDS, cluster

CHAT = f"{NAMESPACE}/chat"


def test_an_object_is_steered_tells_so_is_edited_and_deleted(tmp_path: Path) -> None:
    with cluster(tmp_path) as world:
        process = world.run()
        assert process.page("/readyz").status_code == 200
        world.create("chat", world.spec())
        assert process.await_line("config_taken_up")["changed"] == [CHAT]
        world.wait(lambda: world.condition("chat", "Converged") == ("False", "Resizing"))
        world.wait(lambda: world.status("chat").get("width", {}).get("effective") == 3)
        world.wait(lambda: world.condition("chat", "Converged") == ("True", "WidthServes"))
        status = world.status("chat")
        assert status["observedGeneration"] == 1
        assert status["width"] == {"proposed": 3, "desired": 3, "effective": 3, "stable": 3}
        assert world.condition("chat", "AbleToScale")[0] == "True"
        assert world.condition("chat", "ScalingLimited") == ("False", "WithinLimits")
        assert f'target="{CHAT}"' in process.page("/metrics").text

        writes, ticks = world.status_writes(), len(world.files.entries())
        world.wait(lambda: len(world.files.entries()) > ticks + 8)
        assert world.status_writes() <= writes + 1, "a steady object is not written to"

        world.edit("chat", policy="static:4", guards={**GUARDS, "max_width": 3})
        world.wait(lambda: world.condition("chat", "ScalingLimited") == ("True", "AtMaxWidth"))
        assert world.status("chat")["observedGeneration"] == 2
        world.edit("chat", policy="static:4", guards=GUARDS)
        world.wait(lambda: world.status("chat").get("width", {}).get("effective") == 4)

        world.delete("chat")
        process.await_line("config_taken_up", 4)
        ticks = len(world.files.entries())
        assert process.end() == 0
        assert len(world.files.entries()) <= ticks + 1
        assert world.width() == 4


def test_a_bad_spec_and_a_rival_are_refused_and_nothing_else_is_disturbed(tmp_path: Path) -> None:
    with cluster(tmp_path) as world:
        process = world.run()
        world.create("chat", world.spec())
        world.wait(lambda: world.condition("chat", "AbleToScale")[0] == "True")
        world.create("rival", world.spec(policy="static:4"))
        world.wait(lambda: world.condition("rival", "AbleToScale") == ("False", "AlreadySteered"))
        message = world.status("rival")["conditions"][0]["message"]
        assert f"must not be steered by WidthAutoscaler {CHAT} too" in message
        world.create("odd", world.spec(guards={"min_width": 4, "max_width": 2}))
        world.wait(lambda: world.condition("odd", "AbleToScale") == ("False", "InvalidSpec"))
        message = world.status("odd")["conditions"][0]["message"]
        assert "spec.guards.max_width: must be a whole number >= 4; got 2" in message
        refused = process.events("object_refused")
        assert {(line["object"], line["code"]) for line in refused} == {
            (f"{NAMESPACE}/rival", "already_steered"),
            (f"{NAMESPACE}/odd", "invalid_spec"),
        }

        # An edit that is refused leaves the spec before it in force, and says so.
        world.edit("chat", target={"kind": "gpustack", "name": "x", "namespace": "elsewhere"})
        world.wait(lambda: world.condition("chat", "AbleToScale") == ("False", "InvalidSpec"))
        status = world.status("chat")
        assert status["observedGeneration"] == 2
        assert "steered by the spec of generation 1" in status["conditions"][0]["message"]
        world.wait(lambda: world.condition("chat", "Converged") == ("True", "WidthServes"))
        assert world.width() == 3

        world.delete("chat")
        world.wait(lambda: world.condition("rival", "AbleToScale")[0] == "True")
        world.wait(lambda: world.width() == 4)
        assert process.end() == 0


def test_an_outage_of_the_api_takes_no_target_away_and_the_objects_are_seen_again(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as world:
        process = world.run()
        world.create("chat", world.spec(policy="hold"))
        world.wait(lambda: world.condition("chat", "AbleToScale")[0] == "True")
        outage = Fault("close", path="widthautoscalers", times=None)
        world.api.faults.append(outage)
        world.api.store.compact()
        world.create("late", world.spec(policy="hold"))
        ticks = len(world.files.entries())
        world.wait(lambda: len(world.files.entries()) > ticks + 5)
        world.api.faults.remove(outage)
        world.wait(lambda: world.condition("late", "AbleToScale") == ("False", "AlreadySteered"))
        assert process.end() == 0
