"""Names of the custom resource, and one object of it as the API server has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GROUP, VERSION = "autoscaling.elastic-width.io", "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL, SINGULAR, KIND, SHORT_NAME = "widthautoscalers", "widthautoscaler", "WidthAutoscaler", "wa"


@dataclass(frozen=True, slots=True)
class WidthAutoscaler:
    """One object.

    Args:
        namespace, name: where it is.
        uid: tells it from an earlier one of the same name.
        generation: of the spec; changes with it.
        version: ``resourceVersion``, to write its status on condition that nothing has changed.
        created: time stamp of its creation as the server wrote it, for an order among objects.
        spec: one entry of ``targets``, unchecked.
        status: as it was read; empty: none yet.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    created: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @property
    def key(self) -> str:
        """``namespace/name``: the name of its target in logs and labels."""
        return f"{self.namespace}/{self.name}"

    def means_the_same_as(self, other: "WidthAutoscaler | None") -> bool:
        """Whether it is the same object with the same spec."""
        return other is not None and (self.uid, self.generation) == (other.uid, other.generation)


def parse(found: Mapping[str, Any]) -> WidthAutoscaler | None:
    """An object of a list or an event; None: it is being deleted, or it is none of ours."""
    metadata = found.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("deletionTimestamp"):
        return None
    names = [metadata.get(key) for key in ("namespace", "name", "uid", "resourceVersion")]
    namespace, name, uid, version = (text if isinstance(text, str) else "" for text in names)
    generation = metadata.get("generation")
    if not (namespace and name and uid and version) or type(generation) is not int:
        return None
    created = str(metadata.get("creationTimestamp") or "")
    spec, status = _mapping(found.get("spec")), _mapping(found.get("status"))
    return WidthAutoscaler(namespace, name, uid, generation, version, created, spec, status)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
