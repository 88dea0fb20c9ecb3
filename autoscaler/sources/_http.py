"""HTTP as the sources need it: bounded in time and bytes, no retries, no redirects, no leaks.

Nothing is taken from the environment: ``REQUESTS_CA_BUNDLE`` would silently replace a configured
certificate authority, ``~/.netrc`` a configured token. Messages name hosts and paths, never user
information, query strings, headers or bodies.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter

from autoscaler.errors import ConfigError, ObservationError
from autoscaler.redaction import Redaction

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials and trust, as files; each is read again when it changes.

    The parameters of a source that speaks HTTP are these and its own.

    Args:
        ca_file: certificate authorities to trust, PEM; None: the usual public ones.
        bearer_token_file: holds the token of an ``Authorization: Bearer`` header.
        username, password_file: basic authentication; both or none.
        cert_file, key_file: client certificate, PEM; the key may be in ``cert_file``.
        headers: further headers, such as a tenant's ``X-Scope-OrgID``; no secrets.
        tls_insecure_skip_verify: trust any certificate.
    """

    ca_file: str | None = None
    bearer_token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    tls_insecure_skip_verify: bool = False

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password_file is None):
            missing = "username" if self.username is None else "password_file"
            raise ConfigError(f"{missing}: must be given with its counterpart; got nothing")
        if self.bearer_token_file is not None and self.username is not None:
            raise ConfigError("bearer_token_file: must not be given beside username; got both")
        if self.key_file is not None and self.cert_file is None:
            raise ConfigError("cert_file: must be given with key_file; got nothing")
        for name, value in self.headers.items():
            if not name.isascii() or not (name + value).isprintable():
                raise ConfigError(f"headers: must be printable text; got {name!r}")
            if name.lower() == "authorization":
                raise ConfigError("headers: must hold no secret: use bearer_token_file")


def require_url(key: str, url: str) -> None:
    """Refuse all but a plain HTTP(S) address without secrets.

    Raises:
        ConfigError: wrong scheme, no host, a bad port, user information, a query or a fragment.
    """
    rule = "must be http:// or https:// and a host, without user, query and fragment"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a bad port
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
        if "@" in parts.netloc:
            raise ConfigError(
                f"{key}: must carry no user and password (use username and password_file); "
                f"got {redacted(url)!r}"
            )
    except ValueError as error:
        raise ConfigError(f"{key}: {rule}; got {redacted(url)!r}") from error
    if not good or parts.query or parts.fragment or " " in url:
        raise ConfigError(f"{key}: {rule}; got {redacted(url)!r}")


def redacted(url: str) -> str:
    """The address without user information, query and fragment, short enough for a message."""
    bare = url.split("?", 1)[0].split("#", 1)[0]
    scheme, separator, rest = bare.partition("://")
    if not separator:
        scheme, rest = "", bare
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"[:200]


class HttpClient:
    """GET requests to one server.

    Args:
        access: credentials and trust.
        max_bytes: longer bodies are refused, > 0.
    """

    def __init__(self, access: Access, max_bytes: int) -> None:
        self._access = access
        self._max_bytes = max_bytes
        self._session: GuardedSession | None = None
        self._stamps: tuple[Any, ...] = ()

    def session(self, timeout_s: float, given_up: threading.Event) -> "GuardedSession":
        """The session, a new one if a certificate file has changed.

        Args:
            timeout_s: when the caller gives up, s, > 0.
            given_up: when set, the body is read no further.

        Raises:
            ObservationError: a file cannot be read.
        """
        access = self._access
        stamps = tuple(_stamp(f) for f in (access.ca_file, access.cert_file, access.key_file))
        if self._session is None or stamps != self._stamps:
            # A pool keeps connections and contexts by file name, not by content.
            self._session = GuardedSession(access, self._max_bytes)
            self._stamps = stamps
        self._session.begin(timeout_s, given_up)
        return self._session

    def clean(self, text: str) -> str:
        """A server's words without the credentials that it was sent: some repeat them."""
        return text if self._session is None else self._session.sent.text(text)


class GuardedSession(requests.Session):
    """A session whose every request goes through the guard, whatever a library mounts on it."""

    def __init__(self, access: Access, max_bytes: int) -> None:
        super().__init__()
        self.trust_env = False
        self.max_redirects = 0
        self._guard = _Guard(access, max_bytes)

    def begin(self, timeout_s: float, given_up: threading.Event) -> None:
        """Set the limits of the requests to come: of all together, and when to stop."""
        # So that a silent server's call has ended by itself before it is given up on.
        self._guard.timeout_s = 0.8 * timeout_s
        self._guard.given_up = given_up

    @property
    def sent(self) -> Redaction:
        """Takes out the credentials of the last request."""
        return self._guard.sent

    def get_adapter(self, url: str | bytes) -> BaseAdapter:  # noqa: ARG002  # requests' signature
        """The guard, for every address."""
        return self._guard


