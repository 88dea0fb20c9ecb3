"""The ``scale`` subresource: one number of an object, seen as an ``autoscaling/v1`` Scale."""

from typing import Any

from autoscaler.testing_apiserver._resources import Resource, ScalePaths
from autoscaler.testing_apiserver._status import ApiError, Cause, Json, details, invalid, qualified
from autoscaler.testing_apiserver._store import Change

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def of(resource: Resource, obj: Json) -> Json:
    """The Scale of an object."""
    paths = _paths(resource)
    selector = _at(obj, paths.selector) if paths.selector else ""
    if isinstance(selector, dict):
        selector = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    status: Json = {"replicas": _at(obj, paths.status) or 0}
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: v for k, v in obj["metadata"].items() if k in _METADATA},
        "spec": {"replicas": _at(obj, paths.replicas) or 0},
        "status": status,
    }


def change(resource: Resource, name: str, how: Change) -> Change:
    """A change of the Scale as a change of the object."""
    paths = _paths(resource)

    def apply(before: Json) -> Json:
        scale = how(of(resource, before))
        replicas = scale["spec"]["replicas"]
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            cause = Cause("FieldValueInvalid", text, "spec.replicas")
            raise invalid("Scale", "autoscaling", name, [cause])
        parent = before
        for key in paths.replicas[:-1]:
            parent = parent.setdefault(key, {})
        parent[paths.replicas[-1]] = replicas
        before["metadata"]["resourceVersion"] = scale["metadata"].get("resourceVersion")
        return before

    return apply


def missing(resource: Resource, name: str) -> ApiError:
    """404 for a subresource that the resource does not have: as if the object were not there."""
    where = qualified(resource.plural, resource.group)
    about = details(name, resource.group, resource.plural)
    return ApiError(404, "NotFound", f'{where} "{name}" not found', about)


def _paths(resource: Resource) -> ScalePaths:
    return resource.scale or ScalePaths()


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj
