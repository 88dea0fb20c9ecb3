"""What the shipped rights permit and what they deny, asked of an API server over HTTP."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.cluster.connection import JSON_PATCH, MERGE_PATCH, Access, Connection, path
from autoscaler.cluster.memory_map import MemoryMap
from autoscaler.emulator.operator import Operator
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.model import SetResult
from autoscaler.objects.resource import parse
from autoscaler.objects.spec import Terms, resolved
from autoscaler.settings.target import FileSet
from autoscaler.targets import gpustack, kserve, scale_subresource
from autoscaler.testing import ManualClock
from autoscaler.testing_apiserver import ApiServer, Rule, User
from tests.adapters.kubernetes.worlds import CRD, StubEngine, deployment

from .rendered import DEPLOY, OVERLAYS, Json, overlay, rendered

EXAMPLE: Json = yaml.safe_load((DEPLOY / "examples" / "width-autoscaler.yaml").read_text())
TOKEN = "of-the-service-account"  # noqa: S105  # opens nothing but the fake server
WIDTHS = ("autoscaling.elastic-width.io/v1alpha1", "widthautoscalers")
ELSEWHERE = "kube-system"
READING = {"get", "list", "watch"}


def account(objects: list[Json], home: str) -> User:
    """The service account with every rule that is bound to it, as RBAC adds them up."""
    roles = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in objects}
    rules = []
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject.get("namespace", home)) == ("ServiceAccount", home)
        reference, namespace = binding["roleRef"], binding["metadata"].get("namespace", home)
        whole = binding["kind"] == "ClusterRoleBinding"
        role = roles[
            reference["kind"],
            None if whole else binding["metadata"].get("namespace"),
            reference["name"],
        ]
        rules += [
            Rule(
                tuple(rule["verbs"]),
                tuple(rule["apiGroups"]),
                tuple(rule["resources"]),
                ("*",) if whole else (namespace,),
                tuple(rule.get("resourceNames", ())),
            )
            for rule in role["rules"]
        ]
    return User(f"system:serviceaccount:{home}:autoscaler", tuple(rules))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def api(clock: ManualClock) -> Iterator[ApiServer]:
    with ApiServer(clock) as server:
        server.install(CRD)
        server.install(DEPLOY / "base" / "width-autoscaler-crd.yaml")
        yield server


@pytest.fixture
def limited(api: ApiServer, tmp_path: Path) -> Iterator[Callable[[list[Json], str], Connection]]:
    """A connection with nothing but the rights of these objects; its kubeconfig is in tmp_path."""
    made = []

    def connect(objects: list[Json], home: str) -> Connection:
        api.tokens[TOKEN] = account(objects, home)
        made.append(Connection(Access(api.kubeconfig(tmp_path / "limited", TOKEN))))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def chat(api: ApiServer, clock: ManualClock, tmp_path: Path) -> Operator:
    """The deployment that the overlays' configuration names, with its operator."""
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    for name in ("chat", "other"):
        api.store.create(kind, "inference", deployment() | {"metadata": {"name": name}})
    connection = Connection(Access(api.kubeconfig(tmp_path / "operator")))
    operator = Operator(connection, "inference", StubEngine(clock), clock, None)
    operator.run_once()
    return operator


def target(tmp_path: Path, name: str = "chat") -> gpustack.GpuStack:
    kubeconfig = str(tmp_path / "limited")
    return gpustack.build(gpustack.Params("inference", name, kubeconfig=kubeconfig))


@pytest.mark.parametrize(
    "folder",
    [
        "base",
        "targets/gpustack",
        "targets/scale",
        "targets/kserve",
        "targets/objects",
        *map("overlays/{}".format, OVERLAYS),
    ],
)
def test_no_role_has_a_wildcard_or_reaches_secrets_or_rights_S1(folder):
    roles = [o for o in rendered(folder) if o["kind"] in ("Role", "ClusterRole")]
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            words = {*rule["verbs"], *rule["apiGroups"], *rule["resources"]}
            assert not any("*" in word for word in words)
            assert not words & {"secrets", "pods/exec", "serviceaccounts/token"}
            assert "rbac.authorization.k8s.io" not in words
            assert set(rule["verbs"]) <= {*READING, "create", "update", "patch"}
            if role["kind"] == "ClusterRole":
                assert set(rule["verbs"]) <= READING


