"""What is served: the documents by which ``kubectl`` finds out names and paths."""

from collections.abc import Iterable

from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import Json

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_BELOW = ["get", "patch", "update"]


def document(path: str, resources: Iterable[Resource]) -> Json | None:
    """The document at ``/api``, ``/apis``, or of one group or version; None: it is none of them."""
    served = list(resources)
    parts = path.strip("/").split("/")
    if parts[:2] == ["openapi", "v3"]:
        return _openapi(parts[2:], served)
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if parts == ["apis"]:
        names = sorted({r.group for r in served if r.group})
        groups = [_group(name, served) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = "/".join(parts[1:])
    found = [r for r in served if r.api_version == version]
    if parts[0] in ("api", "apis") and found and len(parts) == (2 if parts[0] == "api" else 3):
        listed = [entry for resource in found for entry in _resources(resource)]
        kind = "APIResourceList"
        return {"kind": kind, "apiVersion": "v1", "groupVersion": version, "resources": listed}
    return None


def _openapi(parts: list[str], served: list[Resource]) -> Json:
    """What ``kubectl`` looks up before it leaves the validation of fields to the server."""
    roots = {f"{'apis' if r.group else 'api'}/{r.api_version}" for r in served}
    if not parts:
        paths: Json = {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in sorted(roots)}
    else:
        found = [r for r in served if r.api_version == "/".join(parts[1:])]
        paths = {f"/{'/'.join(parts)}/{r.plural}/{{name}}": _operations(r) for r in found}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1"}, "paths": paths}


def _operations(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {"patch": {"parameters": [parameter], "x-kubernetes-group-version-kind": kind}}


def _group(name: str, served: list[Resource]) -> Json:
    versions = sorted({r.version for r in served if r.group == name})
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[-1]}


def _resources(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    below = {"status": resource.status, "scale": resource.scale is not None}
    return [
        entry,
        *(
            {**entry, "name": f"{resource.plural}/{name}", "shortNames": [], "verbs": _BELOW}
            for name, there in below.items()
            if there
        ),
    ]
