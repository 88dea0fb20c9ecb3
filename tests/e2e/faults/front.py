"""What answers like Prometheus, over real HTTP, from a scripted engine; and how it goes wrong."""

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from autoscaler.clock import SystemClock
from tests.e2e.faults.engine import Engine

SCRAPE_S = 0.25
_RANGE = re.compile(r"\[(\d+)ms\]$")
_BOUNDS = ("0.1", "0.5", "1.0", "5.0", "10.0", "+Inf")
_EPOCH_S = 1_780_000_000.0
_KEPT_S = 30.0
_MANY = 1_000_000

Series = dict[str, Any]
Answers = Callable[["Front", str, list[Any]], tuple[str, list[Any]]]


class Front:
    """Scrapes the engine, and answers the two queries of a tick.

    Args:
        engine: what is scraped.

    Attributes:
        burning: whether requests wait and first tokens are late.
        fault: how answers go wrong, see ``table``; "": they do not.
        pages: how scrapes go wrong: "" | frozen | renamed | missing | down.
        ahead_s: how far the clock of queries, and of the samples to come, is ahead.
        skew_s: how far the clock of queries alone is ahead.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.burning = False
        self.fault = ""
        self.pages = ""
        self.ahead_s = self.skew_s = 0.0
        self._clock = SystemClock()
        self._start_s = self._clock.now_s()
        self._lock = threading.Lock()
        self._counts: list[dict[str, float]] = []
        self._scrapes: deque[tuple[float, dict[str, float]]] = deque()
        self._over = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self._blocked: list[socket.socket] = []
        self.port = 0
        self.listen()
        self._scraper = threading.Thread(target=self._scrape_on, daemon=True)
        self._scraper.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._over.set()
        self._scraper.join(5)
        self.refuse()

    # The socket.

    def listen(self) -> None:
        """Accept and answer."""
        self._unblock()
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _Handler)
        server.daemon_threads = True
        server.front = self  # type: ignore[attr-defined]
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self._server = server

    def refuse(self) -> None:
        """Nobody listens."""
        self._unblock()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def swallow(self) -> None:
        """A black hole: packets that ask for a connection are dropped, as the queue is full."""
        self.refuse()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(0)
        self._blocked.append(listener)
        for _ in range(3):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", self.port))
            self._blocked.append(waiting)

    def _unblock(self) -> None:
        for one in self._blocked:
            one.close()
        self._blocked = []

    # The engine's page.

    def restart_counters(self) -> None:
        """As after a restart of the engine's server."""
        with self._lock:
            self._counts = []

    def now_s(self) -> float:
        """Time of queries."""
        return _EPOCH_S + self._clock.now_s() - self._start_s + self.ahead_s + self.skew_s

    def _scrape_on(self) -> None:
        while not self._over.wait(SCRAPE_S):
            with self._lock:
                self._scrape()

    def _scrape(self) -> None:
        at_s = self.now_s() - self.skew_s
        down = self.pages == "down" or not self.engine.serves
        if self.pages != "frozen" and not down:
            self._count(self.engine.ranks)
        page = {} if down else self._page()
        self._scrapes.append((at_s, page))
        while self._scrapes[0][0] < at_s - _KEPT_S or len(self._scrapes) > _KEPT_S / SCRAPE_S:
            self._scrapes.popleft()

    def _count(self, ranks: int) -> None:
        """A quarter of a second's requests, ten a rank: each of 10 tokens in, 20 out.

        A rank that comes back counts on, so that a resize alone is no reset of counters.
        """
        while len(self._counts) < ranks:
            self._counts.append({"fast": 0.0, "slow": 0.0})
        for counts in self._counts[:ranks]:
            counts["slow" if self.burning else "fast"] += 10

    def _page(self) -> dict[str, float]:
        page: dict[str, float] = {}
        for rank, counts in enumerate(self._counts[: self.engine.ranks]):
            told = f'engine="{rank}",model_name="emulated"'
            fast, done = counts["fast"], counts["fast"] + counts["slow"]
            name = "vllm:time_to_first_token_seconds"
            for bound in _BOUNDS:
                slow = 0.0 if bound in _BOUNDS[:4] else counts["slow"]
                page[f'{name}_bucket{{{told},le="{bound}"}}'] = fast + slow
            page[f'vllm:request_success_total{{{told},finished_reason="stop"}}'] = done
            page[f"vllm:prompt_tokens_total{{{told}}}"] = 10 * done
            page[f"vllm:generation_tokens_total{{{told}}}"] = 20 * done
            page[f"vllm:num_requests_running{{{told}}}"] = 4.0 if self.burning else 1.0
            page[f"vllm:kv_cache_usage_perc{{{told}}}"] = 0.5
            waiting = "vllm:num_requests_queued" if self.pages == "renamed" else _WAITING
            if self.pages != "missing":
                page[f"{waiting}{{{told}}}"] = 50.0 if self.burning else 0.0
        return page

    # Queries.

    def answer(self, query: str, at: str | None) -> tuple[str, list[Any]]:
        """Type and result of a query."""
        now_s = self.now_s() if at is None else float(at)
        found = _RANGE.search(query)
        names = re.compile(re.findall(r'__name__=~"([^"]*)"', query)[0])
        with self._lock:
            scrapes = list(self._scrapes)
        if found is None:
            newest = scrapes[-1] if scrapes else (0.0, {})
            fresh = newest[1] if now_s - newest[0] < 300 else {}  # Prometheus' look-back
            meant = [key for key in fresh if names.fullmatch(key.partition("{")[0])]
            return "vector", [{"metric": {}, "value": [now_s, str(len(meant))]}]
        first_s = now_s - int(found[1]) / 1000
        series: dict[str, list[Any]] = {}
        for at_s, page in scrapes:
            if first_s < at_s <= now_s:
                for key, value in page.items():
                    if names.fullmatch(key.partition("{")[0]):
                        series.setdefault(key, []).append([round(at_s, 3), repr(value)])
        return "matrix", [{"metric": _labels(key), "values": v} for key, v in series.items()]


