"""Targets that count replicas, each against the fake API server."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller import Controller
from autoscaler.errors import ConfigError, TargetError
from autoscaler.guards import Guards
from autoscaler.limits import Params as Limits
from autoscaler.model import SetResult, Tristate, WidthStatus
from autoscaler.policies.static import Params as Width
from autoscaler.policies.static import Static
from autoscaler.targets import kserve, scale_subresource
from autoscaler.targets._replicas import KINDS
from autoscaler.testing import check_target, observation
from autoscaler.testing_apiserver import ApiServer, Fault

NS = "here"


def crd(api_version: str, plural: str, kind: str, *, scale: bool) -> dict[str, Any]:
    group, _, version = api_version.partition("/")
    below: dict[str, Any] = {"status": {}}
    if scale:
        below["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
        }
    served = {"name": version, "served": True, "storage": True, "subresources": below}
    names = {"kind": kind, "plural": plural}
    return {"spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}}


class Cluster:
    """Objects of any kind, and what their controllers say of them."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.api, self.kubeconfig = api, api.kubeconfig(folder / "kubeconfig")
        for kind in KINDS.values():
            if kind.api_version != "apps/v1":
                api.store.install(crd(kind.api_version, kind.plural, "Thing", scale=True))
        graphs = crd("nvidia.com/v1alpha1", "dynamographdeployments", "Graph", scale=False)
        services = crd("serving.kserve.io/v1alpha1", "llminferenceservices", "S", scale=False)
        api.store.install(graphs)
        api.store.install(services)
        self.targets: list[Any] = []

    def create(self, api_version: str, plural: str, name: str, spec: dict[str, Any]) -> None:
        kind = self.api.store.resource(api_version, plural)
        self.api.store.create(kind, NS, {"metadata": {"name": name}, "spec": spec})

    def status(self, api_version: str, plural: str, name: str, **status: Any) -> None:
        kind = self.api.store.resource(api_version, plural)

        def change(found: dict[str, Any]) -> dict[str, Any]:
            return {**found, "status": status}

        self.api.store.change(kind, NS, name, change, subresource="status")

    def scale(self, workload: str, **given: Any) -> scale_subresource.ScaleSubresource:
        values = {"max_width": 8, "gpus_per_width": 8, "kubeconfig": self.kubeconfig, **given}
        params = scale_subresource.Params(NS, "a", workload, **values)
        self.targets.append(scale_subresource.build(params))
        return self.targets[-1]  # type: ignore[no-any-return]


@pytest.fixture
def cluster(api: ApiServer, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(api, tmp_path)
    yield made
    for target in made.targets:
        target.close()


def conditions(**status: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": value} for kind, value in status.items()]


def widths(status: WidthStatus) -> tuple[int, int | None, bool]:
    return status.desired, status.effective, status.current


DEPLOYMENT = {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": []}}}


@pytest.mark.parametrize(
    ("status", "effective", "current"),
    [
        ({}, None, False),
        ({"observedGeneration": 1}, None, True),
        ({"observedGeneration": 1, "replicas": 4, "updatedReplicas": 4}, None, True),
        (
            {"observedGeneration": 1, "replicas": 4, "updatedReplicas": 4, "availableReplicas": 3},
            3,
            True,
        ),
        (
            {"observedGeneration": 1, "replicas": 4, "updatedReplicas": 4, "availableReplicas": 4},
            4,
            True,
        ),
        (
            {"observedGeneration": 1, "replicas": 5, "updatedReplicas": 2, "availableReplicas": 4},
            None,
            True,
        ),
        (
            {"observedGeneration": 0, "replicas": 4, "updatedReplicas": 4, "availableReplicas": 4},
            4,
            False,
        ),
    ],
    ids=["unseen", "none", "unavailable", "three", "all", "rolling", "older"],
)
def test_a_deployment_serves_with_its_available_pods_A19(
    cluster: Cluster, status: dict[str, int], effective: int | None, current: bool
) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 4, **DEPLOYMENT})
    cluster.status("apps/v1", "deployments", "a", **status)
    assert widths(cluster.scale("deployment").read()) == (4, effective, current)


def test_no_replicas_at_all_are_a_width_and_no_error_A34(cluster: Cluster) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 0, **DEPLOYMENT})
    cluster.status("apps/v1", "deployments", "a", observedGeneration=1)
    assert widths(cluster.scale("deployment", min_width=0).read()) == (0, 0, True)


