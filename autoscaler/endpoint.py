"""Serves /metrics, /healthz and /readyz over plain HTTP, bounded in connections and time.

``/healthz`` follows the progress of the loops and survives an outage of whatever they read;
``/readyz`` says whether they can read, and write as far as they have tried. Nothing here writes.
"""

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from autoscaler.errors import ConfigError

_CONNECTIONS = 16
_TIMEOUT_S = 5.0

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

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """One more thread, unless there are as many as there may be."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's error."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    protocol_version = "HTTP/1.0"  # one request a connection: idle clients hold no thread
    server_version, sys_version = "autoscaler", ""

    def page(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        raise NotImplementedError

    def do_GET(self) -> None:
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