_WAITING = "vllm:num_requests_waiting"


def _labels(key: str) -> dict[str, str]:
    name, _, rest = key.partition("{")
    found = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    return {"__name__": name, "namespace": "bench", "instance": "engine:8000", **found}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the client gave up: that is what some faults are about

    def do_GET(self) -> None:
        front: Front = self.server.front  # type: ignore[attr-defined]
        asked = parse_qs(urlsplit(self.path).query)
        kind, result = front.answer(asked["query"][0], asked.get("time", [None])[0])
        FAULTS.get(front.fault, _proper)(self, kind, result)

    def send(self, status: int, body: bytes, kind: str = "application/json", **head: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for key, value in head.items():
            self.send_header(key.replace("_", "-"), value)
        if "Content_Length" not in head:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say(self, kind: str, result: Any, **more: Any) -> None:
        content = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
        self.send(200, json.dumps(content).encode())


def _proper(handler: _Handler, kind: str, result: list[Any]) -> None:
    handler.say(kind, result)


def _hang(handler: _Handler, kind: str, result: list[Any]) -> None:
    threading.Event().wait(20.0)
    handler.close_connection = True


def _late(handler: _Handler, kind: str, result: list[Any]) -> None:
    """1.2 times the deadline of ``lane``."""
    threading.Event().wait(0.6)
    handler.say(kind, result)


def _status(status: int, **head: str) -> Any:
    def answer(handler: _Handler, kind: str, result: list[Any]) -> None:
        handler.send(status, b"unavailable", "text/plain", **head)

    return answer


def _login(handler: _Handler, kind: str, result: list[Any]) -> None:
    handler.send(200, b"<!DOCTYPE html><html><title>Sign in</title></html>", "text/html")


def _error(handler: _Handler, kind: str, result: list[Any]) -> None:
    content = {"status": "error", "errorType": "timeout", "error": "query timed out in expression"}
    handler.send(200, json.dumps(content).encode())


def _values(text: str) -> Any:
    """Every value is this one."""

    def answer(handler: _Handler, kind: str, result: list[Any]) -> None:
        for element in result:
            for point in element.get("values", [element.get("value")]):
                point[1] = text
        handler.say(kind, result)

    return answer


def _scalar(handler: _Handler, kind: str, result: list[Any]) -> None:
    handler.say("scalar", [1.0, "7"])


def _two(handler: _Handler, kind: str, result: list[Any]) -> None:
    handler.say(kind, [*result, *result])


def _many(handler: _Handler, kind: str, result: list[Any]) -> None:
    """A million series, as long as somebody listens."""
    element = b'{"metric":{"__name__":"vllm:num_requests_waiting"},"values":[[1.0,"1"]]},'
    length = _MANY * len(element)
    handler.send(200, b'{"status":"success","data":{"resultType":"matrix","result":[',
                 Content_Length=str(length))  # fmt: skip
    for _ in range(_MANY // 1000):
        handler.wfile.write(1000 * element)


def _cut(handler: _Handler, kind: str, result: list[Any]) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
    handler.send(200, body.encode()[: len(body) // 2], Content_Length=str(len(body)))
    handler.close_connection = True


def _warned(handler: _Handler, kind: str, result: list[Any]) -> None:
    handler.say(kind, result, warnings=["a store did not answer: the result may be partial"])


FAULTS: dict[str, Any] = {
    "hang": _hang,
    "late": _late,
    "429": _status(429, Retry_After="21600"),
    "503": _status(503),
    "login": _login,
    "error": _error,
    "nan": _values("NaN"),
    "inf": _values("+Inf"),
    "scalar": _scalar,
    "two": _two,
    "many": _many,
    "cut": _cut,
    "warned": _warned,
}
"""Answers that go wrong, by name."""
