"""Ray Serve's scaler interface, against a small server that speaks it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from autoscaler.errors import ConfigError, TargetError
from autoscaler.model import SetResult
from autoscaler.targets.ray_serve import Params, RayServe, build
from autoscaler.testing import check_target


class Dashboard(ThreadingHTTPServer):
    """One application with one deployment; ``fault`` answers in its place."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.running = 2, 2
        self.status, self.application = "HEALTHY", "RUNNING"
        self.posts: list[bytes] = []
        self.fault: Callable[[str], tuple[int, bytes] | None] = lambda method: None
        self.drip_s = 0.0
        self.closing = threading.Event()

    def applications(self) -> dict[str, Any]:
        replicas = [{"state": "RUNNING", "replica_id": str(n)} for n in range(self.running)]
        own = {"status": self.status, "target_num_replicas": self.target, "replicas": replicas}
        app = {"status": self.application, "message": "", "deployments": {"b": own}}
        return {"applications": {"a": app}, "proxies": {}}


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        self._answer("GET", json.dumps(self.server.applications()).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append(body)
        assert self.path == "/api/v1/applications/a/deployments/b/scale"
        if self.server.fault("POST") is None:
            self.server.target = json.loads(body)["target_num_replicas"]
            self.server.status = "UPSCALING"
        self._answer("POST", b'{"message":"accepted"}')

    def _answer(self, method: str, content: bytes) -> None:
        status, content = self.server.fault(method) or (200, content)
        if status == 0:
            self.server.closing.wait()
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for byte in content if self.server.drip_s else ():
            self.wfile.write(bytes([byte]))
            if self.server.closing.wait(self.server.drip_s):
                return
        if not self.server.drip_s:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        pass


@pytest.fixture
def ray() -> Iterator[Dashboard]:
    server = Dashboard()
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def target(ray: Dashboard) -> Iterator[RayServe]:
    url = f"http://127.0.0.1:{ray.server_address[1]}/"
    made = build(Params(url, "a", "b", 8, 4, timeout_s=0.5))
    yield made
    made.close()


def test_keeps_the_contract_of_its_port(target: RayServe) -> None:
    check_target(target)


def test_serves_when_the_application_is_healthy_and_the_replicas_run(
    ray: Dashboard, target: RayServe
) -> None:
    assert (target.read().effective, target.read().resizing) == (2, False)
    assert target.set_width(4, 2).result is SetResult.APPLIED
    assert json.loads(ray.posts[0]) == {"target_num_replicas": 4}
    status = target.read()
    assert (status.desired, status.effective, status.resizing) == (4, None, True)
    ray.status, ray.running = "HEALTHY", 4
    assert target.read().effective == 4


def test_no_running_replica_of_several_is_a_fault_and_no_width_A19(
    ray: Dashboard, target: RayServe
) -> None:
    ray.running = 0
    assert target.read().effective is None
    ray.target = 0
    assert target.read().effective == 0


def test_a_failed_deployment_is_a_failure(ray: Dashboard, target: RayServe) -> None:
    ray.status = "DEPLOY_FAILED"
    assert target.read().failure


@pytest.mark.parametrize(
    ("status", "content", "result"),
    [
        (400, b"bad body", SetResult.REFUSED),
        (412, b"external_scaler_enabled is not set", SetResult.REFUSED),
        (500, b"external_scaler_enabled is not set", SetResult.REFUSED),
        (403, b"", SetResult.FORBIDDEN),
        (503, b"no controller", SetResult.AMBIGUOUS),
        (500, b"boom", SetResult.AMBIGUOUS),
        (0, b"", SetResult.AMBIGUOUS),
    ],
)
def test_each_answer_to_a_write_has_one_meaning_A05_A11(
    ray: Dashboard, target: RayServe, status: int, content: bytes, result: SetResult
) -> None:
    ray.fault = lambda method: (status, content) if method == "POST" else None
    assert target.set_width(4, 2).result is result
    assert len(ray.posts) == 1


def test_a_look_that_fails_writes_nothing(ray: Dashboard, target: RayServe) -> None:
    ray.fault = lambda method: (503, b"") if method == "GET" else None
    assert target.set_width(4, 2).result is SetResult.SKIPPED
    assert ray.posts == []


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b'{"applications":{"a":{}}}'])
def test_an_answer_without_its_fields_is_an_error_A02(
    ray: Dashboard, target: RayServe, content: bytes
) -> None:
    ray.fault = lambda method: (200, content)
    with pytest.raises(TargetError, match="Ray Serve a/b"):
        target.read()


@pytest.mark.parametrize("drip", [False, True])
def test_a_slow_dashboard_costs_one_deadline_G54(
    ray: Dashboard, target: RayServe, drip: bool
) -> None:
    if drip:
        ray.drip_s = 0.1
    else:
        ray.fault = lambda method: (0, b"")
    start_s = time.perf_counter()
    with pytest.raises(TargetError):
        target.read()
    assert time.perf_counter() - start_s < 1.5


@pytest.mark.parametrize("url", ["head:8265", "ftp://head", "http://", "http://head?x=1"])
def test_an_unusable_url_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        Params(url, "a", "b", 8, 4)
