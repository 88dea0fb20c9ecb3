"""The elastic role of a GPUStack ModelDeployment. No I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.errors import TargetError
from autoscaler.targets import _fields


@dataclass(frozen=True, slots=True)
class Role:
    """One reading of it.

    Args:
        index: in ``spec.roles``.
        name: of the role.
        width: in the spec.
        arguments: of the engine, as given; not all of them need to be texts.
    """

    index: int
    name: str
    width: int
    arguments: tuple[object, ...]

    @property
    def managed(self) -> tuple[str, ...]:
        """Path of the width in ``managedFields``."""
        entry = "k:" + json.dumps({"name": self.name}, separators=(",", ":"))
        return ("f:spec", "f:roles", entry, "f:elasticEp", "f:width")


def elastic_role(where: str, deployment: Mapping[str, Any], wanted: str | None) -> Role:
    """The one role with a width.

    Args:
        where: the deployment, for messages.
        deployment: the object.
        wanted: the role's name; None: whatever its name is.

    Raises:
        TargetError: none or several (``field_missing``), or of another shape.
    """
    found = []
    for index, role in enumerate(_fields.sequence(where, deployment, "spec", "roles")):
        if not isinstance(role, dict) or role.get("elasticEp") is None:
            continue
        name = _fields.text(where, role, "name")
        if wanted in (None, name):
            width = _fields.whole(f"{where}: role {name}", role, "elasticEp", "width")
            given = role.get("extraArgs") is not None
            arguments = _fields.sequence(where, role, "extraArgs") if given else []
            found.append(Role(index, name, width, tuple(arguments)))
    if len(found) != 1:
        named = "" if wanted is None else f" named {wanted!r}"
        raise TargetError(
            f"field_missing: {where}: spec.roles[].elasticEp.width: "
            f"must be there in exactly one role{named}; got {len(found)}"
        )
    return found[0]
