"""Sockets and HTTP: requests in, answers out, and the troubles between."""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from autoscaler.testing_apiserver._faults import Fault
from autoscaler.testing_apiserver._status import ApiError, Json
from autoscaler.testing_apiserver._store import Store


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came in; ``version``: of the store at that time."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    version: int = 0

    @property
    def path(self) -> str:
        """Without the query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """Parameters, the last of several."""
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


class Answers(Protocol):
    """Who knows the answers."""

    requests: list[Request]
    store: Store
    closing: threading.Event

    def fault(self, method: str, path: str) -> Fault | None:
        """The trouble that this request meets; None: none."""
        ...

    def answer(self, request: Request) -> tuple[int, Any]:
        """Status and body: an object, a text, or an iterator of events."""
        ...


class Http(ThreadingHTTPServer):
    daemon_threads = True
    api: Answers

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: set[socket.socket] = set()

    def hang_up(self) -> None:
        """End the connections that are open, kept alive ones as well."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Remember the connection."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what some tests are about; everything else is a defect."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: else 40 ms each

    def do_GET(self) -> None:
        self._do()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  # the base class's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Tests look at ``requests``."""

    def _do(self) -> None:
        server = self.server
        assert isinstance(server, Http)  # noqa: S101  # for the type checker
        api = server.api
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body, api.store.version)
        api.requests.append(request)
        fault = api.fault(request.method, request.target)
        if fault is not None and fault.kind == "slow":
            api.closing.wait(fault.delay_s)
        withheld = fault is not None and fault.kind in ("hang", "close", "answer")
        status, answer, extra = 0, None, {}
        if fault is None or fault.applied or not withheld:
            try:
                status, answer = api.answer(request)
            except ApiError as error:
                status, answer, extra = error.code, error.status, error.headers
        if fault is not None and withheld:
            self._withhold(fault, api.closing)
        elif isinstance(answer, Iterator):
            stalled = fault is not None and fault.kind == "stall"
            self._stream(_never(api.closing) if stalled else answer)
        else:
            kind, content = "application/json", json.dumps(answer).encode()
            if isinstance(answer, str):
                kind, content = "text/plain; charset=utf-8", answer.encode()
            drip_s = fault.delay_s if fault is not None and fault.kind == "drip" else 0.0
            self._send(status, {"Content-Type": kind, **extra}, content, drip_s)

    def _withhold(self, fault: Fault, closing: threading.Event) -> None:
        if fault.kind == "answer":
            headers = {"Content-Type": "application/json", **fault.headers}
            self._send(fault.status, headers, fault.body.encode())
            return
        if fault.kind == "hang":
            closing.wait()
        self.close_connection = True

    def _send(
        self, status: int, headers: dict[str, str], content: bytes, drip_s: float = 0.0
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not drip_s:
            self.wfile.write(content)
            return
        server = self.server
        assert isinstance(server, Http)  # noqa: S101  # for the type checker
        for byte in content:
            self.wfile.write(bytes([byte]))
            if server.api.closing.wait(drip_s):
                return

    def _stream(self, events: Iterator[Json]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


def _never(closing: threading.Event) -> Iterator[Json]:
    """A watch whose connection is dead, and nobody knows."""
    closing.wait()
    yield from ()