def test_a_stateful_set_serves_when_one_revision_is_ready(cluster: Cluster) -> None:
    cluster.create("apps/v1", "statefulsets", "a", {"replicas": 2, **DEPLOYMENT})
    target = cluster.scale("statefulset")
    ready = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2}
    for update, effective in (("r1", 2), ("r2", None)):
        revisions = {"currentRevision": "r1", "updateRevision": update}
        cluster.status("apps/v1", "statefulsets", "a", **ready, **revisions)
        assert target.read().effective == effective


@pytest.mark.parametrize(
    ("said", "effective"),
    [
        (conditions(Available="True"), 2),
        (conditions(Available="True", Progressing="False"), 2),
        (conditions(Available="True", Progressing="True"), None),
        (conditions(Available="False"), None),
        ([], None),
    ],
)
def test_a_leader_worker_set_serves_when_it_says_so(
    cluster: Cluster, said: list[dict[str, str]], effective: int | None
) -> None:
    where = ("leaderworkerset.x-k8s.io/v1", "leaderworkersets", "a")
    cluster.create(*where, {"replicas": 2})
    counts = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}
    cluster.status(*where, observedGeneration=1, conditions=said, **counts)
    assert cluster.scale("leaderworkerset").read().effective == effective


def test_a_group_of_several_pods_is_one_unit_of_width_M16(cluster: Cluster) -> None:
    where = ("leaderworkerset.x-k8s.io/v1", "leaderworkersets", "a")
    cluster.create(*where, {"replicas": 2, "leaderWorkerTemplate": {"size": 2}})
    for group in range(2):  # four Pods: a leader and a worker each
        for worker in range(2):
            name = f"a-{group}" if worker == 0 else f"a-{group}-{worker}"
            cluster.create("v1", "pods", name, {"containers": []})
    counts = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}
    said = conditions(Available="True")
    cluster.status(*where, observedGeneration=1, conditions=said, **counts)
    target = cluster.scale("leaderworkerset")
    assert widths(target.read()) == (2, 2, True)
    assert target.set_width(3, 2).result is SetResult.APPLIED
    assert target.read().desired == 3


def test_an_engine_group_serves_with_the_ranks_that_the_engine_committed(cluster: Cluster) -> None:
    where = ("nvidia.com/v1beta1", "dynamographdeploymentenginegroups", "a")
    cluster.create(*where, {"replicas": 4})
    target = cluster.scale("dynamo_engine_group")
    said: dict[str, Any] = {"observedGeneration": 1, "replicas": 4, "availableReplicas": 4}
    cluster.status(*where, **said)
    with pytest.raises(TargetError, match=r"field_missing.*activeReplicas"):
        target.read()
    cluster.status(*where, **said, activeReplicas=2, lastStableReplicas=2)
    status = target.read()
    assert (status.effective, status.stable) == (2, 2)
    cluster.status(*where, **said, activeReplicas=4, targetValidation={"state": "running"})
    assert target.read().effective is None
    cluster.status(*where, **said, activeReplicas=4)
    assert target.read().effective == 4


@pytest.mark.parametrize("key", ["componentName", "serviceName"])
def test_a_scaling_adapter_is_proven_by_its_graph(cluster: Cluster, key: str) -> None:
    adapters = ("nvidia.com/v1alpha1", "dynamographdeploymentscalingadapters", "a")
    graphs = ("nvidia.com/v1alpha1", "dynamographdeployments", "g")
    cluster.create(*adapters, {"replicas": 3, "dgdRef": {"name": "g", key: "decode"}})
    cluster.create(*graphs, {})
    cluster.status(*adapters, replicas=3)
    target = cluster.scale("dynamo_scaling_adapter")
    cluster.status(*graphs, observedGeneration=1)
    with pytest.raises(TargetError, match=r"field_missing.*decode"):
        target.read()
    cluster.status(*graphs, observedGeneration=1, services={"decode": {"readyReplicas": 3}})
    status = target.read()
    assert widths(status) == (3, 3, True)
    assert [(layer.name, layer.value) for layer in status.layers] == [("adapter", 3), ("ready", 3)]
    cluster.status(*graphs, observedGeneration=0, services={"decode": {"readyReplicas": 3}})
    assert not target.read().current


def test_a_scale_is_written_on_condition_of_version_and_width_G63(
    cluster: Cluster, api: ApiServer
) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 2, **DEPLOYMENT})
    target = cluster.scale("deployment")
    assert target.set_width(4, 3).result is SetResult.CONFLICT
    assert [r.method for r in api.requests] == ["GET"]
    assert target.set_width(4, 2).result is SetResult.APPLIED
    request = api.requests[-1]
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert b"resourceVersion" in request.body
    assert target.read().desired == 4
    assert not target.read().current, "its controller has not seen it yet"


