"""What one more Pod of a target looks like: from its Pods, or from the template in its object."""

from collections.abc import Mapping
from typing import Any

from autoscaler.cluster.connection import Connection, path
from autoscaler.cluster.pods import Shape, Unknown, mapping, sequence, shape
from autoscaler.targets import _fields

TEMPLATES = ("deployment", "statefulset", "leaderworkerset")
"""Workloads whose object holds the template of their Pods."""

_ENOUGH = "20"
"""Pods of one role are alike, but for those that are on their way out."""


def of_role(
    api: Connection,
    where: tuple[str, str, str],
    gpus: int,
    resource: str | None,
    until_s: float,
) -> Shape:
    """The shape of a rank of a GPUStack role, from a Pod that runs.

    Args:
        api: the API server.
        where: namespace, deployment and role.
        gpus: GPUs of one rank.
        resource: the accelerator's name; None: the one that the Pods request.
        until_s: when the look has to be over.

    Raises:
        TargetError: the Pods cannot be listed.
        Unknown: there is none, or none that names its accelerator.
    """
    namespace, name, role = where
    labels = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={role}"
    at = path("v1", namespace, "pods", "")
    found = api.get(at, until_s, labelSelector=labels, limit=_ENOUGH).get("items")
    why = Unknown(f"no Pod labelled {labels} runs")
    for pod in map(mapping, sequence(found)):
        over = _fields.lookup(pod, "status", "phase") in ("Succeeded", "Failed")
        if over or _fields.lookup(pod, "metadata", "deletionTimestamp"):
            continue
        try:
            return shape(pod, gpus, resource)
        except Unknown as error:
            why = error
    raise why


def of_template(
    workload: str, obj: Mapping[str, Any], gpus_per_width: int, resource: str | None
) -> Shape:
    """The shape of a replica, from the template in its object.

    Args:
        workload: deployment, statefulset or leaderworkerset.
        obj: the object.
        gpus_per_width: GPUs of one replica.
        resource: the accelerator's name; None: the one that the template requests.

    Raises:
        Unknown: the template does not say, or says something else than ``gpus_per_width``.
    """
    queue = mapping(_fields.lookup(obj, "metadata", "labels"))
    if workload != "leaderworkerset":
        template = mapping(_fields.lookup(obj, "spec", "template"))
        return shape(_labelled(template, queue), gpus_per_width, resource)
    group = mapping(_fields.lookup(obj, "spec", "leaderWorkerTemplate"))
    size = group.get("size", 1)
    if type(size) is not int or size < 1 or gpus_per_width % size:
        raise Unknown(f"a group of {size!r:.20} Pods must share {gpus_per_width} GPUs evenly")
    gpus = gpus_per_width // size
    found = shape(_labelled(mapping(group.get("workerTemplate")), queue), gpus, resource, size)
    if group.get("leaderTemplate"):
        shape(mapping(group["leaderTemplate"]), gpus, found.resource)  # Unknown, where it differs
    return found


def _labelled(template: Mapping[str, Any], labels: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template with the object's own labels, where Kueue's may be instead."""
    metadata = mapping(template.get("metadata"))
    return {
        **template,
        "metadata": {**metadata, "labels": {**labels, **mapping(metadata.get("labels"))}},
    }
