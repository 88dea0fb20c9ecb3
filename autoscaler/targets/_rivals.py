"""Whoever else steers an object: other autoscalers bound to it, and who wrote its width last.

For the preflight check only. What may not be listed, or does not exist in this cluster, is no
finding: looking for rivals asks for more permissions than steering needs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.cluster.connection import FIELD_MANAGER, Connection, path
from autoscaler.errors import TargetError
from autoscaler.findings import Finding, Level

_SUBJECT = "other autoscalers"

_ALREADY_STEERING = ("horizontal-pod-autoscaler", "keda", "vpa", "modeldeploymentscaler")
"""Parts of the names of managers that write a width of their own accord, again and again."""

_SCALERS = (
    ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("keda.sh/v1alpha1", "scaledobjects", "ScaledObject"),
)


def of_replicas(api: Connection, namespace: str, kind: str, name: str) -> list[Finding]:
    """HorizontalPodAutoscalers and KEDA's ScaledObjects that are bound to an object.

    Args:
        api: the API server.
        namespace: of the object.
        kind: of the object, ``Deployment``.
        name: of the object.
    """
    found = []
    for api_version, plural, what in _SCALERS:
        for item in _listed(api, path(api_version, namespace, plural, "")):
            bound = _at(item, "spec", "scaleTargetRef")
            # KEDA's default kind; an autoscaler has to name one.
            if _at(bound, "name") == name and (_at(bound, "kind") or "Deployment") == kind:
                found.append(_bound(what, item, f"{kind} {name}"))
    return found or [Finding(Level.OK, _SUBJECT, f"none that may be seen is bound to {name}")]


def of_deployment(api: Connection, namespace: str, name: str, api_version: str) -> list[Finding]:
    """ModelDeploymentScalers that are bound to a ModelDeployment.

    The fields of theirs that name the deployment and the mode are in no documentation that was
    read: any text in the spec that is the name, or ``Shadow``, counts.
    """
    found = []
    for item in _listed(api, path(api_version, namespace, "modeldeploymentscalers", "")):
        texts = set(_texts(item.get("spec")))
        if name not in texts:
            continue
        if "Shadow" in texts:
            who = _at(item, "metadata", "name")
            text = f"ModelDeploymentScaler {who} watches it and writes nothing (Shadow)"
            found.append(Finding(Level.OK, _SUBJECT, text))
        else:
            found.append(_bound("ModelDeploymentScaler", item, f"ModelDeployment {name}"))
    return found or [Finding(Level.OK, _SUBJECT, f"none that may be seen is bound to {name}")]


def last_writer(who: str) -> list[Finding]:
    """What it means that ``who`` set the width last; "": nobody says."""
    if who in ("", FIELD_MANAGER):
        return []
    text = f"the width was last set by {who!r:.80}"
    if any(part in who.lower() for part in _ALREADY_STEERING):
        cure = "unbind it: two writers of one width never come to rest"
        return [Finding(Level.ERROR, "last writer", text, cure)]
    cure = "if it applies that width again and again (GitOps, Helm), have it ignore the field"
    return [Finding(Level.WARNING, "last writer", text, cure)]


def _bound(what: str, item: Mapping[str, Any], to: str) -> Finding:
    who = _at(item, "metadata", "name")
    cure = f"delete or unbind {what} {who}, or do not steer {to} from here"
    return Finding(Level.ERROR, _SUBJECT, f"{what} {who} is bound to {to}", cure)


def _listed(api: Connection, at: str) -> list[Mapping[str, Any]]:
    try:
        items = api.get(at).get("items")
    except TargetError:
        return []
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _at(found: Any, *keys: str) -> Any:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
