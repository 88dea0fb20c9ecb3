"""What one more Pod of a deployment asks of the cluster. No I/O: objects in, facts out.

What an object does not say is unknown, never guessed: a wrong name of an accelerator would count
the wrong GPUs everywhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_QUEUE = "kueue.x-k8s.io/queue-name"
_QUANTITY = re.compile(r"(\d+)(k|M|G)?")  # how Kubernetes writes whole numbers
_SCALE = {None: 1, "": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class Unknown(Exception):
    """Something that has to be known is not there; the text says what."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one Pod asks for, as far as accelerators are concerned.

    Args:
        resource: name of the accelerator in requests, ``nvidia.com/gpu``.
        gpus: how many of it one Pod takes on one node, >= 1.
        pods_per_width: Pods of one unit of width, >= 1.
        spec: the Pod's spec: node selector, affinity, tolerations.
        queue: LocalQueue that the Pod is submitted to; "": it does not say.
    """

    resource: str
    gpus: int
    pods_per_width: int = 1
    spec: Mapping[str, Any] = field(default_factory=dict)
    queue: str = ""


def shape(
    pod: Mapping[str, Any], gpus: int, resource: str | None = None, pods_per_width: int = 1
) -> Shape:
    """The shape of a Pod, or of a Pod template.

    Args:
        pod: the object or the template.
        gpus: GPUs of one Pod, >= 1.
        resource: the accelerator's name; None: the one extended resource of which the Pod
            requests just that many.
        pods_per_width: Pods of one unit of width, >= 1.

    Raises:
        Unknown: no such resource, or several.
    """
    spec = mapping(pod.get("spec"))
    asked = requests(spec)
    if resource is None:
        found = sorted(name for name, count in asked.items() if "/" in name and count == gpus)
        if len(found) != 1:
            several = f" ({', '.join(found)})" if found else ""
            raise Unknown(
                f"a Pod's requests must name one accelerator of which it takes {gpus}; "
                f"got {len(found)}{several}"
            )
        resource = found[0]
    elif asked.get(resource) != gpus:
        raise Unknown(f"a Pod must request {gpus} of {resource}; got {asked.get(resource, 0)}")
    labels = mapping(mapping(pod.get("metadata")).get("labels"))
    return Shape(resource, gpus, pods_per_width, spec, str(labels.get(_QUEUE) or ""))


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Whole numbers that a Pod's spec requests, by resource; of init containers the largest.

    Extended resources are whole, and what has a fraction (CPU, memory) is left out.
    """
    total: dict[str, int] = {}
    first: dict[str, int] = {}
    for container in sequence(spec.get("containers")):
        for name, count in _asked(container).items():
            total[name] = total.get(name, 0) + count
    for container in sequence(spec.get("initContainers")):
        for name, count in _asked(container).items():
            if mapping(container).get("restartPolicy") == "Always":  # a side-car: it stays
                total[name] = total.get(name, 0) + count
            else:
                first[name] = max(first.get(name, 0), count)
    return {name: max(total.get(name, 0), first.get(name, 0)) for name in total | first}


def whole(value: object) -> int | None:
    """A quantity that is a whole number; None: it is none."""
    if type(value) is int:
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else int(match[1]) * _SCALE[match[2]]


def mapping(value: object) -> Mapping[str, Any]:
    """The value, if it is an object; else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """The value, if it is a list; else an empty one."""
    return value if isinstance(value, list) else ()


def _asked(container: object) -> dict[str, int]:
    resources = mapping(mapping(container).get("resources"))
    # Where only a limit is given, it is the request as well.
    asked = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    counts = {str(name): whole(value) for name, value in asked.items()}
    return {name: count for name, count in counts.items() if count is not None}
