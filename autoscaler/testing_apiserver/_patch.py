"""The three patches: JSON, merge, and server-side apply with its field owners."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import jsonpatch
import jsonpointer
import yaml

from autoscaler.testing_apiserver._status import ApiError, Json, unpatchable

Owners = dict[tuple[str, ...], str]
"""who set each field last, by its path; entries of lists of named objects by ``name``"""


def decoded(content: bytes) -> Any:
    """The JSON of a body."""
    try:
        return json.loads(content)
    except ValueError as error:
        message = "error decoding patch: unexpected end of JSON input"
        raise ApiError(400, "BadRequest", message) from error


def change(content_type: str, content: bytes) -> Callable[[Json], Json]:
    """What a JSON or merge patch does to an object."""
    patch = decoded(content)
    if content_type == "application/merge-patch+json":
        if not isinstance(patch, dict):
            raise ApiError(400, "BadRequest", "error decoding patch: must be an object")
        return lambda before: merged(before, patch)

    def apply(before: Json) -> Json:
        try:
            after: Json = jsonpatch.apply_patch(before, patch)
        except (
            jsonpatch.JsonPatchTestFailed,
            jsonpatch.JsonPatchConflict,
            jsonpointer.JsonPointerException,
        ) as error:
            raise unpatchable() from error
        except jsonpatch.InvalidJsonPatch as error:
            raise ApiError(400, "BadRequest", f"error decoding patch: {error}") from error
        return after

    return apply


def merged(before: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null deletes, everything else (lists too) replaces."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


def applied(
    content: bytes, manager: str, api_version: str, owners: Owners, *, force: bool
) -> Callable[[Json], Json]:
    """What a server-side apply does to an object, if nobody else owns what it changes."""
    wanted = yaml.safe_load(content)

    def apply(before: Json) -> Json:
        has = dict(leaves(before))
        conflicts = [
            (path, owners[path])
            for path, value in leaves(wanted)
            if path in owners and owners[path] != manager and has.get(path) != value
        ]
        if conflicts and not force:
            raise _conflict(conflicts, api_version)
        after: Json = _overlaid(before, wanted)
        return after

    return apply


def leaves(found: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field below ``spec`` with its path."""
    if not at:
        found = {"spec": found.get("spec")}
    if isinstance(found, dict):
        for key, value in found.items():
            yield from leaves(value, (*at, f".{key}"))
    elif isinstance(found, list) and found and all(_name(entry) for entry in found):
        for entry in found:
            yield from leaves(entry, (*at, f'[name="{_name(entry)}"]'))
    else:
        yield at, found


def _overlaid(before: Any, wanted: Any) -> Any:
    if isinstance(before, dict) and isinstance(wanted, dict):
        return before | {key: _overlaid(before.get(key), value) for key, value in wanted.items()}
    if isinstance(before, list) and isinstance(wanted, list) and all(map(_name, before + wanted)):
        named = {_name(entry): entry for entry in before}
        return list(
            (named | {_name(e): _overlaid(named.get(_name(e)), e) for e in wanted}).values()
        )
    return wanted


def _name(entry: Any) -> str:
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


def _conflict(conflicts: list[tuple[tuple[str, ...], str]], api_version: str) -> ApiError:
    said = [
        (f'conflict with "{owner}" using {api_version}', "".join(path)) for path, owner in conflicts
    ]
    number = f"{len(said)} conflict" + ("s" if len(said) > 1 else "")
    listed = "; ".join(f"{text}: {path}" for text, path in said)
    causes = [{"reason": "FieldManagerConflict", "message": t, "field": p} for t, p in said]
    message = f"Apply failed with {number}: {listed}"
    return ApiError(409, "Conflict", message, {"causes": causes})
