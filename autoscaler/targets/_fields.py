"""Reads fields of foreign documents: a missing one is an error that names it, never a guess.

A benchmark once polled a field that no release ever had and waited for ever: what is not there is
``field_missing``, at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from autoscaler.errors import TargetError

T = TypeVar("T")


def mapping(where: str, found: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """The object at ``path``; raises TargetError where it is missing or something else."""
    return _typed(where, found, path, dict)


def sequence(where: str, found: Mapping[str, Any], *path: str) -> list[Any]:
    """The list at ``path``; raises TargetError where it is missing or something else."""
    return _typed(where, found, path, list)


def whole(where: str, found: Mapping[str, Any], *path: str) -> int:
    """The whole number at ``path``; raises TargetError where it is missing or something else."""
    return _typed(where, found, path, int)


def text(where: str, found: Mapping[str, Any], *path: str) -> str:
    """The text at ``path``; raises TargetError where it is missing or something else."""
    return _typed(where, found, path, str)


def flag(where: str, found: Mapping[str, Any], *path: str) -> bool:
    """The bool at ``path``; raises TargetError where it is missing or something else."""
    return _typed(where, found, path, bool)


def count(where: str, found: Mapping[str, Any], *path: str) -> int:
    """The whole number at ``path``, 0 where it is missing.

    For the counters in the status of built-in objects, which Kubernetes leaves out when 0.
    """
    return 0 if lookup(found, *path) is None else _typed(where, found, path, int)


def lookup(found: Any, *path: str) -> Any:
    """What is at ``path``; None: nothing is."""
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def condition(where: str, found: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """The entry of ``status.conditions`` with this type; None: there is none."""
    conditions = lookup(found, "status", "conditions")
    if conditions is None:
        return None
    for entry in _typed(where, found, ("status", "conditions"), list):
        if isinstance(entry, dict) and entry.get("type") == kind:
            return entry
    return None


def holds(where: str, found: Mapping[str, Any], kinds: Sequence[str]) -> bool:
    """Whether each of these conditions is there and ``True``."""
    entries = [condition(where, found, kind) for kind in kinds]
    return all(entry is not None and entry.get("status") == "True" for entry in entries)


def _typed(where: str, found: Mapping[str, Any], path: Sequence[str], kind: type[T]) -> T:
    at: Any = found
    for key in path:
        if not isinstance(at, Mapping) or at.get(key) is None:
            raise TargetError(f"field_missing: {where}: {'.'.join(path)}: must be there")
        at = at[key]
    if type(at) is not kind:  # exact: True is no number
        rule = f"must be of type {kind.__name__}; got {at!r:.80}"
        raise TargetError(f"{where}: {'.'.join(path)}: {rule}")
    value: T = at
    return value
