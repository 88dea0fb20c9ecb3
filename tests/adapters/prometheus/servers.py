"""Servers on loopback for the tests of the sources: real HTTP, any behaviour."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


@dataclass
class Answer:
    """One HTTP answer."""

    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain"})


@dataclass
class Request:
    """One HTTP request as it came."""

    path: str
    headers: dict[str, str]


class Server:
    """Gives what ``answer`` says: an answer, a function of the request, or raw behaviour.

    ``answer`` may also be a function that takes the handler itself and writes to it.
    """

    def __init__(self, answer: Answer | Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                request = Request(self.path, dict(self.headers))
                outer.requests.append(request)
                answer = outer.answer
                found = answer if isinstance(answer, Answer) else answer(request)
                body = found.body.encode() if isinstance(found.body, str) else found.body
                with suppress(OSError):  # the client may have gone
                    self.send_response(found.status)
                    for name, value in found.headers.items():
                        self.send_header(name, value)
                    if "Content-Length" not in found.headers:
                        self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"{self.url}/metrics"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()


@contextmanager
def raw_server(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that does with each connection what it is told; gives its address.

    The event is set when the test is over.
    """
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    threads: list[threading.Thread] = []

    def handle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(5)
            behave(connection, over)

    def accept() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=handle, args=(connection,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        acceptor.join(5)
        for thread in threads:
            thread.join(5)
        listener.close()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
