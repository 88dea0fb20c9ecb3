"""When a number of replicas serves, kind by kind. No I/O: an object in, what it proves out.

A kind's own readiness decides, on the generation that it speaks of; never the wish in its spec.
Counters that are 0 are left out of a status by Kubernetes, so that a missing one is 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.errors import TargetError
from autoscaler.model import Layer
from autoscaler.targets import _fields

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Serving:
    """What an object says of its replicas.

    Args:
        effective: replicas that serve, with nothing else going on; None: not proven.
        layers: between the spec and that, outermost first.
        stable: what the controller of the object calls its last stable number; None: nothing.
        failure: why it will not get there; None: it may.
        detail: for people.
        rolling: two templates or revisions are running: a roll-out goes on, which brings members
            beyond the wish (surge) and is no time to resize.
    """

    effective: int | None
    layers: tuple[Layer, ...]
    stable: int | None = None
    failure: str | None = None
    detail: str = ""
    rolling: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Where the objects of a kind are, and when their replicas serve.

    Args:
        api_version: group and version.
        plural: name in paths.
        kind: name in objects.
        serving: reads the object; the text names it in messages.
        observes: whether its status has an ``observedGeneration``.
    """

    api_version: str
    plural: str
    kind: str
    serving: Callable[[str, Object], Serving]
    observes: bool = True


def desired(where: str, obj: Object) -> int:
    """``spec.replicas``; every kind here has it filled in by its API server."""
    return _fields.whole(where, obj, "spec", "replicas")


def deployment(where: str, obj: Object) -> Serving:
    """Pods that are available, unless a roll-out mixes two templates."""
    total = _count(where, obj, "replicas")
    updated = _count(where, obj, "updatedReplicas")
    available = _count(where, obj, "availableReplicas")
    layers = _layers(replicas=total, updated=updated, available=available)
    progressing = _fields.condition(where, obj, "Progressing") or {}
    late = progressing.get("reason") == "ProgressDeadlineExceeded"
    # Exceeded is a verdict on the time, not on the outcome: Pods may still become available.
    detail = str(progressing.get("message") or "progress deadline exceeded") if late else ""
    rolling = updated != total
    effective = _proven(where, obj, available, mixed=rolling)
    return Serving(effective, layers, detail=detail, rolling=rolling)


def stateful_set(where: str, obj: Object) -> Serving:
    """Pods that are available, all of one revision."""
    total = _count(where, obj, "replicas")
    ready = _count(where, obj, "readyReplicas")
    available = _count(where, obj, "availableReplicas")
    now = _fields.lookup(obj, "status", "currentRevision")
    mixed = now != _fields.lookup(obj, "status", "updateRevision")
    layers = _layers(replicas=total, ready=ready, available=available)
    detail = "two revisions are running" if mixed else ""
    effective = _proven(where, obj, min(ready, available), mixed=mixed)
    return Serving(effective, layers, detail=detail, rolling=mixed)


def leader_worker_set(where: str, obj: Object) -> Serving:
    """Groups that are ready and up to date, and the set says that it is available."""
    total = _count(where, obj, "replicas")
    ready = _count(where, obj, "readyReplicas")
    updated = _count(where, obj, "updatedReplicas")
    moving = _fields.holds(where, obj, ["Progressing"])
    available = _fields.holds(where, obj, ["Available"])
    layers = _layers(replicas=total, updated=updated, ready=ready)
    unsure = moving or not available or ready != updated
    return Serving(_proven(where, obj, ready, mixed=unsure), layers)


def engine_group(where: str, obj: Object) -> Serving:
    """Ranks that the engine has committed; one replica is one data-parallel rank."""
    active = _fields.whole(where, obj, "status", "activeReplicas")
    layers = _layers(
        allocated=_count(where, obj, "replicas"),
        available=_count(where, obj, "availableReplicas"),
        active=active,
    )
    unproven = _fields.lookup(obj, "status", "targetValidation") is not None
    stable = _count(where, obj, "lastStableReplicas") or None
    detail = "the target is being validated" if unproven else ""
    return Serving(_proven(where, obj, active, mixed=unproven), layers, stable, detail=detail)


def scaling_adapter(where: str, obj: Object) -> Serving:
    """What the adapter passed on; whether it serves only its graph deployment knows."""
    passed = _fields.whole(where, obj, "status", "replicas")
    return Serving(None, _layers(adapter=passed))


KINDS = {
    "deployment": Kind("apps/v1", "deployments", "Deployment", deployment),
    "statefulset": Kind("apps/v1", "statefulsets", "StatefulSet", stateful_set),
    "leaderworkerset": Kind(
        "leaderworkerset.x-k8s.io/v1", "leaderworkersets", "LeaderWorkerSet", leader_worker_set
    ),
    "dynamo_engine_group": Kind(
        "nvidia.com/v1beta1",
        "dynamographdeploymentenginegroups",
        "DynamoGraphDeploymentEngineGroup",
        engine_group,
    ),
    "dynamo_scaling_adapter": Kind(
        "nvidia.com/v1alpha1",
        "dynamographdeploymentscalingadapters",
        "DynamoGraphDeploymentScalingAdapter",
        scaling_adapter,
        observes=False,
    ),
}


def component(adapter: Object) -> tuple[str, str]:
    """Graph deployment and component that a Dynamo scaling adapter stands for.

    Raises:
        TargetError: it does not say so.
    """
    where = "scaling adapter"
    reference = _fields.mapping(where, adapter, "spec", "dgdRef")
    name = reference.get("componentName") or reference.get("serviceName")
    if not isinstance(name, str):
        known = "spec.dgdRef.componentName or .serviceName"
        raise TargetError(f"field_missing: {where}: {known}: must be there")
    return _fields.text(where, reference, "name"), name


def ready_in_graph(where: str, graph: Object, name: str) -> int:
    """Ready replicas of one component of a Dynamo graph deployment.

    Raises:
        TargetError: its status has them neither among services nor among components.
    """
    for listed in ("services", "components"):
        found = _fields.lookup(graph, "status", listed, name)
        for key in ("readyReplicas", "availableReplicas"):
            if type(_fields.lookup(found, key)) is int:
                return int(found[key])
    known = f"status.services.{name}.readyReplicas (or components, or availableReplicas)"
    raise TargetError(f"field_missing: {where}: {known}: must be there")


def _proven(where: str, obj: Object, serving: int, *, mixed: bool) -> int | None:
    """A number of serving replicas as a proof, or None.

    None of several serving is a fault or a start, never a width to decide from: a controller that
    takes 0 of 4 for a width shrinks what is merely unwell. None of none is one.
    """
    if mixed or (serving == 0 and desired(where, obj) > 0):
        return None
    return serving


def _count(where: str, obj: Object, key: str) -> int:
    return _fields.count(where, obj, "status", key)


def _layers(**widths: int) -> tuple[Layer, ...]:
    return tuple(Layer(name, width) for name, width in widths.items())