def test_a_competitor_between_look_and_write_wins_G63(cluster: Cluster, api: ApiServer) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 2, **DEPLOYMENT})
    target = cluster.scale("deployment")
    answer = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}
    stale = Fault("answer", "GET", "/scale", status=200, body=json.dumps(answer))
    api.faults.append(stale)
    assert target.set_width(4, 2).result is SetResult.CONFLICT
    assert target.read().desired == 2


def test_a_success_that_changed_nothing_is_none_A11(cluster: Cluster, api: ApiServer) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 2, **DEPLOYMENT})
    body = '{"spec": {"replicas": 2}}'
    api.faults.append(Fault("answer", "PATCH", "/scale", status=200, body=body))
    assert cluster.scale("deployment").set_width(4, 2).result is SetResult.AMBIGUOUS


def test_a_look_that_fails_writes_nothing(cluster: Cluster, api: ApiServer) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 2, **DEPLOYMENT})
    api.faults.append(Fault("answer", "GET", "/scale", status=500))
    assert cluster.scale("deployment").set_width(4, 2).result is SetResult.SKIPPED


@pytest.mark.parametrize("workload", list(KINDS))
def test_every_kind_keeps_the_contract_of_its_port(cluster: Cluster, workload: str) -> None:
    kind = KINDS[workload]
    spec: dict[str, Any] = {"replicas": 2, "dgdRef": {"name": "g", "componentName": "x"}}
    if kind.api_version == "apps/v1":
        spec = {"replicas": 2, **DEPLOYMENT}
    cluster.create(kind.api_version, kind.plural, "a", spec)
    status = {"replicas": 2, "activeReplicas": 2, "observedGeneration": 1}
    cluster.status(kind.api_version, kind.plural, "a", **status)
    graphs = ("nvidia.com/v1alpha1", "dynamographdeployments", "g")
    cluster.create(*graphs, {})
    components = {"x": {"availableReplicas": 2}}
    cluster.status(*graphs, observedGeneration=1, components=components)
    check_target(cluster.scale(workload))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"workload": "pod"}, "workload"),
        ({"min_width": 9}, "max_width"),
        ({"gpus_per_width": 0}, "gpus_per_width"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"namespace": "../x"}, "namespace"),
    ],
)
def test_unusable_parameters_are_named(given: dict[str, Any], key: str) -> None:
    values = {"namespace": NS, "name": "a", "workload": "deployment", "max_width": 8}
    with pytest.raises(ConfigError, match=key):
        scale_subresource.Params(**{**values, "gpus_per_width": 1, **given})


SERVICE = ("serving.kserve.io/v1alpha1", "llminferenceservices", "a")
READY = conditions(
    Ready="True",
    WorkloadsReady="True",
    MainWorkloadReady="True",
    PrefillWorkloadReady="True",
)


@pytest.fixture
def service(cluster: Cluster) -> Callable[..., kserve.KServe]:
    def build(role: str = "main", **given: Any) -> kserve.KServe:
        params = kserve.Params(
            NS,
            "a",
            "deployment",
            "a-kserve",
            8,
            8,
            role,
            kubeconfig=cluster.kubeconfig,
            **given,
        )
        cluster.targets.append(kserve.build(params))
        return cluster.targets[-1]  # type: ignore[no-any-return]

    return build


@pytest.mark.parametrize("role", ["main", "prefill"])
def test_kserve_is_proven_by_its_workload_and_conditions_A01(
    cluster: Cluster, service: Callable[..., kserve.KServe], role: str
) -> None:
    cluster.create(*SERVICE, {"replicas": 2, "prefill": {"replicas": 2}})
    cluster.status(*SERVICE, conditions=READY)
    target = service(role)
    assert "has not made" in target.read().detail
    cluster.create("apps/v1", "deployments", "a-kserve", {"replicas": 2, **DEPLOYMENT})
    counts = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    cluster.status("apps/v1", "deployments", "a-kserve", observedGeneration=1, **counts)
    assert target.read().effective == 2
    assert target.set_width(3, 2).result is SetResult.APPLIED
    status = target.read()
    assert status.desired == 3
    assert status.layers[0].value == 2, "Ready still says True, and nothing was passed on"
    cluster.status(*SERVICE, conditions=conditions(Ready="False"))
    status = target.read()
    assert status.effective is None
    assert "not true: Ready" in status.detail


def test_a_roll_out_behind_a_kserve_service_is_one_G30(
    cluster: Cluster, service: Callable[..., kserve.KServe]
) -> None:
    cluster.create(*SERVICE, {"replicas": 100})
    cluster.status(*SERVICE, conditions=READY)
    cluster.create("apps/v1", "deployments", "a-kserve", {"replicas": 100, **DEPLOYMENT})
    target = service()
    for said, resizing in ((SURGE, True), (OVER, None)):
        cluster.status("apps/v1", "deployments", "a-kserve", **said)
        assert target.read().resizing is resizing