class _Guard(HTTPAdapter):
    """Sends with our own trust and limits, and reads the body within them."""

    def __init__(self, access: Access, max_bytes: int) -> None:
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)
        self.timeout_s = 1.0
        self.given_up = threading.Event()
        self.sent = Redaction()
        self._access = access
        self._max_bytes = max_bytes

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: ARG002  # requests' signature
        timeout: Any = None,  # noqa: ARG002  # requests' signature
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,  # noqa: ARG002  # requests' signature
    ) -> requests.Response:
        """One request, its body read; only our own settings count."""
        access = self._access
        verify = access.ca_file or True
        if access.tls_insecure_skip_verify:
            verify = False
        cert = (access.cert_file, access.key_file) if access.key_file else access.cert_file
        request.headers.update(access.headers)
        # A few kilobytes of zeros unpack to gigabytes; what is never packed cannot.
        request.headers["Accept-Encoding"] = "identity"
        # uvicorn closes a connection after 5 idle seconds, a tick is 5 s: kept ones die in use.
        request.headers["Connection"] = "close"
        self.sent = _authorize(request, access)
        response = super().send(request, True, self.timeout_s, verify, cert, {})
        try:
            self._read(response)
        finally:
            response.close()
            # Not every server says that it closes, too: a kept connection then dies under the next
            # request. Measured on a server that does not say so: one request in ten.
            self.poolmanager.clear()
        return response

    def _read(self, response: requests.Response) -> None:
        where = redacted(response.url or "")
        if response.is_redirect or 300 <= response.status_code < 400:
            target = redacted(response.headers.get("Location", "nowhere"))
            raise ObservationError(f"{where}: redirects to {target}, which is not followed")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ObservationError(f"{where}: answers in an encoding that was not asked for")
        body = bytearray()
        while chunk := response.raw.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._max_bytes:
                raise ObservationError(f"{where}: answer longer than {self._max_bytes} bytes")
            if self.given_up.is_set():
                raise ObservationError(f"{where}: no whole answer in time")
        response._content = bytes(body)  # noqa: SLF001  # how requests keeps a body it has read
        response._content_consumed = True  # type: ignore[attr-defined]  # noqa: SLF001  # the same


def translated(where: str, error: Exception) -> ObservationError:
    """An error of the HTTP libraries in our words: who, and what kind of trouble."""
    return ObservationError(f"{where}: {_reason(error)}")


LIBRARY_ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError)
"""What a request may raise besides ObservationError."""


def require_ok(response: requests.Response) -> None:
    """Refuse every status but 200.

    Raises:
        ObservationError: names the address, the status and how long the server asks to wait.
    """
    if response.status_code == 200:
        return
    detail = f"{redacted(response.url)}: HTTP {response.status_code}"
    after = response.headers.get("Retry-After", "")
    if after.isascii() and after.isdigit():
        # Obeyed, one header stops the loop for hours; the next tick asks again.
        detail += f", asks to wait {after[:9]} s, is asked again in the next tick"
    raise ObservationError(detail)


def _authorize(request: requests.PreparedRequest, access: Access) -> Redaction:
    """Add the credentials; returns what takes them out of texts."""
    if access.bearer_token_file is not None:
        secret = _secret("bearer_token_file", access.bearer_token_file)
        request.headers["Authorization"] = f"Bearer {secret}"
    elif access.username is not None and access.password_file is not None:
        secret = _secret("password_file", access.password_file)
        request.prepare_auth((access.username, secret))
    else:
        return Redaction()
    coded = str(request.headers["Authorization"]).partition(" ")[2]
    return Redaction({"secret": [secret, coded]})


def _secret(key: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ObservationError(f"{key}: {path}: must be readable; {_reason(error)}") from error
    if not text or not text.isprintable() or not text.isascii():
        raise ObservationError(f"{key}: {path}: must hold one line of ASCII text")
    return text


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)  # noqa: PTH116  # follows the links of a mounted secret, like open
    except OSError as error:
        raise ObservationError(f"{path}: must be readable; {_reason(error)}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _reason(error: BaseException) -> str:
    """The innermost cause in a few words; texts of the libraries contain addresses and queries."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        inner = getattr(current, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((a for a in current.args if isinstance(a, BaseException)), None)
        current = inner or current.__cause__ or current.__context__
    for found in reversed(seen):
        if isinstance(found, OSError) and found.strerror:
            return found.strerror.lower()
    names = {type(found).__name__ for found in seen}
    if names & {"ReadTimeoutError", "ConnectTimeoutError", "ReadTimeout", "ConnectTimeout"}:
        return "timed out"
    return type(seen[-1]).__name__
