"""The HTTP side: routes, credentials, faults and watches."""

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import yaml

from autoscaler.clock import SystemClock
from autoscaler.ports import Clock
from autoscaler.testing_apiserver import _groups, _scale, _table
from autoscaler.testing_apiserver._access import ADMIN, ANONYMOUS, User, authenticate, forbidden
from autoscaler.testing_apiserver._faults import Fault
from autoscaler.testing_apiserver._http import Handler, Http, Request
from autoscaler.testing_apiserver._lists import listed
from autoscaler.testing_apiserver._patch import applied, change, decoded
from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import ApiError, Cause, Json, invalid, unsupported
from autoscaler.testing_apiserver._store import Store
from autoscaler.testing_apiserver._watch import watch

_VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class _Place:
    """What a path names."""

    resource: Resource
    namespace: str
    name: str = ""
    subresource: str = ""


class ApiServer:
    """An API server on 127.0.0.1, at a free port, until it is closed.

    Args:
        clock: for time stamps of objects.
        tls: context of a server certificate; None: plain HTTP.
        port: where to listen; 0: any free port.
        store: the objects that an earlier server had, as after a restart; None: none yet.

    Attributes:
        store: the objects, for tests that are somebody else's controller.
        tokens: users by bearer token; taking one away makes it 401.
        faults: what goes wrong; the first that matches is met.
        requests: every request, in order.
        watch_second_s: real seconds that one second of a watch's ``timeoutSeconds`` lasts.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        store: Store | None = None,
    ) -> None:
        self.store = store or Store(clock or SystemClock())
        self.tokens: dict[str, User] = {"admin": ADMIN}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.watch_second_s = 1.0
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._http = Http(("127.0.0.1", port), Handler)
        self._http.api = self
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.port: int = self._http.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop; whoever hangs is let go."""
        self.closing.set()
        with self.store.changed:
            self.store.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()
        self._thread.join()

    def install(self, crd: str | Path) -> None:
        """Serve the resources of the CustomResourceDefinitions in a YAML file."""
        for document in yaml.safe_load_all(Path(crd).read_text(encoding="utf-8")):
            self.store.install(document)

    def kubeconfig(self, path: Path, token: str = "admin", **user: str) -> str:  # noqa: S107  # a fake's
        """Write a kubeconfig that leads here; returns its path.

        Args:
            path: the file to write.
            token: bearer token; "": none, for another entry in ``user`` such as ``tokenFile``.
            user: further entries of the kubeconfig's user.
        """
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {**({"token": token} if token else {}), **user}}],
        }
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return str(path)

    def fault(self, method: str, path: str) -> Fault | None:
        """The trouble that this request meets."""
        with self._lock:
            for fault in self.faults:
                if fault.matches(method, path):
                    fault.seen += 1
                    return fault
            return None

    def answer(self, request: Request) -> tuple[int, Any]:
        """Do what a request asks for: status and body; an iterator of events for a watch."""
        user = authenticate(request.headers.get("authorization"), self.tokens)
        if request.path == "/version":
            return 200, _VERSION
        if request.path in ("/readyz", "/livez", "/healthz"):
            return 200, "ok"
        if request.path == _REVIEWS and request.method == "POST":
            return 201, _review(user, decoded(request.body))
        document = _groups.document(request.path, self.store.resources.values())
        if document is not None:
            return 200, document
        place = self._place(request.path)
        self._authorize(user, request, place)
        if request.method == "GET":
            return self._read(request, place)
        return self._write(request, place)

    def _place(self, path: str) -> _Place:
        root, *parts = [unquote(part) for part in path.strip("/").split("/")]
        taken = 1 if root == "api" else 2
        api_version, rest = "/".join(parts[:taken]), parts[taken:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if not rest or root not in ("api", "apis"):
            raise ApiError(404, "NotFound", "the server could not find the requested resource", {})
        resource = self.store.resource(api_version, rest[0])
        return _Place(resource, namespace, *rest[1:3])

    def _authorize(self, user: User, request: Request, place: _Place) -> None:
        verb = _VERBS.get(request.method, "get" if place.name else "list")
        if request.query.get("watch") in ("1", "true"):
            verb = "watch"
        resource, below = place.resource, place.subresource
        what = f"{resource.plural}/{below}" if below else resource.plural
        if not user.may(verb, resource.group, what, place.namespace, place.name):
            raise forbidden(user, verb, resource.group, what, place.namespace, place.name)

    def _read(self, request: Request, place: _Place) -> tuple[int, Any]:
        resource, query = place.resource, request.query
        if place.name:
            found = self.store.get(resource, place.namespace, place.name)
            if self._below(place) == "scale":
                return 200, _scale.of(resource, found)
            if _table.wanted(request.headers.get("accept", "")):
                return 200, _table.table(resource, [found], {}, self.store.now())
            return 200, found
        if query.get("watch") in ("1", "true"):
            return 200, watch(
                self.store, resource, place.namespace, query, self.watch_second_s, self.closing
            )
        version = int(query.get("resourceVersion") or 0)
        if version > self.store.version:
            raise _too_large(version, self.store.version)
        accept = request.headers.get("accept", "")
        return 200, listed(self.store, resource, place.namespace, query, accept)

    def _write(self, request: Request, place: _Place) -> tuple[int, Any]:
        resource, namespace, name = place.resource, place.namespace, place.name
        query, manager = request.query, _manager(request)
        dry, strict = query.get("dryRun") == "All", query.get("fieldValidation") == "Strict"
        if request.method == "POST":
            given = decoded(request.body)
            made = self.store.create(resource, namespace, given, manager, dry=dry, strict=strict)
            return 201, made
        below = self._below(place)
        if request.method == "DELETE":
            self.store.delete(resource, namespace, name)
            return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        if request.method == "PUT":
            given = decoded(request.body)
            if resource.conditional and not (given.get("metadata") or {}).get("resourceVersion"):
                raise _unconditional(resource, name)
            how = lambda _: given  # noqa: E731
        else:
            kind = request.headers.get("content-type", "").partition(";")[0].strip()
            if kind not in resource.patch_types:
                raise unsupported(resource.patch_types)
            if kind == "application/strategic-merge-patch+json":
                raise ApiError(501, "NotImplemented", "the fake knows no strategic merge patch")
            if kind == "application/apply-patch+yaml":
                owners = self.store.owners(self.store.get(resource, namespace, name))
                force = query.get("force") == "true"
                how = applied(request.body, manager, resource.api_version, owners, force=force)
            else:
                how = change(kind, request.body)
        if below == "scale":
            how = _scale.change(resource, name, how)
        written = self.store.change(
            resource,
            namespace,
            name,
            how,
            subresource=below,
            manager=manager,
            dry=dry,
            strict=strict,
        )
        return 200, _scale.of(resource, written) if below == "scale" else written

    @staticmethod
    def _below(place: _Place) -> str:
        """The subresource, if the resource has it."""
        resource, below = place.resource, place.subresource
        has = {"": True, "status": resource.status, "scale": resource.scale is not None}
        if not has.get(below, False):
            raise _scale.missing(resource, place.name)
        return below


def _manager(request: Request) -> str:
    agent = request.headers.get("user-agent", "unknown").partition("/")[0]
    return request.query.get("fieldManager") or agent


def _review(user: User, review: Json) -> Json:
    asked = review["spec"]["resourceAttributes"]
    resource = "/".join(part for part in (asked["resource"], asked.get("subresource", "")) if part)
    namespace = asked.get("namespace", "")
    allowed = user.may(
        asked["verb"], asked.get("group", ""), resource, namespace, asked.get("name", "")
    )
    if user is ANONYMOUS:
        raise forbidden(user, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "")
    return {**review, "metadata": {}, "status": {"allowed": allowed}}


def _unconditional(resource: Resource, name: str) -> ApiError:
    field = "metadata.resourceVersion"
    text = "Invalid value: 0x0: must be specified for an update"
    return invalid(resource.kind, resource.group, name, [Cause("FieldValueInvalid", text, field)])


def _too_large(asked: int, current: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(
        504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1}, {"Retry-After": "1"}
    )
