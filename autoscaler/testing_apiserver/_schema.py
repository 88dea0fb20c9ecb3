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


def _check(schema: Json, value: Any, at: str) -> Iterator[Cause]:
    kind = schema.get("type")
    wrong = kind in _TYPES and (
        not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    )
    if wrong:
        got = json.dumps(_NAMES.get(type(value), "null"))
        text = f"Invalid value: {got}: {at} in body must be of type {kind}: {got}"
        yield Cause("FieldValueTypeInvalid", text, at)
        return
    for word, key, low in (("less", "maximum", False), ("greater", "minimum", True)):
        limit = schema.get(key)
        if limit is not None and (value < limit if low else value > limit):
            text = f"{at} in body should be {word} than or equal to {limit}"
            yield Cause("FieldValueInvalid", f"Invalid value: {value}: {text}", at)
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield Cause("FieldValueRequired", "Required value", _join(at, key))
        for key, below in schema.get("properties", {}).items():
            if key in value:
                yield from _check(below, value[key], _join(at, key))
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            text = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
            yield Cause("FieldValueTooMany", text, at)
        for index, entry in enumerate(value):
            yield from _check(schema.get("items", {}), entry, f"{at}[{index}]")


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
