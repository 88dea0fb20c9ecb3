"""Controller, GPUStack target, API server and operator together: every transition of a resize."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.emulator.operator import Answer, Pace
from autoscaler.model import SetResult, Tristate
from autoscaler.testing_apiserver import ApiServer, Fault

from .worlds import NAME, NAMESPACE, World, said

Make = Callable[..., World]
REFUSED = Answer(503, "The model is currently scaling. Please try again later.")


def test_a_resize_converges_by_layers_and_not_by_phase_A01(world: World) -> None:
    world.run(10.0)
    assert [json.loads(w)[-1]["value"] for w in world.writes] == [4]
    assert world.get()["metadata"]["generation"] == 2
    world.run(20.0)
    assert world.get()["status"]["phase"] == "Ready"  # 12 s after the patch, as once believed
    assert world.state == "resizing"
    last = world.run_until("converged")
    assert world.state == "converged"
    assert last.reason == "width 4 serves"
    obs = world.log.observations[-1]
    assert obs is not None
    assert [layer.value for layer in obs.width.layers] == [4] * 6
    assert set(world.run(60.0)) == {"steady"}
    assert len(world.writes) == 1


def test_a_status_of_an_older_generation_proves_nothing(world: World) -> None:
    codes = world.run(30.0, operator=False)
    assert codes[1:] == ["status_stale"] * 5
    world.operator.run_once()
    assert world.run(5.0, operator=False) == ["resizing"]


def test_the_reason_names_the_layer_that_blocks_A07(make: Make) -> None:
    world = make(wanted=8, pace=Pace(capacity=4))
    world.run(1000.0)
    last = world.last
    assert last.code == "waiting_for_capacity"
    assert last.reason.startswith("admitted 4 of 8 for 16 min: ")
    assert "not admitted, allocated and registered" in last.reason
    assert len(world.writes) == 1, "no further growth is asked for"
    world.run(400.0)
    assert world.state == "timed_out"
    assert len(world.writes) == 1


def test_unread_layers_are_not_zero_and_not_an_error(make: Make) -> None:
    world = make(pace=Pace(ray_s=60.0))
    world.run(40.0)  # new members exist, and have no engine yet
    obs = world.log.observations[-1]
    assert obs is not None
    assert {layer.value for layer in obs.width.layers[:-1]} == {None}
    assert obs.width.stable == 2
    assert world.state == "resizing"
    assert "no running engine identity" in world.last.reason


def test_a_flaky_probe_after_success_loses_no_width(world: World) -> None:
    world.run_until("converged")
    world.run(30.0)
    world.engine.flaky = True
    codes = set(world.run(30.0))
    assert world.state == "converged"
    assert len(world.writes) == 1
    assert codes <= {"unproven", "steady"}
    world.engine.flaky = False
    world.run(30.0)
    assert world.state == "converged"
    assert world.loop.controller.resize is None


def test_a_refusal_within_its_bound_is_waited_out(world: World) -> None:
    world.engine.answers = [REFUSED]
    world.run(45.0)
    assert world.state == "resizing"
    assert "next attempt in" in world.last.reason
    world.run_until("converged")
    assert world.engine.commands == [4, 4]
    assert len(world.writes) == 1


def test_five_refusals_end_it_with_the_engines_words(world: World) -> None:
    world.engine.answers = [REFUSED] * 5
    last = world.run_until("refused")
    assert world.state == "refused"
    assert "currently scaling" in last.reason
    conditions = {c["type"]: c for c in world.get()["status"]["conditions"]}
    assert conditions["ElasticResize"]["reason"] == "ScaleRefused"
    assert world.get()["status"]["phase"] == "Ready"
    waited_s = world.clock.now_s() - 1000.0
    assert waited_s >= 225.0, "15, 30, 60 and 120 s between five attempts"
    world.run(300.0)
    assert world.state == "refused"
    assert (len(world.writes), world.engine.commands) == (1, [4] * 5)


def test_a_late_success_after_abandonment_is_noticed(world: World) -> None:
    world.engine.answers = [REFUSED] * 5
    world.run_until("refused")
    world.engine.boot(4)
    world.run_until("converged")
    assert world.state == "converged"


def test_an_answer_that_nobody_got_is_never_resent_A05(world: World) -> None:
    world.engine.answers = [Answer(None, "timed out")]
    world.run(600.0)
    assert world.engine.commands == [4]
    assert world.state == "resizing"
    world.engine.boot(4)
    world.run_until("converged")


def test_a_record_that_is_gone_makes_the_world_unprovable(world: World) -> None:
    world.run(60.0)
    assert world.state == "resizing"
    name = f"elastic-resize-{world.uid}"
    world.api.store.delete(world.maps, NAMESPACE, name)
    world.run(30.0)
    assert world.state == "resizing"
    assert "the operation record is gone" in world.last.reason
    world.run_until("converged")


def test_a_replaced_master_boots_at_the_width_of_the_spec(world: World) -> None:
    world.run(60.0)
    world.operator.replace_master(world.get())
    world.run(15.0)
    codes = [said(decision).code for decision in world.log.decisions]
    assert "restarted" in codes
    world.run(15.0)
    assert world.state == "converged"
    assert len(world.writes) == 1


def test_an_edit_by_somebody_else_is_adopted_and_not_fought(world: World) -> None:
    world.run_until("converged")
    world.edit(6)
    codes = world.run(30.0)
    assert codes[0] == "foreign_write"
    assert world.state == "resizing"
    world.run_until("converged")
    assert world.loop.controller.convergence.state.value == "converged"
    assert len(world.writes) == 1, "a wider width than ours cannot be undone"


def test_a_raise_in_mid_flight_is_queued_by_the_operator(world: World) -> None:
    world.run(60.0)
    world.edit(6)
    assert world.run(15.0)[0] == "foreign_write"
    assert "the operation holds" in world.last.reason
    world.run_until("converged")
    assert world.engine.commands == [4, 6]
    assert world.get()["spec"]["roles"][0]["elasticEp"]["width"] == 6


def test_a_resize_that_never_converges_is_reported_once_and_held(make: Make) -> None:
    world = make(timeout_s=300.0)
    world.engine.resize_s = 1e9
    world.run_until("timed_out")
    assert world.run(100.0) == ["timed_out_hold"] * 20
    assert len(world.writes) == 1


def test_two_controllers_do_not_both_win_A17_G63(world: World, make: Make) -> None:
    status = world.target.read()
    world.edit(3)
    outcome = world.target.set_width(4, status.desired)
    assert outcome.result is SetResult.CONFLICT
    assert world.get()["spec"]["roles"][0]["elasticEp"]["width"] == 3


def test_a_decrease_is_refused_and_not_asked_for_again_A06(make: Make) -> None:
    world = make(allow_shrink=True)
    assert world.target.capabilities().can_shrink is Tristate.UNKNOWN
    world.target.read()
    world.edit(4)
    outcome = world.target.set_width(2, 4)
    assert outcome.result is SetResult.REFUSED
    assert "scale-down is not supported in this release" in outcome.detail
    assert world.target.capabilities().can_shrink is Tristate.NO
    requests = len(world.api.requests)
    again = world.target.set_width(3, 4)
    assert again.result in (SetResult.REFUSED, SetResult.CONFLICT)
    assert len(world.api.requests) == requests, "answered without a request"


def test_a_decrease_that_is_not_allowed_is_never_sent_A06(world: World) -> None:
    world.target.read()
    assert world.target.capabilities().can_shrink is Tristate.NO
    requests = len(world.api.requests)
    outcome = world.target.set_width(1, 2)
    assert outcome.result is SetResult.REFUSED
    assert "shrink_unsupported" in outcome.detail
    assert len(world.api.requests) == requests


@pytest.mark.parametrize("status", [403, 422])
def test_a_denial_by_a_webhook_is_for_good_and_the_loop_goes_on_A12(
    world: World, api: ApiServer, status: int
) -> None:
    message = 'admission webhook "modeldeployment" denied the request: width above the ceiling'
    body = {"kind": "Status", "message": message, "reason": "Forbidden", "code": status}
    api.faults.append(
        Fault(
            "answer",
            "PATCH",
            f"modeldeployments/{NAME}",
            None,
            status=status,
            body=json.dumps(body),
        )
    )
    world.run(300.0)
    assert [o.result for o in world.log.outcomes] == [SetResult.REFUSED], "once, not every tick"
    assert world.log.decisions[-1].code == "refused"
    assert world.loop.errors["write", "refused"] == 1


def test_a_lost_answer_is_read_back_and_not_resent_A05(world: World, api: ApiServer) -> None:
    fault = Fault("close", "PATCH", f"modeldeployments/{NAME}", applied=True)
    api.faults.append(fault)
    world.run(5.0)
    assert [o.result for o in world.log.outcomes] == [SetResult.AMBIGUOUS]
    world.run_until("converged")
    assert (fault.seen, len(world.writes)) == (1, 1)


@pytest.mark.parametrize("body", ["{}", '{"spec": {"roles": []}}', None])
def test_a_success_that_changed_nothing_is_none_A11(
    world: World, api: ApiServer, body: str | None
) -> None:
    said = json.dumps(world.get()) if body is None else body
    api.faults.append(Fault("answer", "PATCH", f"modeldeployments/{NAME}", status=200, body=said))
    world.run(5.0)
    assert [o.result for o in world.log.outcomes] == [SetResult.AMBIGUOUS]
    assert world.run(30.0)[-1] == "ambiguous"
    assert len(world.writes) == 1


def test_a_write_that_got_lost_is_asked_for_again_only_after_it_must_be_dead_A05(
    world: World, api: ApiServer
) -> None:
    api.faults.append(Fault("answer", "PATCH", f"modeldeployments/{NAME}", status=500))
    world.run(85.0)
    assert len(world.writes) == 1
    world.run_until("converged")
    assert len(world.writes) == 2


def test_a_known_zero_is_a_fault_and_never_a_width_A19(make: Make) -> None:
    world = make(wanted=2)
    world.run(10.0)
    world.observation(effective={"Known": True, "Value": 0, "Reason": ""})
    status = world.target.read()
    assert (status.effective, status.stable, status.present) == (None, 2, 2)
    world.run(30.0, operator=False)
    assert world.writes == []


@pytest.mark.parametrize(
    "field", ["effective", "stableWidth", "observedGeneration", "deploymentUID"]
)
def test_a_missing_field_is_an_error_that_names_it_A02(world: World, field: str) -> None:
    world.observation(**{field: None})
    world.loop.tick()
    decision = world.last
    assert decision.code == "target_unreadable"
    assert decision.reason.startswith("field_missing: ")
    assert field in decision.reason
    assert world.loop.errors["target", "TargetError"] == 1


def test_a_missing_width_in_the_spec_is_an_error_A02(world: World) -> None:
    def change(found: dict[str, Any]) -> dict[str, Any]:
        del found["spec"]["roles"][0]["elasticEp"]
        return found

    world.api.store.change(world.kind, NAMESPACE, NAME, change)
    world.loop.tick()
    assert world.last.reason.startswith("field_missing: ")


def test_no_observation_yet_is_a_state_and_no_error_A34(world: World) -> None:
    name = f"elastic-observation-{world.uid}"
    world.api.store.delete(world.maps, NAMESPACE, name)
    status = world.target.read()
    assert (status.effective, status.stable, status.current) == (None, None, False)
    world.loop.tick()
    assert world.last.code == "width_unknown"


def test_an_observation_of_a_namesake_that_is_no_more_counts_for_nothing(world: World) -> None:
    world.observation(deploymentUID="00000000-0000-0000-0000-000000000000")
    status = world.target.read()
    assert (status.effective, status.observed_generation, status.incarnation) == (None, None, "")


def test_unknown_fields_are_ignored(world: World) -> None:
    world.observation(novelty={"a": [1]})
    assert world.target.read().effective == 2


def test_only_the_width_is_written_as_a_json_patch_by_our_manager_A26_A29_G64(
    world: World, api: ApiServer
) -> None:
    world.run(5.0)
    (body,) = world.writes
    assert json.loads(body) == [
        {"op": "test", "path": "/spec/roles/0/name", "value": "server"},
        {"op": "test", "path": "/spec/roles/0/elasticEp/width", "value": 2},
        {"op": "replace", "path": "/spec/roles/0/elasticEp/width", "value": 4},
    ]
    request = next(r for r in api.requests if r.body == body)
    assert request.headers["content-type"] == "application/json-patch+json"
    assert request.query == {"fieldManager": "autoscaler"}


def test_a_rehearsal_is_checked_by_the_server_and_changes_nothing(world: World) -> None:
    assert world.target.rehearse(4, 2).result is SetResult.APPLIED
    assert world.target.rehearse(65, 2).result is SetResult.REFUSED
    assert world.get()["metadata"]["generation"] == 1


def test_a_deployment_that_is_being_deleted_is_left_alone(world: World) -> None:
    def change(found: dict[str, Any]) -> dict[str, Any]:
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return found

    world.api.store.change(world.kind, NAMESPACE, NAME, change)
    world.loop.tick()
    assert "is being deleted" in world.last.reason


def test_a_deployment_that_is_gone_is_held_and_found_again(world: World) -> None:
    world.run_until("converged")
    world.api.store.delete(world.kind, NAMESPACE, NAME)
    assert set(world.run(20.0, operator=False)) == {"target_unreadable"}
    assert "gone" in world.last.reason