def test_a_gpustack_target_reads_rehearses_and_writes_with_nothing_but_its_role(
    api, clock, tmp_path, limited
):
    chat(api, clock, tmp_path)
    limited(overlay("one-namespace"), "inference")
    steered = target(tmp_path)
    assert steered.read().effective == 2
    assert steered.capabilities().max_width == 8
    assert steered.rehearse(3, 2).result is SetResult.APPLIED
    assert steered.set_width(4, 2).result is SetResult.APPLIED
    steered.close()


def test_another_deployment_of_the_namespace_is_out_of_reach(api, clock, tmp_path, limited):
    chat(api, clock, tmp_path)
    limited(overlay("one-namespace"), "inference")
    other = target(tmp_path, "other")
    with pytest.raises(TargetForbidden):
        other.read()
    assert other.set_width(4, 2).result is not SetResult.APPLIED
    other.close()


def test_the_gpustack_role_ends_at_its_namespace(api, clock, tmp_path, limited):
    chat(api, clock, tmp_path)
    moved = [replace_namespace(o, "elsewhere") for o in overlay("one-namespace")]
    limited(moved, "elsewhere")
    steered = target(tmp_path)
    with pytest.raises(TargetError):
        steered.read()
    steered.close()


def replace_namespace(found: Json, namespace: str) -> Json:
    found["metadata"]["namespace"] = namespace
    for subject in found.get("subjects", ()):
        subject["namespace"] = namespace
    return found


def test_the_dry_run_overlay_can_read_and_could_not_write_if_it_wanted_to(
    api, clock, tmp_path, limited
):
    chat(api, clock, tmp_path)
    limited(overlay("dry-run"), "inference")
    steered = target(tmp_path)
    assert steered.read().effective == 2
    assert steered.set_width(4, 2).result is SetResult.FORBIDDEN
    steered.close()


OWN: dict[str, tuple[str, str, Json]] = {
    "lease": ("coordination.k8s.io/v1", "leases", {"spec": {"holderIdentity": "a"}}),
    "memory": ("v1", "configmaps", {"data": {"chat": "{}"}}),
}
NAMES = {"lease": "autoscaler", "memory": "autoscaler-memory"}


@pytest.mark.parametrize(
    ("name", "home"), [("one-namespace", "inference"), ("several-namespaces", "autoscaler")]
)
def test_the_lease_is_made_read_and_renewed(name, home, limited):
    connection = limited(overlay(name), home)
    api_version, plural, content = OWN["lease"]
    body = {"metadata": {"name": NAMES["lease"]}, **content}
    connection.send("POST", path(api_version, home, plural, ""), body)
    at = path(api_version, home, plural, NAMES["lease"])
    connection.send("PUT", at, connection.get(at))


@pytest.mark.parametrize(
    ("name", "home"), [("one-namespace", "inference"), ("several-namespaces", "autoscaler")]
)
def test_the_memory_is_made_recalled_and_changed(name, home, limited):
    memory = MemoryMap(limited(overlay(name), home), home, "chat")
    assert memory.recall() is None
    for text in ("{}", "{1}"):
        memory.remember(text)
        assert memory.recall() == text


@pytest.mark.parametrize("what", list(OWN))
def test_others_leases_and_configmaps_are_not_changed(what, api, limited):
    """In the controller's own namespace; create is the exception that RBAC leaves no choice in."""
    connection = limited(overlay("several-namespaces"), "autoscaler")
    api_version, plural, content = OWN[what]
    kind = api.store.resource(api_version, plural)
    api.store.create(kind, "autoscaler", {"metadata": {"name": "another"}, **content})
    at = path(api_version, "autoscaler", plural, "another")
    with pytest.raises(TargetForbidden):
        connection.get(at)
    with pytest.raises(TargetForbidden):
        connection.send("PUT", at, {"metadata": {"name": "another"}, **content})
    with pytest.raises(TargetForbidden):
        connection.patch(at, {"data": {}}, MERGE_PATCH)
    with pytest.raises(TargetForbidden):
        connection.get(path(api_version, "autoscaler", plural, ""))


EVENT = {
    "metadata": {"generateName": "chat."},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "elastic-width.io/autoscaler",
    "reportingInstance": "autoscaler-0",
    "action": "Resize",
    "reason": "ResizeRequested",
    "type": "Normal",
    "note": "2 to 4",
}


