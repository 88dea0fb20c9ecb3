"""Annotations on the object that is steered: the memory that goes with its width, and a switch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.errors import TargetError
from autoscaler.targets import _fields

MEMORY = "autoscaling.elastic-width.io/memory"
PAUSE = "autoscaling.elastic-width.io/pause"


@dataclass(frozen=True, slots=True)
class Annotations:
    """What one reading found.

    Args:
        memory: text of the memory; None: there is none.
        pause: value of the pause switch, as it is; None: there is none.
        version: of the object (``metadata.resourceVersion``); "" where it has none.
        any: whether the object has a map of annotations at all.
    """

    memory: str | None = None
    pause: str | None = None
    version: str = ""
    any: bool = False


def annotations(where: str, obj: Mapping[str, Any]) -> Annotations:
    """The annotations of an object.

    Raises:
        TargetError: they are no texts by name.
    """
    found = _fields.lookup(obj, "metadata", "annotations")
    version = _fields.lookup(obj, "metadata", "resourceVersion")
    version = version if isinstance(version, str) else ""
    if found is None:
        return Annotations(version=version)
    if not isinstance(found, Mapping):
        raise TargetError(f"{where}: metadata.annotations: must be a map; got {found!r:.80}")
    memory, pause = found.get(MEMORY), found.get(PAUSE)
    return Annotations(
        None if memory is None else str(memory),
        None if pause is None else str(pause),
        version,
        True,
    )


def merge(note: str) -> dict[str, Any]:
    """The part of a merge patch that keeps a memory."""
    return {"annotations": {MEMORY: note}}


def json_patch(note: str, read: Annotations) -> list[dict[str, Any]]:
    """The operations of a JSON Patch that keep a memory.

    ``add`` needs a map to add to. Where there is none it has to be made, and whatever somebody else
    has put there since the reading would be lost: hence only in the version that was read.
    """
    if read.any:
        at = "/metadata/annotations/" + MEMORY.replace("~", "~0").replace("/", "~1")
        return [{"op": "add", "path": at, "value": note}]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": read.version},
        {"op": "add", "path": "/metadata/annotations", "value": {MEMORY: note}},
    ]
