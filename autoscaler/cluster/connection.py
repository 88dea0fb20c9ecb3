"""The one way to a Kubernetes API server: deadlines, one error translation, no resending.

The client is used for its configuration, TLS and connection pool only. Left to itself it waits
for ever, tries a GET four times (4 s with a time-out of 1 s), raises urllib3's exceptions besides
its own, and picks patch content types that changed between its versions.
"""

import json
import logging
import math
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import urllib3
import yaml
from kubernetes import client
from kubernetes.config import ConfigException, kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

from autoscaler.clock import SystemClock
from autoscaler.cluster.answers import (
    GaveUp,
    NotSent,
    Unauthenticated,
    Unclear,
    error_of,
    redacted,
)
from autoscaler.errors import ConfigError
from autoscaler.model import WRITER
from autoscaler.parameters import require_number
from autoscaler.redaction import Redaction, unquoted

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = WRITER

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MAX_BYTES = 8 * 2**20  # etcd refuses objects beyond 1.5 MiB, so that no honest object is larger
_MAX_WAIT_S = 30.0  # Retry-After may ask for 6 h; a controller that is told so would be dead


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and as whom to speak.

    Args:
        kubeconfig: path of a kubeconfig file; None: in a Pod its service account, elsewhere the
            file that ``kubectl`` would take.
        context: name of a context in the kubeconfig; None: its current one.
        timeout_s: total deadline of one reading or one write, s, > 0; shorter than the tick.
        account: folder of the Pod's service account: ``token`` and ``ca.crt``.
    """

    kubeconfig: str | None = None
    context: str | None = None
    timeout_s: float = 4.0
    account: str = str(_ACCOUNT)

    def __post_init__(self) -> None:
        require_number("timeout_s", self.timeout_s, 0, above=True)


def require_name(key: str, value: str) -> None:
    """Refuse what is no Kubernetes object name: it becomes a part of a URL.

    Raises:
        ConfigError: the rule is broken.
    """
    if not _NAME.fullmatch(value):
        raise ConfigError(f"{key}: must be a lower case DNS name; got {value!r}")


class Connection:
    """Calls one API server. Not for several threads at once.

    Args:
        access: where and as whom.

    Raises:
        ConfigError: the kubeconfig or the service account is unusable.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._clock = SystemClock()
        self._wait_until_s = self._clock.now_s()
        self._client = self._connect()

    @property
    def host(self) -> str:
        """Address of the API server, without credentials."""
        return redacted(str(self._client.configuration.host))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def deadline_s(self) -> float:
        """When a piece of work that starts now, of one or of several calls, has to be over."""
        return self._clock.now_s() + self.access.timeout_s

    def time_left_s(self, until_s: float) -> float:
        """Seconds until a ``deadline_s()``; negative: it is over."""
        return until_s - self._clock.now_s()

    def get(self, path: str, until_s: float | None = None, **query: str) -> Json:
        """Read one object or list.

        Args:
            path: from the root, each part quoted (see ``path``).
            until_s: a ``deadline_s()``, to put several calls under one; None: one of its own.
            query: parameters of the query.

        Raises:
            TargetForbidden: 403.
            TargetError: anything else than an object within the deadline.
        """
        return self._call("GET", path, None, None, query, until_s)

    def patch(
        self,
        path: str,
        body: Any,
        content_type: str,
        until_s: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Json:
        """Change one object; returns it. Never resent, but for a 401, which changed nothing.

        Args:
            path: from the root.
            body: the patch.
            content_type: JSON_PATCH or MERGE_PATCH. Always explicit: the client's own choice for
                custom resources is a merge patch even where the body is a JSON patch.
            until_s: a ``deadline_s()``; None: one of its own.
            dry_run: let the server check everything and change nothing.

        Raises:
            TargetConflict: 409, or a failed ``test``.
            TargetRefused: the object is there and says no.
            TargetForbidden: 403.
            TargetError: everything else; ``answers.outcome`` knows what each means for a write.
        """
        query = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        return self._call("PATCH", path, body, content_type, query, until_s)

    def send(self, method: str, path: str, body: Json | None, **query: str) -> Json:
        """Create (POST), replace (PUT) or delete (DELETE) an object; errors as in ``patch``."""
        if method != "DELETE":
            query = {"fieldManager": FIELD_MANAGER, **query}
        return self._call(method, path, body, "application/json", query, None)

    def watch(
        self, path: str, duration_s: float, silence_s: float, **query: str
    ) -> Generator[Json]:
        """The events of a list, bookmarks included, until the server ends it.

        Args:
            path: of the list.
            duration_s: how long the server is to go on, s, >= 1.
            silence_s: a connection that says nothing for so long counts as dead, s, > 0: more
                than a minute, after which a server sends a bookmark at the latest. A server that
                goes on for ``silence_s`` longer than asked is left too.
            query: further parameters, such as ``resourceVersion``.

        Raises:
            TargetForbidden: 403.
            TargetError: anything else than events; after silence, or cut off, ``Unclear``.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(duration_s)),
            **query,
        }
        where, url = f"GET {path} (watch)", f"{path}?{urlencode(query)}"
        until_s = self._clock.now_s() + duration_s + silence_s
        self._refuse_to_hurry(where)
        try:
            answer = self._open(where, "GET", url, None, None, silence_s, self.deadline_s())
        except Unauthenticated as error:
            self._reconnect(error)
            answer = self._open(where, "GET", url, None, None, silence_s, self.deadline_s())
        rest = b""
        with _translated(where, self.host):
            for chunk in self._chunks(where, answer, until_s, silence_s):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (_object(where, line) for line in lines if line.strip())
        if rest.strip():
            raise Unclear(f"{where}: must answer whole lines; the last one was cut off")

    @property
    def asked_to_wait_s(self) -> float:
        """How long the server still wants to be left alone, s, 0 to 30."""
        return max(self._wait_until_s - self._clock.now_s(), 0.0)

    def _connect(self) -> client.ApiClient:
        configuration = _configuration(self.access)
        configuration.retries = False  # else 4 attempts, each with the whole time-out
        api = client.ApiClient(configuration)
        api.user_agent = FIELD_MANAGER
        return api

    def _reconnect(self, refused: Unauthenticated) -> None:
        try:
            fresh = self._connect()
        except ConfigError as error:
            raise Unauthenticated(f"{refused}; and then: {error}") from error
        self._client.close()
        self._client = fresh

    def _call(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str | None,
        query: Mapping[str, str],
        until_s: float | None,
    ) -> Json:
        until_s = self.deadline_s() if until_s is None else until_s
        self._refuse_to_hurry(f"{method} {path}")
        url = f"{path}?{urlencode(query)}" if query else path
        try:
            return self._attempt(method, path, url, body, content_type, until_s)
        except Unauthenticated as error:
            # A rotated token, or an expired certificate: everything is read anew, once.
            self._reconnect(error)
        return self._attempt(method, path, url, body, content_type, until_s)

    def _refuse_to_hurry(self, where: str) -> None:
        wait_s = self.asked_to_wait_s
        if wait_s > 0:
            raise NotSent(f"{where}: not sent, the API server asked to wait {wait_s:.0f} s")

    def _attempt(
        self, method: str, path: str, url: str, body: Any, content_type: str | None, until_s: float
    ) -> Json:
        where = f"{method} {path}"
        left_s = until_s - self._clock.now_s()
        if left_s <= 0:
            raise NotSent(f"{where}: not sent, {self.access.timeout_s:g} s were over before")
        answer = self._open(where, method, url, body, content_type, left_s, until_s)
        with _translated(where, self.host):
            return _object(where, self._whole(where, answer, until_s))

    def _open(
        self,
        where: str,
        method: str,
        url: str,
        body: Any,
        content_type: str | None,
        timeout_s: float,
        until_s: float,
    ) -> urllib3.BaseHTTPResponse:
        """The answer if it is a success, its body unread; ``until_s`` limits reading another."""
        headers = {"Accept": "application/json"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        with _translated(where, self.host):
            request = self._client.param_serialize(
                method, url, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            answer = self._client.call_api(*request, _request_timeout=timeout_s)
            status, found = answer.status, dict(answer.headers)
            if 200 <= status < 300:
                return cast("urllib3.BaseHTTPResponse", answer.response)
            content = self._whole(where, answer.response, until_s)
        if status == 429:
            asked_s = found.get("Retry-After", "")
            wait_s = min(float(asked_s), _MAX_WAIT_S) if asked_s.isdecimal() else 0.0
            self._wait_until_s = self._clock.now_s() + wait_s
        clean = self._secrets().text
        raise error_of(where, status, found.get("Content-Type", ""), content, clean)

    def _secrets(self) -> Redaction:
        """Takes out the credentials that requests are sent with now."""
        found = self._client.configuration
        tokens = [str(key).rpartition(" ")[2] for key in found.api_key.values()]
        return Redaction({"secret": [*tokens, found.password]})

    def _whole(self, where: str, response: urllib3.BaseHTTPResponse, until_s: float) -> bytes:
        """The body, within the deadline however slowly it drips."""
        content = bytearray()
        for chunk in self._chunks(where, response, until_s):
            content += chunk
            if len(content) > _MAX_BYTES:
                raise GaveUp(f"{where}: must answer at most {_MAX_BYTES} bytes; got more")
        return bytes(content)

    def _chunks(
        self,
        where: str,
        response: urllib3.BaseHTTPResponse,
        until_s: float,
        silence_s: float = math.inf,
    ) -> Iterator[bytes]:
        whole = False
        try:
            while True:
                left_s = min(until_s - self._clock.now_s(), silence_s)
                if left_s <= 0:
                    raise GaveUp(f"{where}: no complete answer in {self.access.timeout_s:g} s")
                sock = getattr(response.connection, "sock", None)
                if sock is not None:
                    sock.settimeout(left_s)
                chunk = response.read1(65536)
                if not chunk:
                    whole = True
                    return
                yield chunk
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()


@contextmanager
def _translated(where: str, host: str) -> Iterator[None]:
    """No exception of the client's or its libraries' gets out."""
    try:
        yield
    except urllib3.exceptions.HTTPError as error:
        raise Unclear(f"{where}: {_what(error)} ({host})") from error
    except client.ApiException as error:  # the client's wrapping of TLS errors, nothing else
        raise Unclear(f"{where}: {redacted(str(error.reason))[:300]} ({host})") from error
    except (ConfigException, OSError) as error:
        raise NotSent(f"{where}: not sent, credentials are unreadable: {error}") from error


def home_namespace(access: Access) -> str:
    """The namespace that the program is at home in: its Pod's, or its kubeconfig context's.

    Raises:
        ConfigError: the Pod's service account or the kubeconfig is unusable.
    """
    try:
        if access.kubeconfig is None and access.context is None and _in_pod():
            return (Path(access.account) / "namespace").read_text(encoding="utf-8").strip()
        contexts, active = kube_config.list_kube_config_contexts(access.kubeconfig)
        named = [c for c in contexts if c["name"] == access.context]
        found = named[0] if named else active
        return str(found["context"].get("namespace") or "default")
    except _UNUSABLE as error:
        name = access.kubeconfig or "the default kubeconfig"
        raise ConfigError(f"kubeconfig: {name}{_unusable(error)}") from None


def _in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def path(api_version: str, namespace: str, plural: str, name: str, subresource: str = "") -> str:
    """The URL path of an object, e.g. of ``apps/v1``, ``deployments``.

    ``namespace`` "": of a kind without namespaces, or of all of them. ``name`` "": of the list.
    """
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    parts = [*(("namespaces", namespace) if namespace else ()), plural, name, subresource]
    return "/".join([root, *(quote(part, safe="") for part in parts if part)])


_UNUSABLE = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    # The loader trusts the file's shape: a list for a mapping is an AttributeError in it.
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)


def _unusable(error: Exception) -> str:
    """What is wrong with a kubeconfig; texts of the libraries quote parts of it."""
    if isinstance(error, yaml.YAMLError):
        return unquoted(error)
    said = redacted(str(error).partition(" in ")[0])
    if isinstance(error, OSError):
        said = error.strerror or said
    return f": must be usable; {said}"


class _Mute(logging.Filter):
    """Keeps the client's own log lines, which quote what a credential plug-in has written."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is somebody else's."""
        return record.module != "kube_config"


_MUTE = _Mute()


def _configuration(access: Access) -> client.Configuration:
    configuration = client.Configuration()
    logging.getLogger().addFilter(_MUTE)  # again and again is once
    in_pod = _in_pod()
    try:
        if access.kubeconfig is None and access.context is None and in_pod:
            account = Path(access.account)
            loader = InClusterConfigLoader(str(account / "token"), str(account / "ca.crt"))
            loader.load_and_set(configuration)
        else:
            kube_config.load_kube_config(
                access.kubeconfig, access.context, configuration, persist_config=False
            )
    except _UNUSABLE as error:
        name = access.kubeconfig or (access.account if in_pod else "the default kubeconfig")
        raise ConfigError(f"kubeconfig: {name}{_unusable(error)}") from None
    parts = urlsplit(str(configuration.host))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"kubeconfig: server: must be a URL; got {redacted(parts.geturl())!r}")
    return configuration


def _object(where: str, content: bytes) -> Json:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise Unclear(f"{where}: must answer JSON; got {len(content)} other bytes") from error
    if not isinstance(found, dict):
        raise Unclear(f"{where}: must answer an object; got a {type(found).__name__}")
    return found


def _what(error: Exception) -> str:
    """For people: kind and text of a connection error, without credentials of proxies."""
    return f"{type(error).__name__}: {redacted(str(error))[:300]}"
