"""How many more Pods of a shape the nodes of a cluster have GPUs for. No I/O.

An upper bound: of what a scheduler looks at, only accelerators, readiness, cordons, taints, node
selectors and required node affinity are looked at here; Pods that wait for a node do not count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.cluster.pods import Shape, Unknown, mapping, requests, sequence, whole

_OVER = ("Succeeded", "Failed")


class Nodes:
    """Nodes and what runs on them, told page by page.

    Args:
        shape: of the Pods that are to be placed.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._room: dict[str, int] = {}  # allocatable, by the name of a node that counts
        self._used: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def add_nodes(self, nodes: Iterable[Any]) -> None:
        """Take nodes into account.

        Raises:
            Unknown: the Pods' affinity has a rule that is not known here.
        """
        for node in map(mapping, nodes):
            allocatable = mapping(mapping(node.get("status")).get("allocatable"))
            count = whole(allocatable.get(self._shape.resource)) or 0
            if not count:
                continue
            why = unfit(node, self._shape.spec)
            if why:
                self._left_out[why] += 1
            else:
                self._room[str(mapping(node.get("metadata")).get("name"))] = count

    def add_pods(self, pods: Iterable[Any]) -> None:
        """Take Pods into account; those that are over or have no node yet hold nothing."""
        for pod in map(mapping, pods):
            spec = mapping(pod.get("spec"))
            name = spec.get("nodeName")
            if name and mapping(pod.get("status")).get("phase") not in _OVER:
                self._used[str(name)] += requests(spec).get(self._shape.resource, 0)

    @property
    def pods(self) -> int:
        """Pods of the shape that there is room for, each whole on one node."""
        return sum(
            max(room - self._used[name], 0) // self._shape.gpus for name, room in self._room.items()
        )

    @property
    def detail(self) -> str:
        """For people."""
        free = sum(max(room - self._used[name], 0) for name, room in self._room.items())
        total, count = sum(self._room.values()), len(self._room)
        text = f"{free} of {total} {self._shape.resource} free on {count} nodes"
        if self._shape.gpus > 1:
            text += f", {self._shape.gpus} together on one node {self.pods} times"
        if self._left_out:
            reasons = [f"{n} {why}" for why, n in sorted(self._left_out.items())]
            text += f"; left out: {', '.join(reasons)}"
        return text


def unfit(node: Mapping[str, Any], pod_spec: Mapping[str, Any]) -> str:
    """Why a Pod is not placed on a node, whatever is free there; "": nothing speaks against it.

    Raises:
        Unknown: the Pod's affinity has a rule that is not known here.
    """
    spec, metadata = mapping(node.get("spec")), mapping(node.get("metadata"))
    labels = mapping(metadata.get("labels"))
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    if spec.get("unschedulable"):
        return "cordoned"
    conditions = sequence(mapping(node.get("status")).get("conditions"))
    if not any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in map(mapping, conditions)
    ):
        return "not ready"
    tolerations = sequence(pod_spec.get("tolerations"))
    for taint in map(mapping, sequence(spec.get("taints"))):
        if taint.get("effect") not in ("NoSchedule", "NoExecute"):
            continue  # PreferNoSchedule is a wish
        if not any(_tolerates(mapping(toleration), taint) for toleration in tolerations):
            return "tainted"
    wanted = mapping(pod_spec.get("nodeSelector"))
    if any(labels.get(key) != value for key, value in wanted.items()):
        return "of other labels"
    affinity = mapping(mapping(pod_spec.get("affinity")).get("nodeAffinity"))
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = sequence(required.get("nodeSelectorTerms"))
    fields = {"metadata.name": metadata.get("name")}
    if required and not any(_matches(mapping(term), labels, fields) for term in terms):
        return "of other labels"
    return ""


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    key = toleration.get("key")
    if not key:
        return exists  # without a key: every taint
    same = key == taint.get("key")
    return same and (exists or (toleration.get("value") or "") == (taint.get("value") or ""))


def _matches(term: Mapping[str, Any], labels: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether every rule of a term holds; an empty term holds for no node."""
    rules = [(labels, rule) for rule in sequence(term.get("matchExpressions"))]
    rules += [(fields, rule) for rule in sequence(term.get("matchFields"))]
    return bool(rules) and all(_holds(mapping(rule), known) for known, rule in rules)


def _holds(rule: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    operator, values = rule.get("operator"), sequence(rule.get("values"))
    value = known.get(str(rule.get("key")))
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and len(values) == 1:
        have, limit = whole(value), whole(values[0])
        if have is None or limit is None:
            return False
        return have > limit if operator == "Gt" else have < limit
    raise Unknown(f"node affinity: operator must be a known one; got {operator!r:.40}")
