"""The fake API server answers as the recorded one did, request by request."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from autoscaler.testing_apiserver import ApiServer, User

DATA = Path(__file__).parents[2] / "data" / "apiserver"
EXCHANGES = [json.loads(line) for line in (DATA / "exchanges.jsonl").read_text().splitlines()]
TOKENS = {"admin": "admin", "unprivileged": "unprivileged", "invalid": "nonsense"}
CONFIGMAPS = "/api/v1/namespaces/gpustack-bench/configmaps"
OTHERS = ("openshift-service-ca.crt", "service-ca.crt"), ("kube-root-ca.crt", "ca.crt")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.install(DATA / "modeldeployment-crd.yaml")
        server.tokens["unprivileged"] = User("nobody-special")
        server.watch_second_s = 0.1
        yield server


def test_answers_every_recorded_request_as_the_real_one_did(api: ApiServer) -> None:
    known: dict[str, str] = {}  # recorded uids, versions and generated names to the fake's
    for number, exchange in enumerate(EXCHANGES):
        wanted = exchange["response"]
        name = f"{number} {exchange['name']}"
        others = _meddle(api, exchange["name"], known)
        got = _send(api, exchange["request"], known)
        if others is not None:
            others.join()
        body: Any = got.text
        if "watch=1" in exchange["request"]["path"]:
            body = [json.loads(line) for line in got.text.splitlines()]
        elif wanted["headers"]["Content-Type"] == "application/json":
            body = got.json()
        assert got.status_code == wanted["status"], f"{name}: {got.text}"
        for header, value in wanted["headers"].items():
            assert got.headers[header] == value, name
        assert _plain(body) == _plain(wanted["body"]), name
        _learn(wanted["body"], body, known)


def _send(api: ApiServer, request: dict[str, Any], known: dict[str, str]) -> requests.Response:
    headers = {}
    if request["content_type"]:
        headers["Content-Type"] = request["content_type"]
    if request["token"] in TOKENS:
        headers["Authorization"] = f"Bearer {TOKENS[request['token']]}"
    body = request["body"]
    content = body if isinstance(body, str) else None if body is None else json.dumps(body)
    return requests.request(
        request["method"],
        api.url + _renamed(request["path"], known),
        data=None if content is None else _renamed(content, known).encode(),
        headers=headers,
        timeout=10,
    )


def _meddle(api: ApiServer, name: str, known: dict[str, str]) -> threading.Thread | None:
    """What else happened on the recorded server, by other hands, while a request was answered."""
    if name == "watch from a resourceVersion that is too old":
        resource = api.store.resource("v1", "configmaps")
        for other, key in OTHERS:
            wanted = next(
                event["object"]
                for exchange in EXCHANGES
                if exchange["name"] == name
                for event in exchange["response"]["body"]
                if event["object"]["metadata"]["name"] == other
            )
            given = {"metadata": {**wanted["metadata"]}, "data": wanted["data"]}
            api.store.create(resource, "gpustack-bench", given)
            assert key in wanted["data"]
        return None
    if name != "configmap watch for 3 s with bookmarks":
        return None

    def meddle() -> None:
        resource = api.store.resource("v1", "configmaps")
        uid = known["193a7cd4-a281-47b1-9c96-b4e29083f3b6"]

        def unread(found: dict[str, Any]) -> dict[str, Any]:
            document = json.loads(found["data"]["observation.json"])
            document["effective"] = {"Known": False, "Value": 0, "Reason": "not collected"}
            found["data"]["observation.json"] = json.dumps(document)
            return found

        api.store.change(resource, "gpustack-bench", f"elastic-observation-{uid}", unread)

    thread = threading.Timer(0.1, meddle)
    thread.start()
    return thread


def _plain(found: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(found, list):
        return [_plain(entry) for entry in found]
    if isinstance(found, dict):
        return {k: _plain(_value(k, v)) for k, v in found.items() if k != "managedFields"}
    if isinstance(found, str):
        for pattern, name in (
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
            (r"current: \d+", "current: N"),
            (r"(b2-elastic-ep[.-])[0-9a-z]{5}(?![0-9a-z])", r"\1RANDOM"),
        ):
            found = re.sub(pattern, name, found)
    return found


def _value(key: str, value: Any) -> Any:
    return f"<{key}>" if key in ("resourceVersion", "creationTimestamp") else value


def _learn(wanted: Any, got: Any, known: dict[str, str]) -> None:
    if isinstance(wanted, list):
        for one, other in zip(wanted, got, strict=True):
            _learn(one, other, known)
    elif isinstance(wanted, dict):
        for key, value in wanted.items():
            if key in ("uid", "resourceVersion") and isinstance(value, str):
                known.setdefault(value, got[key])
            elif key != "managedFields":
                _learn(value, got[key], known)


def _renamed(text: str, known: dict[str, str]) -> str:
    def own(match: re.Match[str]) -> str:
        return match[1] + known.get(match[2], match[2])

    text = re.sub(r'(resourceVersion(?:=|": "))(\d+)', own, text)
    for recorded in known:
        if "-" in recorded:
            text = text.replace(recorded, known[recorded])
    return text
