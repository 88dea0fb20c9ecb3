"""What servers do wrong, over real HTTP: either source keeps its time, its memory and its word."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler import limits
from autoscaler.clock import SystemClock
from autoscaler.controller import Controller
from autoscaler.decisions import MemoryLog
from autoscaler.errors import ConfigError, ObservationError
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import SignalStatus, Slo
from autoscaler.policies import static
from autoscaler.ports import MetricsSource, PolicyContext, SourceContext
from autoscaler.sources import prometheus, scrape
from autoscaler.testing import FakeTarget, ManualClock, check_source
from tests.adapters.prometheus.recorded import whole_page
from tests.adapters.prometheus.servers import Answer, Request, Server, free_port, raw_server

TIMEOUT_S = 0.5


def scraper(url: str, **more: object) -> MetricsSource:
    params = scrape.Params(urls=(f"{url}/metrics",), timeout_s=TIMEOUT_S, **more)
    return scrape.build(params, _context())


def prometheus_reader(url: str, **more: object) -> MetricsSource:
    params = prometheus.Params(url=url, timeout_s=TIMEOUT_S, **more)
    return prometheus.build(params, _context())


def _context() -> SourceContext:
    return SourceContext(Slo(), SystemClock(), lambda: 2)


Build = Callable[..., MetricsSource]
both = pytest.mark.parametrize("build", [scraper, prometheus_reader])


def fails(source: MetricsSource, within_s: float = 3 * TIMEOUT_S) -> str:
    """The message of the error that a read ends with, in time."""
    began = time.monotonic()  # noqa: TID251  # how long it really takes is what is tested
    with pytest.raises(ObservationError) as caught:
        source.read()
    took_s = time.monotonic() - began  # noqa: TID251  # as above
    assert took_s < within_s, f"took {took_s:.2f} s"
    return str(caught.value)


@both
def test_a_refused_connection_is_an_error_that_names_the_address_M05_G08_G13(build: Build):
    port = free_port()
    source = build(f"http://127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in fails(source)
    assert "connection refused" in fails(source)


@both
@pytest.mark.parametrize("status", [None, 500, 503])
def test_ten_minutes_without_an_answer_move_no_width_and_are_told_M05(
    build: Build, status: int | None
):
    clock = ManualClock()
    target, log = FakeTarget(clock, 4), MemoryLog()
    with Server(Answer("", status or 500)) as server:
        url = server.url if status else f"http://127.0.0.1:{free_port()}"
        # Wants less from the first tick on, and a window for it has long passed.
        policy = static.build(static.Params(2), PolicyContext(Slo(), 5.0))
        controller = Controller(policy, Guards(limits.Params(scale_down_window_s=0.0)))
        loop = ControlLoop(build(url), target, controller, clock, log, Slo(), 5.0)
        loop.run(until_s=clock.now_s() + 600.0)
    assert len(log.entries) == 120
    assert (target.writes, target.desired) == ([], 4)
    seen = [entry.obs.metrics.queue_depth for entry in log.entries if entry.obs]
    assert {signal.value for signal in seen} == {None}
    assert {signal.status for signal in seen} <= {SignalStatus.STALE, SignalStatus.NO_SERIES}
    assert all(url.removeprefix("http://") in signal.detail for signal in seen)
    assert not loop.ready


@both
def test_a_black_hole_costs_the_deadline_and_no_more_G70(build: Build):
    def swallow(connection: socket.socket, over: threading.Event) -> None:
        over.wait(4)

    with raw_server(swallow) as url:
        source = build(url)
        for _ in range(2):
            assert "timed out" in fails(source)


@both
def test_an_answer_that_trickles_costs_the_deadline_and_no_more(build: Build):
    def trickle(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not over.wait(0.05):
            connection.sendall(b"#")

    with raw_server(trickle) as url:
        source = build(url)
        assert "no whole answer in" in fails(source)


@both
def test_headers_that_trickle_cost_one_thread_and_no_more(build: Build):
    def trickle(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not over.wait(0.05):
            connection.sendall(b"x")

    with raw_server(trickle) as url:
        source = build(url)
        before = threading.active_count()
        fails(source)
        for _ in range(5):
            assert "not returned yet" in fails(source)
        assert threading.active_count() <= before + 4


@both
def test_an_answer_after_1_2_deadlines_is_missed_and_the_next_one_is_read_G16(build: Build):
    def late(request: Request) -> Answer:
        if slow.is_set():
            threading.Event().wait(1.2 * TIMEOUT_S)
        return _good(request)

    slow = threading.Event()
    slow.set()
    with Server(late) as server:
        source = build(server.url)
        fails(source)
        slow.clear()
        threading.Event().wait(0.5 * TIMEOUT_S)
        check_source(source)


@both
def test_429_with_retry_after_6_h_is_not_obeyed(build: Build):
    with Server(Answer("busy", 429, {"Retry-After": "21600"})) as server:
        message = fails(build(server.url), within_s=0.4)
        assert "HTTP 429" in message
        assert "21600" in message
        assert len(server.requests) == 1


@both
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(build: Build, status: int):
    with Server(_good) as elsewhere:
        to = elsewhere.url.replace("http://", "http://user:secret@") + "/metrics?token=secret"
        with Server(Answer("", status, {"Location": to})) as server:
            message = fails(build(server.url))
        assert "redirects to" in message
        assert "secret" not in message
        assert not elsewhere.requests


@both
@pytest.mark.parametrize("status", [200, 203])
def test_a_login_page_is_no_answer_G14(build: Build, status: int):
    page = "<html><body>Please log in</body></html>\n"
    for kind in ("text/html", "text/plain"):
        with Server(Answer(page, status, {"Content-Type": kind})) as server:
            message = fails(build(server.url))
            assert server.url.removeprefix("http://") in message


@both
def test_a_wrong_address_that_answers_404_is_named_M13_P6(build: Build):
    with Server(Answer("404 page not found", 404)) as server:
        message = fails(build(server.url))
        assert "HTTP 404" in message
        assert server.url in message


@both
def test_answers_longer_than_the_limit_are_refused_while_they_come_G73(build: Build):
    def flood(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        for _ in range(4000):
            connection.sendall(b"# \n" * 20_000)

    with raw_server(flood) as url:
        assert "longer than 100000 bytes" in fails(build(url, max_bytes=100_000))


@both
def test_packed_answers_are_refused_unread(build: Build):
    with Server(Answer(b"\x1f\x8b" + b"0" * 50, 200, {"Content-Encoding": "gzip"})) as server:
        assert "encoding" in fails(build(server.url))
        assert server.requests[0].headers["Accept-Encoding"] == "identity"


@both
def test_an_answer_that_is_cut_off_is_no_answer(build: Build):
    body = _good(Request("/metrics?count", {})).body
    text = body if isinstance(body, str) else body.decode()
    with Server(Answer(text[:-30], 200, {"Content-Length": str(len(text))})) as server:
        fails(build(server.url))


@both
def test_credentials_come_from_files_that_are_read_again_and_appear_in_no_message_G76(
    build: Build, tmp_path: Path
):
    token = tmp_path / "token"
    token.write_text("first-secret\n")
    with Server(Answer("first-secret second-secret", 401)) as server:
        source = build(server.url, bearer_token_file=str(token))
        assert "first-secret" not in fails(source)
        token.write_text("second-secret\n")
        assert "second-secret" not in fails(source)
        sent = [request.headers["Authorization"] for request in server.requests]
        assert sent == ["Bearer first-secret", "Bearer second-secret"]
        token.unlink()
        assert "bearer_token_file" in fails(source)


@both
def test_basic_authentication_and_a_tenant_header_are_sent(build: Build, tmp_path: Path):
    password = tmp_path / "password"
    password.write_text("s3cret")
    with Server(_good) as server:
        source = build(
            server.url,
            username="scaler",
            password_file=str(password),
            headers={"X-Scope-OrgID": "team"},
        )
        source.read()
        sent = server.requests[0].headers
        assert base64.b64decode(sent["Authorization"].removeprefix("Basic ")) == b"scaler:s3cret"
        assert sent["X-Scope-OrgID"] == "team"


@both
def test_an_address_with_a_password_is_refused_without_repeating_it_G76(build: Build):
    with pytest.raises(ConfigError) as caught:
        build("http://user:hunter2@prometheus:9090")
    assert "hunter2" not in str(caught.value)
    assert "prometheus:9090" in str(caught.value)


@both
@pytest.mark.parametrize(
    "url", ["prometheus:9090", "ftp://x", "http://", "http://x:99999", "http://x y"]
)
def test_an_address_that_is_none_is_refused(build: Build, url: str):
    with pytest.raises(ConfigError, match="must be http"):
        build(url)


@both
@pytest.mark.parametrize(
    "wrong",
    [
        {"username": "x"},
        {"password_file": "x"},
        {"username": "x", "password_file": "y", "bearer_token_file": "z"},
        {"key_file": "x"},
        {"headers": {"Authorization": "Bearer x"}},
        {"headers": {"X": "a\nb"}},
    ],
)
def test_credentials_that_contradict_one_another_are_refused(
    build: Build, wrong: dict[str, object]
):
    with pytest.raises(ConfigError, match="must"):
        build("http://x", **wrong)


@both
def test_a_window_shorter_than_two_scrapes_is_refused_M25(build: Build):
    with pytest.raises(ConfigError, match="window_s: must be >= 2 scrape intervals"):
        build("http://x", scrape_interval_s=20.0)


def test_a_503_is_a_hole_and_no_error():
    with Server(Answer('{"error":"The model is currently scaling."}', 503)) as server:
        metrics = check_source(scraper(server.url))
        assert metrics.queue_depth.status is SignalStatus.NO_SERIES
        assert "503" in metrics.queue_depth.detail


def test_a_503_of_prometheus_is_an_error():
    with Server(Answer("", 503)) as server:
        assert "HTTP 503" in fails(prometheus_reader(server.url))
        assert len(server.requests) == 1  # no retries


def test_no_second_request_goes_out_on_a_connection_that_was_asked_to_close():
    """Not every server says that it closes; the next request would die with the connection."""
    seen: list[int] = []

    def behave(connection: socket.socket, over: threading.Event) -> None:
        seen.append(0)
        number = len(seen) - 1
        while b"\r\n\r\n" in (request := connection.recv(65536)):
            seen[number] += 1
            body = _good(Request(request.decode().split(" ")[1], {})).body
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(f"{head}{body}".encode())

    with raw_server(behave) as url:
        reader = prometheus_reader(url)
        for _ in range(2):
            reader.read()
    assert seen == [1, 1, 1, 1]


def _good(request: Request) -> Answer:
    """A proper answer of an engine, or of a Prometheus that knows no series."""
    if "query" not in request.path and "count" not in request.path:
        return Answer(whole_page())
    if "count" in request.path:
        data = {"resultType": "vector", "result": [{"metric": {}, "value": [1e9, "0"]}]}
    else:
        data = {"resultType": "matrix", "result": []}
    return Answer(json.dumps({"status": "success", "data": data}))
