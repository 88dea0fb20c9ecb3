"""What the fake API server promises beyond the recorded exchanges."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from kubernetes import client, watch
from kubernetes.config import kube_config

from autoscaler.testing_apiserver import ApiServer, Fault, Rule, User

MAPS = "/api/v1/namespaces/here/configmaps"
ADMIN = {"Authorization": "Bearer admin"}


def call(api: ApiServer, method: str, path: str, body: Any = None, kind: str = "") -> Any:
    headers = {**ADMIN, "Content-Type": kind or "application/json"}
    content = body if isinstance(body, str) else json.dumps(body)
    return requests.request(method, api.url + path, data=content, headers=headers, timeout=10)


def create(api: ApiServer, name: str, **labels: str) -> dict[str, Any]:
    kind = api.store.resource("v1", "configmaps")
    return api.store.create(kind, "here", {"metadata": {"name": name, "labels": labels}})


def events(api: ApiServer, query: str) -> list[tuple[str, str]]:
    answer = call(api, "GET", f"{MAPS}?watch=1&timeoutSeconds=0.3&{query}")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [(e["type"], e["object"].get("metadata", {}).get("name", "")) for e in lines]


@pytest.fixture
def core(api: ApiServer, tmp_path: Path) -> Iterator[client.CoreV1Api]:
    configuration = client.Configuration()
    kube_config.load_kube_config(
        api.kubeconfig(tmp_path / "kubeconfig"), client_configuration=configuration
    )
    with client.ApiClient(configuration) as made:
        yield client.CoreV1Api(made)


def test_a_watch_from_a_forgotten_version_ends_with_410(api: ApiServer) -> None:
    version = create(api, "a")["metadata"]["resourceVersion"]
    create(api, "b")
    assert events(api, f"resourceVersion={version}") == [("ADDED", "b")]
    api.store.compact()
    answer = call(api, "GET", f"{MAPS}?watch=1&timeoutSeconds=0.3&resourceVersion={version}")
    (line,) = [json.loads(text) for text in answer.text.splitlines()]
    assert (answer.status_code, line["type"], line["object"]["code"]) == (200, "ERROR", 410)


def test_a_watch_without_a_version_begins_with_what_is_there(api: ApiServer) -> None:
    create(api, "a", x="1")
    create(api, "b")
    assert events(api, "labelSelector=x") == [("ADDED", "a")]
    assert events(api, "labelSelector=x!%3D1") == [("ADDED", "b")]


def test_a_watch_sees_what_happens_while_it_lasts(api: ApiServer) -> None:
    create(api, "a")
    kind = api.store.resource("v1", "configmaps")
    version = api.store.version
    threading.Timer(0.1, api.store.delete, (kind, "here", "a")).start()
    assert events(api, f"resourceVersion={version}") == [("DELETED", "a")]


def test_the_kubernetes_client_can_watch_it(api: ApiServer, core: client.CoreV1Api) -> None:
    create(api, "a")
    listed = core.list_namespaced_config_map("here")
    assert [item.metadata.name for item in listed.items] == ["a"]
    create(api, "b")
    stream = watch.Watch().stream(
        core.list_namespaced_config_map,
        "here",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=1,
        _request_timeout=5,
    )
    assert [(e["type"], e["object"].metadata.name) for e in stream] == [("ADDED", "b")]


def test_only_a_changed_spec_is_a_new_generation(api: ApiServer) -> None:
    path = "/apis/apps/v1/namespaces/here/deployments"
    template = {"spec": {"containers": [{"name": "c"}]}}
    call(api, "POST", path, {"metadata": {"name": "a"}, "spec": {"template": template}})
    merge = "application/merge-patch+json"

    def generation(at: str, body: dict[str, Any]) -> tuple[int, int]:
        found = call(api, "PATCH", f"{path}/a{at}", body, merge).json()
        stored = call(api, "GET", f"{path}/a").json()["metadata"]
        return stored["generation"], int(found["metadata"]["resourceVersion"])

    first = generation("", {"spec": {"replicas": 1}})
    assert first[0] == 1
    assert generation("", {"metadata": {"labels": {"a": "b"}}}) == (1, first[1] + 1)
    assert generation("/status", {"status": {"replicas": 1}}) == (1, first[1] + 2)
    assert generation("", {"status": {"replicas": 9}}) == (1, first[1] + 2), "not by this path"
    assert generation("/scale", {"spec": {"replicas": 3}}) == (2, first[1] + 3)


def test_an_apply_by_force_takes_the_field_over(api: ApiServer) -> None:
    path = "/apis/worker.gpustack.ai/v1/namespaces/here/modeldeployments"
    role = {"name": "s", "kind": "Server", "elasticEp": {"width": 2}}
    call(api, "POST", path, {"metadata": {"name": "m"}, "spec": {"roles": [role]}})
    wanted = json.dumps({"spec": {"roles": [{**role, "elasticEp": {"width": 4}}]}})
    kind = "application/apply-patch+yaml"
    at = f"{path}/m?fieldManager=gitops"
    assert call(api, "PATCH", at, wanted, kind).status_code == 409
    assert call(api, "PATCH", f"{at}&force=true", wanted, kind).status_code == 200
    assert call(api, "PATCH", at, wanted, kind).status_code == 200, "its own field by now"


def test_a_missing_required_field_is_named(api: ApiServer) -> None:
    path = "/apis/worker.gpustack.ai/v1/namespaces/here/modeldeployments"
    roles = [{"name": "s", "kind": "Server", "elasticEp": {}}]
    answer = call(api, "POST", path, {"metadata": {"name": "m"}, "spec": {"roles": roles}})
    (cause,) = answer.json()["details"]["causes"]
    assert (answer.status_code, cause["field"]) == (422, "spec.roles[0].elasticEp.width")
    assert cause["reason"] == "FieldValueRequired"


def test_what_it_cannot_do_it_says(api: ApiServer) -> None:
    create(api, "a")
    kind = "application/strategic-merge-patch+json"
    assert call(api, "PATCH", f"{MAPS}/a", {}, kind).status_code == 501
    assert call(api, "GET", "/apis/unknown/v1/namespaces/here/things").status_code == 404
    assert call(api, "GET", "/nonsense").status_code == 404


def test_rules_tell_verbs_and_subresources_apart(api: ApiServer) -> None:
    rules = (Rule(("list",), ("",), ("configmaps",), ("here",)),)
    api.tokens["admin"] = User("lister", rules)
    assert call(api, "GET", MAPS).status_code == 200
    assert call(api, "GET", f"{MAPS}?watch=1").status_code == 403
    assert call(api, "GET", f"{MAPS}/a").status_code == 403
    assert call(api, "GET", MAPS.replace("here", "there")).status_code == 403


def test_a_fault_is_met_as_often_as_it_says(api: ApiServer) -> None:
    fault = Fault("answer", "GET", "/configmaps", times=2, status=500)
    api.faults.append(fault)
    codes = [call(api, "GET", path).status_code for path in ("/version", MAPS, MAPS, MAPS)]
    assert codes == [200, 500, 500, 200]
    assert fault.seen == 2


def test_closing_lets_everybody_go() -> None:
    with ApiServer() as api:
        api.faults.append(Fault("hang"))
        failed = threading.Event()

        def hang() -> None:
            with pytest.raises(requests.RequestException):
                call(api, "GET", "/version")
            failed.set()

        thread = threading.Thread(target=hang)
        thread.start()
        assert not failed.wait(0.2)
    thread.join(5)
    assert failed.is_set()
