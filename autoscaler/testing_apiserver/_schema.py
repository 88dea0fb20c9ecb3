"""Validation as far as widths need it: types, bounds, required fields, and ``self >= oldSelf``."""

import json
from collections.abc import Iterator
from typing import Any

from autoscaler.testing_apiserver._status import Cause, Json

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_KEEPS = "x-kubernetes-preserve-unknown-fields"
_ROOT: Json = {key: {_KEEPS: True} for key in ("apiVersion", "kind", "metadata")}
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}


def violations(schema: Json, new: Any, old: Any) -> list[Cause]:
    """What is wrong with the object ``new``; ``old`` None: it is being created."""
    found = list(_check(schema, new, ""))
    if not found:
        return list(_transitions(schema, new, old, ""))
    if any(True for _ in _rules(schema)):
        text = (
            "Invalid value: null: some validation rules were not checked because the object was "
            "invalid; correct the existing errors to complete validation"
        )
        if any(cause.reason == "FieldValueTypeInvalid" for cause in found):
            found.append(Cause("FieldValueInvalid", text, "<nil>"))
    return found


def pruned(schema: Json, value: Any) -> Any:
    """The value without what its structural schema does not know; the root's own fields stay."""
    return _pruned({**schema, "properties": {**schema.get("properties", {}), **_ROOT}}, value)


def unknown(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """The paths of what pruning has taken away."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield _join(at, key)
            else:
                yield from unknown(value, after[key], _join(at, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from unknown(one, other, f"{at}[{index}]")


def _pruned(schema: Json, value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(schema.get("items", {}), entry) for entry in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    others = schema.get("additionalProperties")
    keeps = bool(schema.get(_KEEPS)) or others is True
    made = {}
    for key, entry in value.items():
        if key in known:
            made[key] = _pruned(known[key], entry)
        elif isinstance(others, dict):
            made[key] = _pruned(others, entry)
        elif keeps:
            made[key] = entry
    return made


def _check(schema: Json, value: Any, at: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if value is None and schema.get("nullable"):
        return
    wrong = kind in _TYPES and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    )
    if wrong:
        got = json.dumps(_NAMES.get(type(value), "null"))
        text = f"Invalid value: {got}: {at} in body must be of type {kind}: {got}"
        yield Cause("FieldValueTypeInvalid", text, at)
        return
    yield from _check_bounds(schema, value, at)
    if value not in schema.get("enum", (value,)):
        supported = ", ".join(json.dumps(one) for one in schema["enum"])
        text = f"Unsupported value: {json.dumps(value)}: supported values: {supported}"
        yield Cause("FieldValueNotSupported", text, at)
    if isinstance(value, str):
        yield from _check_length(schema, value, at)
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield Cause("FieldValueRequired", "Required value", _join(at, key))
        known = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for key, entry in value.items():
            below = known.get(key, others if isinstance(others, dict) else {})
            yield from _check(below, entry, _join(at, key))
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            text = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
            yield Cause("FieldValueTooMany", text, at)
        for index, entry in enumerate(value):
            yield from _check(schema.get("items", {}), entry, f"{at}[{index}]")


def _check_bounds(schema: Json, value: Any, at: str) -> Iterator[Cause]:
    for word, key, low in (("less", "maximum", False), ("greater", "minimum", True)):
        limit = schema.get(key)
        if limit is None or not isinstance(value, int | float):
            continue
        open_end = bool(schema.get(f"exclusive{key.capitalize()}"))
        beyond = value < limit if low else value > limit
        if beyond or (open_end and value == limit):
            equal = "" if open_end else " or equal to"
            text = f"{at} in body should be {word} than{equal} {limit}"
            yield Cause("FieldValueInvalid", f"Invalid value: {value}: {text}", at)


def _check_length(schema: Json, value: str, at: str) -> Iterator[Cause]:
    if len(value) < schema.get("minLength", 0):
        text = f"{at} in body should be at least {schema['minLength']} chars long"
        yield Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {text}", at)
    if len(value) > schema.get("maxLength", len(value)):
        text = f"Too long: may not be more than {schema['maxLength']} bytes"
        yield Cause("FieldValueTooLong", text, at)


def _transitions(schema: Json, new: Any, old: Any, at: str) -> Iterator[Cause]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if rule["rule"] != "self >= oldSelf":
            raise NotImplementedError(f"validation rule {rule['rule']!r}")
        if old is not None and new < old:
            yield Cause("FieldValueInvalid", f"Invalid value: {new}: {rule['message']}", at)
    if isinstance(new, dict):
        for key, below in schema.get("properties", {}).items():
            if key in new:
                before = old.get(key) if isinstance(old, dict) else None
                yield from _transitions(below, new[key], before, _join(at, key))
    elif isinstance(new, list):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        for index, entry in enumerate(new):
            before = _same(entry, old, keys)
            yield from _transitions(schema.get("items", {}), entry, before, f"{at}[{index}]")


def _same(entry: Any, old: Any, keys: list[str]) -> Any:
    """The old entry of a list map with the same keys."""
    for before in old if isinstance(old, list) and keys else ():
        if all(entry.get(key) == before.get(key) for key in keys):
            return before
    return None


def _rules(schema: Json) -> Iterator[Json]:
    yield from schema.get("x-kubernetes-validations", ())
    for below in (*schema.get("properties", {}).values(), schema.get("items", {})):
        if below:
            yield from _rules(below)


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
