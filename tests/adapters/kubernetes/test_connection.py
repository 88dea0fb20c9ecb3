"""The Kubernetes client's pitfalls, each against a real socket."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
import yaml

from autoscaler.clock import SystemClock
from autoscaler.cluster.answers import Gone, NotSent, Unauthenticated, Unclear, outcome
from autoscaler.cluster.connection import (
    JSON_PATCH,
    MERGE_PATCH,
    Access,
    Connection,
    path,
    require_name,
)
from autoscaler.errors import ConfigError, TargetError, TargetForbidden
from autoscaler.model import SetResult
from autoscaler.testing_apiserver import ADMIN, ApiServer, Fault, User

MAP = path("v1", "here", "configmaps", "a")
Connect = Callable[..., Connection]


@pytest.fixture
def connect(api: ApiServer, tmp_path: Path) -> Iterator[Connect]:
    api.store.create(api.store.resource("v1", "configmaps"), "here", {"metadata": {"name": "a"}})
    made: list[Connection] = []

    def build(timeout_s: float = 5.0, **user: str) -> Connection:
        token = user.pop("token", "admin")
        file = api.kubeconfig(tmp_path / "kubeconfig", token, **user)
        made.append(Connection(Access(file, timeout_s=timeout_s)))
        return made[-1]

    yield build
    for connection in made:
        connection.close()


def elapsed(call: Callable[[], object], kind: type[TargetError]) -> tuple[float, str]:
    """How long a call took to fail, and what it said."""
    start_s = time.perf_counter()
    with pytest.raises(kind) as caught:
        call()
    return time.perf_counter() - start_s, str(caught.value)


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_hanging_server_costs_one_deadline_and_no_second_attempt_G54(
    api: ApiServer, connect: Connect, method: str
) -> None:
    api.faults.append(Fault("hang", times=None))
    connection = connect(timeout_s=0.4)
    call = (
        (lambda: connection.get(MAP))
        if method == "GET"
        else (lambda: connection.patch(MAP, {"data": {"b": "c"}}, MERGE_PATCH))
    )
    took_s, said = elapsed(call, Unclear)
    assert 0.3 < took_s < 1.5
    assert "Timeout" in said
    assert len(api.requests) == 1


def test_a_dripping_answer_costs_one_deadline(api: ApiServer, connect: Connect) -> None:
    api.faults.append(Fault("drip", delay_s=0.1, times=None))
    connection = connect(timeout_s=0.5)
    took_s, _ = elapsed(lambda: connection.get(MAP), Unclear)
    assert 0.3 < took_s < 1.5


def test_an_answer_that_stops_half_way_costs_what_is_left_of_the_deadline(
    api: ApiServer, tmp_path: Path
) -> None:
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                done.wait(0.8)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
                done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        api.url = f"http://127.0.0.1:{server.getsockname()[1]}"
        connection = Connection(Access(api.kubeconfig(tmp_path / "k"), timeout_s=1.0))
        took_s, _ = elapsed(lambda: connection.get(MAP), Unclear)
        connection.close()
        done.set()
        thread.join()
    assert took_s < 1.5, "the rest of 1 s, not another one"


def test_several_calls_share_one_deadline(api: ApiServer, connect: Connect) -> None:
    api.faults.append(Fault("slow", delay_s=0.3, times=None))
    connection = connect(timeout_s=0.5)
    until_s = connection.deadline_s()
    connection.get(MAP, until_s)
    took_s, _ = elapsed(lambda: connection.get(MAP, until_s), TargetError)
    assert took_s < 0.5


def test_a_black_hole_costs_one_deadline_G54(tmp_path: Path, api: ApiServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:  # takes connections, never reads
        api.url = f"http://127.0.0.1:{hole.getsockname()[1]}"
        connection = Connection(Access(api.kubeconfig(tmp_path / "k"), timeout_s=0.4))
        took_s, _ = elapsed(lambda: connection.get(MAP), Unclear)
        connection.close()
    assert took_s < 1.5


def test_a_refused_connection_is_a_target_error(tmp_path: Path) -> None:
    api = ApiServer()
    file = api.kubeconfig(tmp_path / "kubeconfig")
    api.close()
    connection = Connection(Access(file))
    took_s, said = elapsed(lambda: connection.get(MAP), TargetError)
    assert took_s < 1.0
    assert "Connection refused" in said


def test_a_restarted_server_is_found_again_G58(tmp_path: Path) -> None:
    first = ApiServer()
    connection = Connection(Access(first.kubeconfig(tmp_path / "kubeconfig")))
    assert connection.get("/version")["major"] == "1"
    first.close()
    with pytest.raises(TargetError):
        connection.get("/version")
    with ApiServer(port=first.port):
        assert connection.get("/version")["major"] == "1"
    connection.close()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("close"),
        Fault("answer", status=500),
        Fault("answer", status=503),
        Fault("answer", status=504),
        Fault("answer", status=408),
        Fault("answer", status=429, headers={"Retry-After": "0"}),
        Fault("answer", status=200, body="<html>welcome</html>"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_an_unclear_write_is_sent_once_A05(
    api: ApiServer, connect: Connect, fault: Fault, applied: bool
) -> None:
    api.faults.append(Fault(**{**_fields(fault), "times": None, "applied": applied}))
    connection = connect()
    answer = outcome(lambda: connection.patch(MAP, {"data": {"b": "c"}}, MERGE_PATCH))
    assert answer.result is SetResult.AMBIGUOUS
    assert len(api.requests) == 1


def test_429_on_a_read_is_waited_for_as_asked_but_not_for_hours_G60(
    api: ApiServer, connect: Connect
) -> None:
    api.faults.append(Fault("answer", status=429, headers={"Retry-After": "21600"}))
    connection = connect()
    took_s, _ = elapsed(lambda: connection.get(MAP), Unclear)
    assert took_s < 1.0
    with pytest.raises(NotSent, match="asked to wait 30 s"):
        connection.get(MAP)
    assert len(api.requests) == 1
    answer = outcome(lambda: connection.patch(MAP, {}, MERGE_PATCH))
    assert answer.result is SetResult.SKIPPED


def test_429_with_a_short_wait_is_over_when_it_is_over_G60(
    api: ApiServer, connect: Connect
) -> None:
    api.faults.append(Fault("answer", status=429, headers={"Retry-After": "1"}))
    connection = connect()
    with pytest.raises(Unclear):
        connection.get(MAP)
    with pytest.raises(NotSent):
        connection.get(MAP)
    SystemClock().sleep(1.05)
    assert connection.get(MAP)["metadata"]["name"] == "a"


def test_a_custom_resource_gets_the_content_type_that_was_meant_G64(
    api: ApiServer, connect: Connect
) -> None:
    kind = api.store.resource("worker.gpustack.ai/v1", "modeldeployments")
    role = {"name": "s", "kind": "Server", "elasticEp": {"width": 2}}
    api.store.create(kind, "here", {"metadata": {"name": "m"}, "spec": {"roles": [role]}})
    connection = connect()
    where = path("worker.gpustack.ai/v1", "here", "modeldeployments", "m")
    body = [{"op": "replace", "path": "/spec/roles/0/elasticEp/width", "value": 3}]
    written = connection.patch(where, body, JSON_PATCH)
    assert written["spec"]["roles"][0]["elasticEp"]["width"] == 3
    connection.patch(where, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    sent = [r.headers["content-type"] for r in api.requests]
    assert sent == ["application/json-patch+json", "application/merge-patch+json"]


def test_401_after_a_rotated_token_is_retried_once_with_the_new_one_G66(
    api: ApiServer, connect: Connect, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api.tokens = {"old": ADMIN}
    connection = connect(token="", tokenFile=str(token))
    connection.get(MAP)
    token.write_text("new")
    api.tokens = {"new": ADMIN}
    written = connection.patch(MAP, {"data": {"b": "c"}}, MERGE_PATCH)
    assert written["data"] == {"b": "c"}
    said = [r.headers["authorization"] for r in api.requests]
    assert said == ["Bearer old", "Bearer old", "Bearer new"]


def test_401_for_good_is_an_error_after_one_more_attempt_G66(
    api: ApiServer, connect: Connect
) -> None:
    api.tokens.clear()
    connection = connect()
    with pytest.raises(Unauthenticated) as caught:
        connection.get(MAP)
    assert "admin" not in str(caught.value)
    assert len(api.requests) == 2
    answer = outcome(lambda: connection.patch(MAP, {}, MERGE_PATCH))
    assert answer.result is SetResult.FORBIDDEN


def test_401_without_a_readable_token_is_an_error_and_no_write_G66(
    api: ApiServer, connect: Connect, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    connection = connect(token="", tokenFile=str(token))
    token.unlink()
    (tmp_path / "kubeconfig").write_text("{")
    answer = outcome(lambda: connection.patch(MAP, {}, MERGE_PATCH))
    assert answer.result is SetResult.FORBIDDEN
    assert "401" in answer.detail
    assert len(api.requests) == 1


def test_403_says_who_may_not_do_what(api: ApiServer, connect: Connect) -> None:
    api.tokens["of-weak"] = User("weak")
    with pytest.raises(TargetForbidden, match='User "weak" cannot get resource "configmaps"'):
        connect(token="of-weak").get(MAP)  # noqa: S106  # a fake's


def test_404_is_gone(connect: Connect) -> None:
    with pytest.raises(Gone, match='"b" not found'):
        connect().get(path("v1", "here", "configmaps", "b"))


def test_redirects_are_not_followed(api: ApiServer, connect: Connect) -> None:
    with ApiServer() as other:
        headers = {"Location": f"{other.url}/version"}
        api.faults.append(Fault("answer", status=302, headers=headers, times=None))
        connection = connect()
        with pytest.raises(TargetError, match="302"):
            connection.get(MAP)
        assert other.requests == []


def test_endless_answers_are_cut_off(api: ApiServer, connect: Connect) -> None:
    api.faults.append(Fault("answer", status=200, body=" " * (9 * 2**20)))
    with pytest.raises(TargetError, match="must answer at most 8388608 bytes"):
        connect().get(MAP)


@pytest.mark.parametrize(
    ("no_proxy", "direct"), [("127.0.0.0/8", True), ("127.0.0.1", True), ("10.0.0.0/8", False)]
)
def test_no_proxy_is_honoured_also_as_a_network_G68(
    api: ApiServer,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    no_proxy: str,
    direct: bool,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with ApiServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", no_proxy)
        connection = connect()
        if direct:
            assert connection.get(MAP)["metadata"]["name"] == "a"
        else:
            with pytest.raises(TargetError):
                connection.get(MAP)
        assert bool(proxy.requests) is not direct


def test_in_a_pod_the_service_account_is_used_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    account = tmp_path / "account"
    account.mkdir()
    authority.cert_pem.write_to_path(str(account / "ca.crt"))
    (account / "token").write_text("admin")
    with ApiServer(tls=context) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        connection = Connection(Access(account=str(account)))
        assert connection.get("/version")["major"] == "1"
        api.tokens = {"new": ADMIN}
        (account / "token").write_text("new")
        assert connection.get("/version")["major"] == "1", "within the client's 60 s of memory"
        connection.close()
        trustme.CA().cert_pem.write_to_path(str(account / "ca.crt"))
        stranger = Connection(Access(account=str(account)))
        with pytest.raises(TargetError, match="certificate verify failed"):
            stranger.get("/version")
        stranger.close()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "a: b",
        yaml.safe_dump({"current-context": "x", "contexts": [{"name": "y", "context": {}}]}),
        yaml.safe_dump({"current-context": "x", "contexts": "y", "clusters": 1, "users": []}),
    ],
)
def test_an_unusable_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    with pytest.raises(ConfigError, match="kubeconfig"):
        Connection(Access(str(file)))


def test_a_missing_kubeconfig_or_context_is_named(api: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        Connection(Access(str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="other"):
        Connection(Access(api.kubeconfig(tmp_path / "k"), "other"))


@pytest.mark.parametrize("name", ["", "a/b", "..", "A", "a b", "a?b", "-a"])
def test_names_cannot_leave_their_place_in_the_path(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        require_name("name", name)


def _fields(fault: Fault) -> dict[str, object]:
    return {name: getattr(fault, name) for name in Fault.__dataclass_fields__} | {"seen": 0}


def test_json_bodies_are_sent_as_they_are(api: ApiServer, connect: Connect) -> None:
    connect().patch(MAP, {"data": {"b": "ü"}}, MERGE_PATCH)
    assert json.loads(api.requests[-1].body) == {"data": {"b": "ü"}}
