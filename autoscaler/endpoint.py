"""Serves /metrics, /healthz and /readyz over plain HTTP, bounded in connections and time.

A client that stalls is cut off after 5 s however it drips, and sooner where there is no room for
the next: kubelet's probes must not wait for whoever holds connections open.

``/healthz`` follows the progress of the loops and survives an outage of whatever they read;
``/readyz`` says whether they can read, and write as far as they have tried. Nothing here writes.
"""

import io
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from autoscaler.clock import SystemClock
from autoscaler.errors import ConfigError

_CONNECTIONS = 16
"""With one more the oldest is cut off; honest requests are answered in milliseconds."""
_THREADS = 64
"""Those that were cut off end at once, but not in the middle of a page."""
_TIMEOUT_S = 5.0
"""Limit of a whole request, and of sending the whole answer."""

Check = Callable[[], list[str]]
"""Names what is wrong, one line each; empty: nothing is."""


class Endpoint:
    """The HTTP server, in threads of its own.

    Args:
        collector: gives the series.
        unhealthy: what of the loops makes no progress.
        unready: what of the loops cannot read or write.
        host: address to listen on.
        port: port to listen on; 0: any free one.

    Raises:
        ConfigError: the address cannot be listened on.
    """

    def __init__(
        self, collector: Collector, unhealthy: Check, unready: Check, host: str, port: int
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        pages: dict[str, Callable[[str], tuple[HTTPStatus, str, bytes]]] = {
            "/metrics": lambda accept: _metrics(registry, accept),
            "/healthz": lambda _: _checked(unhealthy()),
            "/readyz": lambda _: _checked(unready()),
        }

        class Handler(_Handler):
            def page(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
                found = pages.get(path)
                if found is None:
                    return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not found\n"
                return found(accept)

        try:
            self._server = _Server((host, port), Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            where = f"telemetry: {host}:{port}"
            raise ConfigError(f"{where}: must be an address to listen on; {reason}") from error
        self.host, self.port = host, int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="telemetry", daemon=True
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; answers under way are not waited for."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128  # of 5, a burst is turned away before anybody has looked at it

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._free = threading.BoundedSemaphore(_THREADS)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more thread, in the place of the oldest if there are as many as there may be."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= _CONNECTIONS else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = None
        if oldest is not None:
            with suppress(OSError):  # it may have ended by itself just now
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's error."""


class _Hurried(io.RawIOBase):
    """What a client sends, until its time is over: a time-out of the socket begins with each byte.

    Args:
        connection: of the client.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._clock = connection, SystemClock()
        self._until_s = self._clock.now_s() + _TIMEOUT_S

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; TimeoutError if there is no time left."""
        left_s = self._until_s - self._clock.now_s()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # one request a connection: idle clients hold no thread
    server_version, sys_version = "autoscaler", ""

    def setup(self) -> None:
        """Read with a limit on the whole request."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Hurried(self.connection))

    def page(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.connection.settimeout(_TIMEOUT_S)  # of the whole answer, to whoever does not read it
        status, kind, body = self.page(self.path.partition("?")[0], self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Nothing: requests are no decisions."""


def _metrics(registry: CollectorRegistry, accept: str) -> tuple[HTTPStatus, str, bytes]:
    encode, kind = choose_encoder(accept)
    return HTTPStatus.OK, kind, encode(registry)


def _checked(problems: list[str]) -> tuple[HTTPStatus, str, bytes]:
    kind = "text/plain; charset=utf-8"
    if not problems:
        return HTTPStatus.OK, kind, b"ok\n"
    return HTTPStatus.SERVICE_UNAVAILABLE, kind, "".join(f"{p}\n" for p in problems).encode()