@pytest.mark.parametrize("namespace", ["team-a", "team-b"])
def test_events_are_told_where_the_targets_are_and_never_changed(namespace, limited):
    connection = limited(overlay("several-namespaces"), "autoscaler")
    about = {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeployment",
        "namespace": namespace,
        "name": "chat",
    }
    body = {**EVENT, "metadata": {"name": "chat.1"}, "regarding": about}
    connection.send("POST", path("events.k8s.io/v1", namespace, "events", ""), body)
    at = path("events.k8s.io/v1", namespace, "events", "chat.1")
    with pytest.raises(TargetForbidden):
        connection.get(at)
    with pytest.raises(TargetForbidden):
        connection.send("DELETE", at, None)


DENIED = [
    ("GET", "v1", "secrets", ""),
    ("GET", "v1", "secrets", "a"),
    ("GET", "v1", "configmaps", ""),
    ("POST", "v1", "secrets", ""),
    ("GET", "worker.gpustack.ai/v1", "modeldeployments", ""),
    ("PUT", "worker.gpustack.ai/v1", "modeldeployments", "chat"),
    ("POST", "worker.gpustack.ai/v1", "modeldeployments", ""),
    ("DELETE", "worker.gpustack.ai/v1", "modeldeployments", "chat"),
    ("DELETE", "v1", "configmaps", "elastic-resize-x"),
    ("PUT", "v1", "configmaps", "elastic-observation-x"),
    ("DELETE", "v1", "configmaps", "autoscaler-memory"),
    ("DELETE", "coordination.k8s.io/v1", "leases", "autoscaler"),
    ("GET", *WIDTHS, ""),
    ("GET", "apps/v1", "deployments", "autoscaler"),
    ("DELETE", "apps/v1", "deployments", "autoscaler"),
    ("POST", "apps/v1", "deployments", ""),
]


@pytest.mark.parametrize(("method", "api_version", "plural", "name"), DENIED)
@pytest.mark.parametrize("namespace", ["inference", ELSEWHERE])
def test_the_rest_is_denied(method, api_version, plural, name, namespace, limited):
    connection = limited(overlay("one-namespace"), "inference")
    at = path(api_version, namespace, plural, name)
    with pytest.raises(TargetForbidden):
        connection.get(at) if method == "GET" else connection.send(method, at, {})


@pytest.mark.parametrize("what", list(OWN))
def test_nothing_of_its_own_is_made_in_a_targets_namespace(what, limited):
    connection = limited(overlay("several-namespaces"), "autoscaler")
    api_version, plural, content = OWN[what]
    body = {"metadata": {"name": NAMES[what]}, **content}
    with pytest.raises(TargetForbidden):
        connection.send("POST", path(api_version, "team-a", plural, ""), body)


def test_a_team_s_role_is_not_another_s(api, clock, limited):
    connection = limited(overlay("several-namespaces"), "autoscaler")
    body = [{"op": "test", "path": "/spec", "value": {}}]
    for namespace in ("team-b", ELSEWHERE):
        at = path("worker.gpustack.ai/v1", namespace, "modeldeployments", "chat")
        with pytest.raises(TargetForbidden):
            connection.patch(at, body, JSON_PATCH)
    at = path("apps/v1", "team-b", "deployments", "agents")
    with pytest.raises(TargetForbidden):  # its target is a LeaderWorkerSet
        connection.get(at)


def test_a_deployment_is_scaled_with_nothing_but_the_scale_role(api, tmp_path, limited):
    kind = api.store.resource("apps/v1", "deployments")
    body = {"metadata": {"name": "web"}, "spec": {"replicas": 2}}
    api.store.create(kind, "here", body)
    limited(in_namespace("targets/scale", "here"), "here")
    scaled = scale_subresource.build(
        scale_subresource.Params(
            "here",
            "web",
            "deployment",
            max_width=8,
            gpus_per_width=1,
            kubeconfig=str(tmp_path / "limited"),
        )
    )
    assert scaled.read().desired == 2
    assert scaled.set_width(3, 2).result is SetResult.APPLIED
    scaled.close()


