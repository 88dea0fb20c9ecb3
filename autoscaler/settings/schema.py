"""JSON Schemas of the configuration, from the very classes that check it and their docstrings.

What an OpenAPI v3 structural schema may say and no more, so that a CustomResourceDefinition can
use it; a consumer without that limit can add to it. Bounds are those that the docstrings state
(``s, > 0``, ``>= 1, <= 64``): a test holds each of them against the class itself.
"""

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from autoscaler import limits, plugins
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.model import Slo
from autoscaler.pause import PAUSES

Schema = dict[str, Any]

ANYTHING = "x-kubernetes-preserve-unknown-fields"
_SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ENTRY = re.compile(r"^((?:\w+, )*\w+): (.*)$")
_BOUND = re.compile(r"(?<![\w.`])(>=|<=|>|<) (-?\d[\d_,]*(?:\.\d+)?)(?![\w`])")
_KEYWORDS = {
    ">=": ("minimum", False),
    ">": ("minimum", True),
    "<=": ("maximum", False),
    "<": ("maximum", True),
}


def of_params(cls: type[Any]) -> Schema:
    """The schema of a frozen parameter class: types, defaults in words, bounds, descriptions."""
    hints, told = get_type_hints(cls), described(cls)
    properties, required = {}, []
    for field in fields(cls):
        schema = of_type(hints[field.name])
        text = told.get(field.name, "")
        if schema.get("type") in ("integer", "number"):
            schema |= bounds(text)
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
        elif field.default not in (MISSING, None):
            text = f"{text} Default: {_shown(field.default)}.".strip()
        properties[field.name] = schema | ({"description": text} if text else {})
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
    }


def of_type(hint: Any) -> Schema:
    """The schema of one type; what a structural schema cannot tell apart is left open."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    options = [option for option in choices if option is not type(None)]
    nullable = {"nullable": True} if len(options) < len(choices) else {}
    if set(options) == {int, float}:
        options = [float]
    if len(options) > 1:
        return {ANYTHING: True}
    option = options[0]
    if option in _SCALARS:
        return {"type": _SCALARS[option], **nullable}
    arguments = get_args(option)
    if get_origin(option) is tuple:
        return {"type": "array", "items": of_type(arguments[0]), **nullable}
    if get_origin(option) is Mapping:
        return {"type": "object", "additionalProperties": of_type(arguments[1]), **nullable}
    return {"type": "object", ANYTHING: True, **nullable}


def bounds(text: str) -> Schema:
    """The limits that a description states before its first full stop, as in ``s, > 0, <= 1``."""
    found: Schema = {}
    sentence = re.split(r"\.(?:\s|$)|;", text, maxsplit=1)[0]
    for sign, number in _BOUND.findall(sentence):
        keyword, exclusive = _KEYWORDS[sign]
        value = float(number.replace(",", "").replace("_", ""))
        found[keyword] = int(value) if value.is_integer() else value
        if exclusive:
            found[f"exclusive{keyword.capitalize()}"] = True
    return found


def described(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a class, and of those it inherits from, say of each parameter."""
    told: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        told |= _arguments(inspect.cleandoc(one.__doc__ or ""))
    return told


def _arguments(docstring: str) -> dict[str, str]:
    """The ``Args`` of a docstring, one line each."""
    told: dict[str, str] = {}
    lines = iter(docstring.splitlines())
    for line in lines:
        if line.strip() == "Args:":
            break
    names: list[str] = []
    listed = ""  # a list of names that goes on in the next line
    for line in lines:
        if line and not line.startswith(" "):
            break
        text = line.strip()
        if re.match(r" {4}\w", line):
            match = _ENTRY.match(f"{listed}{text}")
            names = [] if match is None else match[1].split(", ")
            listed = f"{listed}{text} " if match is None else ""
            text = "" if match is None else match[2]
        for name in names:
            told[name] = f"{told.get(name, '')} {text}".strip()
    return {name: text.replace("``", "`") for name, text in told.items()}


