"""Who set a field last, by the ``managedFields`` of an object. No I/O, for people only.

Two writers of one width show up as a width that moves by itself; this names the other one.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def owner(obj: Mapping[str, Any], field: Sequence[str]) -> str:
    """The manager that set a field last.

    Args:
        obj: as the API server answered it.
        field: path in ``fieldsV1``: ``f:spec``, ``f:roles``, ``k:{"name":"server"}``, ...

    Returns:
        Its name; "" where the object does not say.
    """
    metadata = obj.get("metadata")
    entries = metadata.get("managedFields") if isinstance(metadata, Mapping) else None
    newest = ("", "")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and _owns(entry.get("fieldsV1"), field):
            newest = max(newest, (str(entry.get("time") or ""), str(entry.get("manager") or "")))
    return newest[1]


def _owns(fields: Any, field: Sequence[str]) -> bool:
    at = fields
    for key in field:
        if not isinstance(at, Mapping):
            return False
        if not at and at is not fields:
            return True  # an atomic list or map is owned as a whole
        if key not in at:
            return False
        at = at[key]
    return True