def test_a_kserve_service_is_scaled_with_nothing_but_its_role(api, tmp_path, limited):
    names = {"kind": "LLMInferenceService", "plural": "llminferenceservices"}
    served = {"name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}}}
    group = {"group": "serving.kserve.io", "scope": "Namespaced"}
    api.store.install({"spec": {**group, "names": names, "versions": [served]}})
    service = api.store.resource("serving.kserve.io/v1alpha1", "llminferenceservices")
    workload = api.store.resource("apps/v1", "deployments")
    for kind, name in ((service, "llm"), (workload, "llm-kserve")):
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"replicas": 2}}
        api.store.create(kind, "here", body)
    limited(in_namespace("targets/kserve", "here"), "here")
    scaled = kserve.build(
        kserve.Params(
            "here",
            "llm",
            "deployment",
            "llm-kserve",
            max_width=8,
            gpus_per_width=1,
            kubeconfig=str(tmp_path / "limited"),
        )
    )
    assert scaled.read().desired == 2
    assert scaled.set_width(3, 2).result is SetResult.APPLIED
    scaled.close()


def test_objects_are_read_watched_and_told_their_status_and_never_changed(api, limited):
    connection = limited(overlay("several-namespaces"), "autoscaler")
    kind = api.store.resource(*WIDTHS)
    api.store.create(kind, "team-a", EXAMPLE, strict=True)
    at = path(WIDTHS[0], "team-a", WIDTHS[1], "chat")
    everything = path(WIDTHS[0], "team-a", WIDTHS[1], "")
    assert [o["metadata"]["name"] for o in connection.get(everything)["items"]] == ["chat"]
    seen = set(account(overlay("several-namespaces"), "autoscaler").rules)
    assert any("watch" in rule.verbs and "widthautoscalers" in rule.resources for rule in seen)
    connection.patch(f"{at}/status", {"status": {"width": {"desired": 4}}}, MERGE_PATCH)
    assert connection.get(at)["status"]["width"] == {"desired": 4}
    with pytest.raises(TargetForbidden):
        connection.patch(at, {"spec": {"policy": "hold"}}, MERGE_PATCH)
    with pytest.raises(TargetForbidden):
        connection.send("DELETE", at, None)
    with pytest.raises(TargetForbidden):
        connection.get(path(WIDTHS[0], "team-b", WIDTHS[1], ""))


def test_the_example_object_means_a_target_of_its_own_namespace(api, tmp_path):
    kind = api.store.resource(*WIDTHS)
    found = parse(api.store.create(kind, "team-a", EXAMPLE, strict=True))
    assert found is not None
    meant = resolved(found, Terms(5.0, FileSet(tmp_path / "autoscaler.yaml")))
    assert (meant.problems, meant.warnings) == ([], [])
    assert meant.settings is not None
    assert meant.settings.name == "team-a/chat"
    assert meant.settings.target.params.namespace == "team-a"


def test_the_capacity_component_lists_and_changes_nothing(api, limited):
    role, _ = yaml.safe_load_all((DEPLOY / "capacity" / "cluster-role.yaml").read_text())
    rules = tuple(
        Rule(tuple(r["verbs"]), tuple(r["apiGroups"]), tuple(r["resources"])) for r in role["rules"]
    )
    connection = limited([], "autoscaler")
    api.tokens[TOKEN] = User("system:serviceaccount:autoscaler:autoscaler", rules)
    for plural in ("nodes", "pods"):
        assert connection.get(path("v1", "", plural, ""))["items"] == []
        with pytest.raises(TargetForbidden):
            connection.send("DELETE", path("v1", "", plural, "a"), None)
    with pytest.raises(TargetForbidden):
        connection.get(path("v1", "", "configmaps", ""))
    kueue = {
        (v, p)
        for r in role["rules"]
        if "kueue.x-k8s.io" in r["apiGroups"]
        for v in r["verbs"]
        for p in r["resources"]
    }
    assert kueue == {("list", "localqueues"), ("get", "clusterqueues")}


def in_namespace(folder: str, namespace: str) -> list[Json]:
    return [replace_namespace(o, namespace) for o in rendered(folder)]


def test_a_name_in_a_rule_permits_that_object_and_no_request_without_a_name():
    rule = Rule(("get", "list", "create"), ("",), ("configmaps",), ("here",), ("a",))
    user = User("u", (rule,))
    assert user.may("get", "", "configmaps", "here", "a")
    assert not user.may("get", "", "configmaps", "here", "b")
    assert not user.may("list", "", "configmaps", "here", "")
    assert not user.may("create", "", "configmaps", "here", "")
    assert User("u", (replace(rule, names=()),)).may("list", "", "configmaps", "here", "")
