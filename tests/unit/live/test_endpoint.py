"""The page of metrics and health against clients that mean ill, over real sockets (S7)."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests
from prometheus_client.registry import Collector

from autoscaler.endpoint import Endpoint


class Nothing(Collector):
    def collect(self):
        return []


class Long(Collector):
    """A page that no socket's buffer holds."""

    def collect(self):
        from prometheus_client.core import GaugeMetricFamily

        for i in range(30_000):
            yield GaugeMetricFamily(f"long_{i}", "x" * 300, value=1.0)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(Nothing(), list, list, "127.0.0.1", 0)
    made.start()
    yield made
    made.stop()


def connected(endpoint: Endpoint, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", endpoint.port), 20)
    connection.sendall(sent)
    return connection


def ended(connection: socket.socket) -> bytes:
    """What came until the server hung up; a time-out of the socket fails the test."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return found


def healthy(endpoint: Endpoint) -> bool:
    return requests.get(f"http://127.0.0.1:{endpoint.port}/healthz", timeout=20).ok


def test_clients_that_say_nothing_do_not_keep_a_probe_out_S7(endpoint):
    idle = [connected(endpoint, b"GET / HT") for _ in range(40)]
    began = time.perf_counter()
    assert all(healthy(endpoint) for _ in range(3))
    took_s = time.perf_counter() - began
    assert ended(idle[0]) == b""  # the oldest had to make room
    for connection in idle:
        connection.close()
    assert took_s < 4.5  # a probe that waits for the 5 s of a stalled client is late


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HTTP/1.1\r\nX-A: "], ids=["line", "header"])
def test_a_request_that_drips_is_cut_off_after_five_seconds_in_all_S7(endpoint, begun):
    connection = connected(endpoint, begun)
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.3):
            try:
                connection.sendall(b"a")
            except OSError:
                return

    began = time.perf_counter()
    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    assert b" 200 " not in ended(connection)
    took_s = time.perf_counter() - began
    over.set()
    thread.join(5)
    connection.close()
    assert 4.0 < took_s < 15.0
    assert healthy(endpoint)


def test_a_client_that_does_not_read_its_page_is_let_go_S7():
    made = Endpoint(Long(), list, list, "127.0.0.1", 0)
    made.start()
    try:
        connection = connected(made, b"GET /metrics HTTP/1.0\r\n\r\n")
        server = "telemetry"
        threads = [t for t in threading.enumerate() if t.name != server]
        for _ in range(300):
            if not any("process_request_thread" in t.name for t in threading.enumerate()):
                break
            threading.Event().wait(0.1)
        else:
            pytest.fail(f"still served: {threads}")
        connection.close()
        assert healthy(made)
    finally:
        made.stop()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: a\r\n" * 200 + b"\r\n", b"431"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", b"400"),
    ],
    ids=["long_line", "long_header", "many_headers", "tls"],
)
def test_requests_of_excessive_size_are_refused_S7(endpoint, request_text, status):
    with connected(endpoint, request_text) as connection:
        # What it does not read it resets, at times before its answer could be read.
        assert status in (said := ended(connection)) or not said
    assert healthy(endpoint)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_done_through_it_S7(endpoint, method):
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    answer = requests.request(method, url, timeout=20)
    assert answer.status_code == 501
    assert answer.headers["Server"].strip() == "autoscaler"  # no version for scanners


def test_nothing_of_the_host_is_told_and_no_path_leads_to_files_S7(endpoint):
    base = f"http://127.0.0.1:{endpoint.port}"
    for path in ("/", "/..%2f..%2fetc/passwd", "/metrics/", "/debug/pprof", "/config"):
        answer = requests.get(base + path, timeout=20)
        assert (answer.status_code, answer.text) == (404, "not found\n")
