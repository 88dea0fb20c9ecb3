"""What GPUStack's operator says of an elastic width: its documents, parsed. No I/O.

Both documents are the operator's own diagnostics, not a public status: keys that are unknown are
ignored, keys that are missing are an error which names them, and ``Known: false`` is *unread*.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.errors import TargetError
from autoscaler.model import Layer
from autoscaler.targets import _fields

LAYERS = ("desired", "admitted", "allocated", "ray", "effective")
"""outermost first, as the operator collects them"""

_OVER = ("Completed", "Released", "Withdrawn", "Abandoned")


@dataclass(frozen=True, slots=True)
class Observed:
    """The document ``observation.json``.

    Args:
        uid: deployment that it speaks of.
        generation: of the spec that it speaks of.
        layers: the five of LAYERS.
        stable: last proven width; None: none was.
        state: of the operation; "" once the final document is written.
        reason: for people.
        master: uid of the serving instance; "": unknown.
    """

    uid: str
    generation: int
    layers: tuple[Layer, ...]
    stable: int | None
    state: str
    reason: str
    master: str

    @property
    def effective(self) -> int | None:
        """The width proven in this pass; None: none was.

        A zero that claims to be known cannot have been proven by a completion on every rank; it
        is a fault of whoever counted, and never a reason to shrink.
        """
        return self.layers[-1].value or None


@dataclass(frozen=True, slots=True)
class Operation:
    """The document ``operation.json``: a resize that the operator has on record."""

    state: str
    target: int | None
    attempts: int
    last_error: str

    @property
    def running(self) -> bool:
        """Whether it is not over yet."""
        return self.state not in _OVER

    @property
    def abandoned(self) -> bool:
        """Whether the engine refused it five times."""
        return self.state == "Abandoned"

    @property
    def detail(self) -> str:
        """For people."""
        error = f": {self.last_error}" if self.last_error else ""
        tried = f", attempt {self.attempts}{error}" if self.attempts else ""
        return f"operation {self.state} to {self.target}{tried}"


def observed(where: str, config_map: Mapping[str, Any]) -> Observed:
    """Parse an observation ConfigMap.

    Raises:
        TargetError: a field is missing (``field_missing``) or of another type.
    """
    found = _document(where, config_map, "observation.json")
    layers = tuple(_layer(where, found, name) for name in LAYERS)
    stable = _fields.whole(where, found, "stableWidth")
    return Observed(
        _fields.text(where, found, "deploymentUID"),
        _fields.whole(where, found, "observedGeneration"),
        layers,
        stable if stable > 0 else None,
        str(found.get("state") or ""),
        str(found.get("reason") or ""),
        str(found.get("masterUID") or ""),
    )


def operation(where: str, config_map: Mapping[str, Any]) -> Operation:
    """Parse an operation ConfigMap; errors as in ``observed``."""
    found = _document(where, config_map, "operation.json")
    target = _fields.lookup(found, "width", "target")
    return Operation(
        _fields.text(where, found, "state"),
        target if type(target) is int else None,
        _fields.count(where, found, "scaleAttempts"),
        str(found.get("scaleLastError") or "")[:300],
    )


def _document(where: str, config_map: Mapping[str, Any], key: str) -> dict[str, Any]:
    text = _fields.mapping(where, config_map, "data").get(key)
    if not isinstance(text, str):
        raise TargetError(f"field_missing: {where}: data.{key}: must be there")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # nested beyond all reason
        raise TargetError(f"{where}: {key}: must be JSON; {error}") from error
    if not isinstance(found, dict):
        raise TargetError(f"{where}: {key}: must be an object; got {type(found).__name__}")
    return found


def _layer(where: str, found: Mapping[str, Any], name: str) -> Layer:
    known = _fields.flag(where, found, name, "Known")
    value = _fields.whole(where, found, name, "Value") if known else None
    return Layer(name, value, str(_fields.lookup(found, name, "Reason") or ""))
