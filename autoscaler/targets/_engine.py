"""The HTTP API of a bare engine: bounded in time and bytes, no retries, no redirects.

Nothing is taken from the environment. Messages name paths, never hosts with users in them, and
never the key.
"""

import http.client
import json
import re
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from autoscaler.cluster.answers import NotSent, Unclear
from autoscaler.errors import ConfigError
from autoscaler.redaction import Redaction

T = TypeVar("T")

_MAX_BYTES = 1 << 20
_MAX_MESSAGE = 200
_OUT_OF_RANGE = re.compile(r"data_parallel_rank -1 is out of range \[0, (\d{1,4})\)")
RANK_HEADER = "X-data-parallel-rank"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its body as text, and the secrets of its request."""

    status: int
    text: str
    secrets: Redaction = field(default_factory=Redaction, repr=False, compare=False)

    @property
    def said(self) -> str:
        """For a message: the status, and the engine's own words where it has any."""
        body = self.json()
        told = body.get("error", body.get("detail", body.get("message", "")))
        if isinstance(told, dict):
            told = told.get("message", "")
        told = self.secrets.text(" ".join(str(told).split()))[:_MAX_MESSAGE]
        return f"{self.status} {told}".rstrip()

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty where it is none."""
        try:
            body = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return body if isinstance(body, dict) else {}

    def rank_bound(self) -> int | None:
        """The width that a refused rank of -1 gives away; None: it does not."""
        found = _OUT_OF_RANGE.search(self.text) if self.status == 400 else None
        return int(found.group(1)) if found else None


class EngineApi:
    """Calls to one engine, each on a connection of its own.

    Args:
        url: http(s)://host[:port][/prefix].
        api_key_file: holds the key of an ``Authorization: Bearer`` header, read for each call;
            None: no key.
        ca_file: certificate authorities to trust, PEM; None: the usual public ones.
    """

    def __init__(self, url: str, api_key_file: str | None, ca_file: str | None) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._api_key_file = api_key_file
        self._ca_file = ca_file

    def call(
        self,
        method: str,
        path: str,
        timeout_s: float,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One request and its answer, whatever its status.

        Args:
            method: GET or POST.
            path: under the URL.
            timeout_s: limit of the connect and of each read, s, > 0.
            body: sent as JSON; None: no body.
            headers: further headers.

        Raises:
            NotSent: no connection, or no key: nothing has reached the engine.
            Unclear: sent, and no whole answer came.
        """
        where = f"{method} {path}"
        key = self._authorization(where)
        given = {"Accept-Encoding": "identity", **key, **(headers or {})}
        content = None
        if body is not None:
            content = json.dumps(body)
            given["Content-Type"] = "application/json"
        connection = self._connection(where, timeout_s)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise NotSent(f"{where}: no connection: {_reason(error)}") from error
            try:
                connection.request(method, self._prefix + path, content, given)
                response = connection.getresponse()
                data = response.read(_MAX_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                raise Unclear(f"{where}: no answer: {_reason(error)}") from error
        finally:
            connection.close()
        if len(data) > _MAX_BYTES:
            raise Unclear(f"{where}: answer longer than {_MAX_BYTES} bytes")
        secrets = Redaction({"secret": [value.partition(" ")[2] for value in key.values()]})
        return Reply(response.status, data.decode("utf-8", "replace"), secrets)

    def _connection(self, where: str, timeout_s: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise NotSent(f"{where}: ca_file: must be readable; {_reason(error)}") from error
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=context
        )

    def _authorization(self, where: str) -> dict[str, str]:
        if self._api_key_file is None:
            return {}
        try:
            key = Path(self._api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NotSent(f"{where}: api_key_file: must be readable; {_reason(error)}") from error
        if not key or not key.isascii() or not key.isprintable():
            raise NotSent(f"{where}: api_key_file: must hold one line of ASCII text")
        return {"Authorization": f"Bearer {key}"}


def require_url(key: str, url: str) -> None:
    """Refuse all but a plain HTTP(S) address without secrets.

    Raises:
        ConfigError: wrong scheme, no host, a bad port, user information, a query or a fragment.
    """
    rule = "must be http:// or https:// and a host, without user, query and fragment"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a bad port
    except ValueError as error:
        raise ConfigError(f"{key}: {rule}; got something else") from error
    if "@" in parts.netloc:
        raise ConfigError(f"{key}: {rule}, a key in api_key_file; got user information")
    shown = url.partition("?")[0].partition("#")[0]
    good = parts.scheme in ("http", "https") and parts.hostname and url.isprintable()
    if not good or parts.query or parts.fragment or " " in url:
        raise ConfigError(f"{key}: {rule}; got {shown[:_MAX_MESSAGE]!r}")


def begin(name: str, work: Callable[[], T]) -> "Future[T]":
    """Do ``work`` in a daemon thread: nobody has to wait for it, not even the end of the program.

    A time-out of a socket bounds one read, not an answer that trickles; a deadline is kept by
    whoever waits for the future.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # carried over to the thread that asks
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