def test_kserve_that_scales_by_itself_is_left_alone(
    cluster: Cluster, service: Callable[..., kserve.KServe], api: ApiServer
) -> None:
    cluster.create(*SERVICE, {"scaling": {"hpa": {}}})
    target = service()
    with pytest.raises(TargetError, match="scales this by itself"):
        target.read()
    assert target.set_width(3, 2).result is SetResult.SKIPPED
    assert all(r.method == "GET" for r in api.requests)


def test_kserve_keeps_the_contract_of_its_port(
    cluster: Cluster, service: Callable[..., kserve.KServe]
) -> None:
    cluster.create(*SERVICE, {"replicas": 2})
    check_target(service())


@pytest.mark.parametrize("role", ["main", "prefill"])
def test_kserve_keeps_a_note_with_the_replicas_and_shows_its_switch_and_writer(
    cluster: Cluster, service: Callable[..., kserve.KServe], api: ApiServer, role: str
) -> None:
    cluster.create(*SERVICE, {"replicas": 2, "prefill": {"replicas": 2}})
    target = service(role)
    assert (target.read().pause, target.recall()) == (None, None)
    assert target.set_width(3, 2, "a note").result is SetResult.APPLIED
    assert sum(r.method == "PATCH" for r in api.requests) == 1
    status = target.read()
    assert (status.desired, status.writer, target.recall()) == (3, "autoscaler", "a note")
    target.remember("another")
    kind = api.store.resource(*SERVICE[:2])

    def pause(found: dict[str, Any]) -> dict[str, Any]:
        found["metadata"]["annotations"]["autoscaling.elastic-width.io/pause"] = "down"
        return found

    api.store.change(kind, NS, "a", pause)
    assert (target.read().pause, target.recall()) == ("down", "another")


SURGE = {"observedGeneration": 1, "replicas": 125, "updatedReplicas": 25, "availableReplicas": 110}
OVER = {"observedGeneration": 1, "replicas": 100, "updatedReplicas": 100, "availableReplicas": 100}


def test_a_roll_out_with_surge_is_no_width_and_nothing_is_written_until_it_is_over_G30(
    cluster: Cluster,
) -> None:
    cluster.create("apps/v1", "deployments", "a", {"replicas": 100, **DEPLOYMENT})
    target = cluster.scale("deployment", max_width=1000)
    free = Limits(settle_s=0.0, cooldown_down_s=0.0, scale_down_window_s=0.0)
    controller = Controller(Static(Width(100)), Guards(free))
    decisions = []
    for tick, said in enumerate([OVER] + [SURGE] * 20 + [OVER] * 2):
        if tick:  # growth is wanted as soon as the roll-out has begun
            controller.policy = Static(Width(120))
        cluster.status("apps/v1", "deployments", "a", **said)
        width = target.read()
        assert width.present == 100
        obs = replace(observation(tick, 1_000.0 + 5.0 * tick), width=width)
        decisions.append(controller.step(replace(obs, capabilities=target.capabilities())))
    assert {decision.width for decision in decisions[:21]} == {None}
    assert decisions[1].code == "adopted"
    assert "replicas: 125 of 100" in decisions[20].reason
    assert [decision.width for decision in decisions[21:]] == [120, 120]


def test_two_revisions_of_a_stateful_set_are_a_roll_out_G30(cluster: Cluster) -> None:
    cluster.create("apps/v1", "statefulsets", "a", {"replicas": 2, **DEPLOYMENT})
    ready = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2}
    target = cluster.scale("statefulset")
    for update, resizing in (("r1", None), ("r2", True)):
        revisions = {"currentRevision": "r1", "updateRevision": update}
        cluster.status("apps/v1", "statefulsets", "a", **ready, **revisions)
        assert target.read().resizing is resizing


@pytest.mark.parametrize(
    ("workload", "given", "safe"),
    [
        ("deployment", {}, Tristate.YES),
        ("deployment", {"can_shrink": False}, Tristate.NO),
        ("dynamo_engine_group", {}, Tristate.NO),
        ("dynamo_engine_group", {"can_shrink": True}, Tristate.YES),
    ],
)
def test_ranks_of_one_engine_are_taken_away_only_where_that_is_said_to_be_safe_A21(
    cluster: Cluster, workload: str, given: dict[str, Any], safe: Tristate
) -> None:
    assert cluster.scale(workload, **given).capabilities().can_shrink is safe
