"""The replicas of a Ray Serve deployment, through the dashboard's HTTP interface.

The application has to set ``external_scaler_enabled: true``. The interface has no conditional
write: the width is compared right before it is written, and two writers within that moment are
found out by the next reading only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
import urllib3

from autoscaler.clock import SystemClock
from autoscaler.cluster.answers import redacted, unwritten
from autoscaler.errors import TargetError
from autoscaler.model import Capabilities, Layer, SetOutcome, SetResult, Tristate, WidthStatus
from autoscaler.parameters import require_number, require_whole
from autoscaler.targets import _fields
from autoscaler.targets._engine import require_url

_MAX_BYTES = 8 * 2**20
_REFUSED = (400, 404, 405, 409, 412, 422)


@dataclass(frozen=True, slots=True)
class Params:
    """Which deployment, and where its dashboard is.

    Args:
        url: of the dashboard, such as ``http://head:8265``.
        application: name of the application.
        deployment: name of the deployment in it.
        max_width: most replicas, >= min_width.
        gpus_per_width: GPUs of one replica, >= 1. There is no default to guess from.
        min_width: fewest replicas, >= 0.
        can_shrink: whether replicas may be taken away.
        pause_s: interruption of service by one resize, s; None: unknown.
        timeout_s: total deadline of one reading or write, s, > 0 and below the tick.
    """

    url: str
    application: str
    deployment: str
    max_width: int
    gpus_per_width: int
    min_width: int = 1
    can_shrink: bool = True
    pause_s: float | None = None
    timeout_s: float = 4.0

    def __post_init__(self) -> None:
        require_url("url", self.url)
        require_whole("min_width", self.min_width, 0)
        require_whole("max_width", self.max_width, max(self.min_width, 1))
        require_whole("gpus_per_width", self.gpus_per_width, 1)
        require_number("pause_s", self.pause_s, 0)
        require_number("timeout_s", self.timeout_s, 0, above=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the dashboard says of the deployment."""

    target: int
    running: int
    listed: int
    status: str
    application: str
    message: str


class RayServe:
    """Steers one deployment."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self._clock = SystemClock()
        self._session = requests.Session()
        # ~/.netrc and proxy variables would send credentials that nobody has configured.
        self._session.trust_env = False
        self._session.headers["Accept-Encoding"] = "identity"
        self._root = params.url.rstrip("/")
        self._where = f"Ray Serve {params.application}/{params.deployment}"

    def read(self) -> WidthStatus:
        """Replicas wanted, and those that run in a healthy application.

        Raises:
            TargetError: unreadable, or without a field that should be there (``field_missing``).
        """
        seen = self._look(self._clock.now_s() + self.params.timeout_s)
        healthy = seen.application == "RUNNING" and seen.status == "HEALTHY"
        nothing = seen.running == 0 and seen.target > 0
        failed = "DEPLOY_FAILED" in (seen.application, seen.status)
        return WidthStatus(
            seen.target,
            seen.running if healthy and not nothing else None,
            layers=(Layer("replicas", seen.listed), Layer("running", seen.running)),
            failure=(seen.message or "deploying it failed") if failed else None,
            resizing=seen.status in ("UPDATING", "UPSCALING", "DOWNSCALING"),
            detail=f"application {seen.application}, deployment {seen.status}",
        )

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Write the replicas, if they are the expected ones just before; sent once at most."""
        until_s = self._clock.now_s() + self.params.timeout_s
        try:
            present = self._look(until_s).target
        except TargetError as error:
            return unwritten(error)
        if present != expected:
            return SetOutcome(SetResult.CONFLICT, detail=f"{self._where}: the width is {present}")
        application, name = (
            quote(part, safe="") for part in (self.params.application, self.params.deployment)
        )
        at = f"/api/v1/applications/{application}/deployments/{name}/scale"
        try:
            status, content = self._send("POST", at, until_s, {"target_num_replicas": width})
        except TargetError as error:
            return SetOutcome(SetResult.AMBIGUOUS, detail=str(error))
        text = f"{self._where}: POST {at}: {status}: {_said(content)}"
        if 200 <= status < 300:
            return SetOutcome(SetResult.APPLIED, detail=text)
        if status in (401, 403):
            return SetOutcome(SetResult.FORBIDDEN, detail=text)
        refused = status in _REFUSED or "external_scaler_enabled" in text
        return SetOutcome(SetResult.REFUSED if refused else SetResult.AMBIGUOUS, detail=text)

    def capabilities(self) -> Capabilities:
        """As configured."""
        params = self.params
        return Capabilities(
            params.min_width,
            params.max_width,
            can_shrink=Tristate.YES if params.can_shrink else Tristate.NO,
            gpus_per_width=params.gpus_per_width,
            pause_s=params.pause_s,
        )

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _look(self, until_s: float) -> _Seen:
        status, content = self._send("GET", "/api/serve/applications/", until_s)
        if status != 200:
            raise TargetError(f"{self._where}: GET: must answer 200; got {status}")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise TargetError(f"{self._where}: GET: must answer JSON; {error}") from error
        if not isinstance(found, Mapping):
            raise TargetError(f"{self._where}: GET: must answer an object")
        app = _fields.mapping(self._where, found, "applications", self.params.application)
        own = _fields.mapping(self._where, app, "deployments", self.params.deployment)
        replicas = _fields.sequence(self._where, own, "replicas")
        states = [r.get("state") for r in replicas if isinstance(r, dict)]
        return _Seen(
            _fields.whole(self._where, own, "target_num_replicas"),
            states.count("RUNNING"),
            len(replicas),
            _fields.text(self._where, own, "status"),
            _fields.text(self._where, app, "status"),
            str(own.get("message") or app.get("message") or "")[:300],
        )

    def _send(self, method: str, path: str, until_s: float, body: Any = None) -> tuple[int, bytes]:
        """One request, one attempt: status and body within the deadline, however it drips."""
        where = f"{self._where}: {method} {path}"
        left_s = until_s - self._clock.now_s()
        if left_s <= 0:
            raise TargetError(f"{where}: not sent, {self.params.timeout_s:g} s were over before")
        try:
            with self._session.request(
                method,
                self._root + path,
                json=body,
                timeout=left_s,
                allow_redirects=False,
                stream=True,
            ) as answer:
                content = b""
                # Not iter_content: it waits for whole chunks, however slowly they drip.
                while chunk := answer.raw.read1(65536, decode_content=False):
                    content += chunk
                    if self._clock.now_s() > until_s or len(content) > _MAX_BYTES:
                        raise TargetError(f"{where}: the answer is too slow or too long")
                return answer.status_code, content
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise TargetError(
                f"{where}: {type(error).__name__}: {redacted(str(error))[:300]}"
            ) from error


def _said(content: bytes) -> str:
    return redacted(content[:300].decode("utf-8", "replace"))


def build(params: Params) -> RayServe:
    """The target; nothing is connected yet."""
    return RayServe(params)