def of_plugins(group: str, kinds: Iterable[str]) -> Schema:
    """One entry of a group: its ``kind``, and beside it the parameters of every kind there is.

    A structural schema cannot say which parameters go with which kind but for those that must be
    given; the settings do.
    """
    by_kind = {kind: of_params(plugins.find(group, kind).Params) for kind in kinds}
    properties: Schema = {"kind": {"type": "string", "enum": list(by_kind)}}
    properties |= merged({kind: schema["properties"] for kind, schema in by_kind.items()})
    return {"type": "object", "properties": properties, "required": ["kind"]}


def merged(by_kind: Mapping[str, Schema]) -> Schema:
    """The properties of several kinds under one roof; where they differ, what all permit."""
    found: Schema = {}
    told: dict[str, dict[str, list[str]]] = {}
    for kind, properties in by_kind.items():
        for name, schema in properties.items():
            bare = {key: value for key, value in schema.items() if key != "description"}
            found[name] = _wider(found.get(name, bare), bare)
            told.setdefault(name, {}).setdefault(schema.get("description", ""), []).append(kind)
    for name, texts in told.items():
        said = [f"{', '.join(kinds)}: {text}" if text else "" for text, kinds in texts.items()]
        text = " | ".join(filter(None, said))
        if text:
            found[name] = {**found[name], "description": text}
    return found


def entry(sources: Iterable[str], targets: Iterable[str], policies: Iterable[str]) -> Schema:
    """One entry of ``targets``, without its name, for these kinds."""
    choices = {kind: of_params(plugins.find("policies", kind).Params) for kind in policies}
    names: Schema = {"type": "string", "minLength": 1, "maxLength": 253}
    properties = {
        "source": of_plugins("sources", sources) | {"description": "Where the metrics come from."},
        "target": of_plugins("targets", targets)
        | {"description": "The deployment whose width is steered."},
        "policy": names
        | {
            "description": "What decides: a shipped policy, KIND:ARGUMENT such as static:4, or a "
            "YAML file beside the configuration."
        },
        "policy_params": {
            "type": "object",
            "description": "Parameters of the policy that are to differ from those of its name.",
            "properties": merged({kind: one["properties"] for kind, one in choices.items()}),
        },
        "shadow": {
            "type": "array",
            "maxItems": 16,
            "items": names,
            "description": "Policies that decide beside it and are never written.",
        },
        "slo": of_params(Slo) | {"description": "The objective."},
        "guards": of_params(limits.Params) | {"description": "The limits on every decision."},
        "convergence": of_params(ConvergenceParams)
        | {"description": "Limits of patience with a resize."},
        "pause": {
            "type": "string",
            "enum": list(PAUSES),
            "description": "Which writes are paused: all, or those that make it wider or narrower.",
        },
        "dry_run": {
            "type": "boolean",
            "description": "Decide, record and export; never write. Default: false.",
        },
        "profile": names
        | {"description": "Captured width curves: a shipped name, or a file like a policy's."},
    }
    return {
        "type": "object",
        "properties": properties,
        "required": ["source", "target", "policy"],
    }


def _wider(one: Schema, other: Schema) -> Schema:
    if one == other:
        return one
    if ANYTHING in one or ANYTHING in other or one.get("type") != other.get("type"):
        numbers = {one.get("type"), other.get("type")} == {"integer", "number"}
        return (
            _wider({**one, "type": "number"}, {**other, "type": "number"})
            if numbers
            else {ANYTHING: True}
        )
    if one.get("type") in ("array", "object"):
        return {ANYTHING: True}
    wide: Schema = {"type": one["type"]}
    if one.get("nullable") or other.get("nullable"):
        wide["nullable"] = True
    for keyword, outer in (("minimum", min), ("maximum", max)):
        if keyword in one and keyword in other:
            limit = wide[keyword] = outer(one[keyword], other[keyword])
            exclusive = f"exclusive{keyword.capitalize()}"
            if all(s.get(exclusive) for s in (one, other) if s[keyword] == limit):
                wide[exclusive] = True
    return wide


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
