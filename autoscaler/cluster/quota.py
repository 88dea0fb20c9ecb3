"""How many more Pods of a shape Kueue's quota admits. No I/O.

An upper bound where a queue may borrow: its limit is known, not what its cohort has to lend. Reads
``kueue.x-k8s.io`` v1beta1, v1beta2 and v1 alike: the fields used here differ in the cohort's name
only (``cohort``, ``cohortName``).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.cluster.pods import Shape, Unknown, mapping, sequence, whole

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1", "v1")


def local_queue(queues: Iterable[Any], wanted: str) -> Mapping[str, Any] | None:
    """The LocalQueue of a namespace that Pods are submitted to; None: the namespace has none.

    Args:
        queues: every LocalQueue of the namespace.
        wanted: its name; "": the only one.

    Raises:
        Unknown: several, and nobody says which; or none of that name.
    """
    found = [mapping(queue) for queue in queues]
    names = sorted(str(mapping(queue.get("metadata")).get("name")) for queue in found)
    if wanted:
        found = [q for q in found if mapping(q.get("metadata")).get("name") == wanted]
        if not found:
            raise Unknown(f"LocalQueue {wanted}: must be there; got {', '.join(names) or 'none'}")
    if len(found) > 1:
        raise Unknown(f"LocalQueue: the Pods must name one of {', '.join(names)}; got none")
    return found[0] if found else None


def cluster_queue_name(queue: Mapping[str, Any]) -> str:
    """The ClusterQueue behind a LocalQueue.

    Raises:
        Unknown: it does not say.
    """
    name = mapping(queue.get("spec")).get("clusterQueue")
    if not isinstance(name, str) or not name:
        raise Unknown("LocalQueue: spec.clusterQueue: must be there; got nothing")
    return name


def pods(
    local: Mapping[str, Any], cluster: Mapping[str, Any], shape: Shape
) -> tuple[int | None, str]:
    """Pods of the shape that a queue admits besides what it has, and why for people.

    Args:
        local: the LocalQueue.
        cluster: its ClusterQueue.
        shape: of the Pods.

    Returns:
        None where there is no limit: the queue does not count this resource, or may borrow
        without one.

    Raises:
        Unknown: a number is missing.
    """
    spec, status = mapping(cluster.get("spec")), mapping(cluster.get("status"))
    name = f"queue {mapping(cluster.get('metadata')).get('name')}"
    for queue in (local, cluster):
        policy = mapping(queue.get("spec")).get("stopPolicy")
        if policy not in (None, "", "None"):
            return 0, f"{name} is stopped ({policy})"
    for condition in map(mapping, sequence(status.get("conditions"))):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            return 0, f"{name} is not active ({condition.get('reason')})"
    cohort = spec.get("cohortName") or spec.get("cohort")
    count, total, used, counted, unlimited = 0, 0, 0, False, False
    for flavor, quota in _quotas(spec, shape.resource):
        counted = True
        limit = whole(quota.get("nominalQuota"))
        if limit is None:
            raise Unknown(f"{name}: nominalQuota of {shape.resource} must be a whole number")
        if cohort and quota.get("borrowingLimit") is None:
            unlimited = True
        limit += whole(quota.get("borrowingLimit")) or 0
        taken = max(
            _used(status, key, flavor, shape.resource)
            # What is reserved is gone, though it may not be used yet.
            for key in ("flavorsReservation", "flavorsUsage")
        )
        total, used = total + limit, used + taken
        count += max(limit - taken, 0) // shape.gpus
    if not counted:
        return None, f"{name} does not count {shape.resource}"
    if unlimited:
        return None, f"{name} may borrow {shape.resource} without a limit"
    return count, f"{used} of {total} {shape.resource} of {name} are taken"


def _quotas(spec: Mapping[str, Any], resource: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for group in map(mapping, sequence(spec.get("resourceGroups"))):
        for flavor in map(mapping, sequence(group.get("flavors"))):
            for quota in map(mapping, sequence(flavor.get("resources"))):
                if quota.get("name") == resource:
                    yield str(flavor.get("name")), quota


def _used(status: Mapping[str, Any], key: str, flavor: str, resource: str) -> int:
    for entry in map(mapping, sequence(status.get(key))):
        if entry.get("name") != flavor:
            continue
        for usage in map(mapping, sequence(entry.get("resources"))):
            if usage.get("name") == resource:
                return whole(usage.get("total")) or 0
    return 0
