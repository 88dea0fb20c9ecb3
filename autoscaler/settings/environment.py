"""Environment variables over a configuration file: names to key paths, texts to values.

``AUTOSCALER_TICK_S`` is the key ``tick_s``; ``__`` goes one level down, a number picks one of a
list: ``AUTOSCALER_TARGETS__0__SLO__TTFT_P95_S``. A name with the prefix that is no key is an
error, for a typo in a limit would silently mean the default.
"""

import re
import types
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

PREFIX = "AUTOSCALER_"

# What Kubernetes puts into every container of a namespace that has a Service called autoscaler or
# autoscaler-anything: links to it, no settings.
_SERVICE_LINK = re.compile(
    r"(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

Origins = Mapping[tuple[str | int, ...], str]
"""Key path: name of the variable that it came from."""


class EnvironmentText(str):
    """A value from the environment under a key whose type is not known yet."""

    __slots__ = ()

    def typed(self, hint: Any) -> Any:
        """The value as the type wants it: itself for a text, else what YAML reads in it."""
        union = get_origin(hint) in (Union, types.UnionType)
        options = get_args(hint) if union else (hint,)
        if str in options and not {int, float, bool} & set(options):
            return str(self)
        return parse(self)


def parse(text: str) -> Any:
    """A number, a truth value, none, a list or a mapping, as YAML has it; else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def overlay(
    model: type[BaseModel], content: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], Origins, list[str]]:
    """The content with everything in it that the environment says otherwise.

    Args:
        model: the keys that there are.
        content: of the file; stays as it is.
        environ: the environment.

    Returns:
        The merged content, which keys came from which variable, and one problem for each variable
        whose name is no key.
    """
    merged: dict[str, Any] = deepcopy(dict(content))
    origins: dict[tuple[str | int, ...], str] = {}
    problems = []
    for name in sorted(environ):
        rest = name.upper().removeprefix(PREFIX)
        if rest == name.upper() or _is_service_link(rest, environ[name]):
            continue
        keys = rest.lower().split("__")
        try:
            path = _put(merged, model, keys, environ[name])
        except LookupError as error:
            problems.append(f"environment: {name}: {error.args[0]}")
        else:
            origins[path] = name
    return merged, origins, problems


def _is_service_link(rest: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(rest):
        return True
    return rest.rpartition("_")[2] == "PORT" and bool(_SERVICE_ADDRESS.match(value))


def _put(content: dict[str, Any], model: Any, keys: list[str], text: str) -> tuple[str | int, ...]:
    """Enter one value; returns its key path.

    Raises:
        LookupError: no such key; says which there are.
    """
    path: list[str | int] = []
    place: Any = content
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        step: str | int = key
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = model.model_fields
            if key not in fields:
                raise LookupError(_unknown(keys[:depth], list(fields)))
            model = fields[key].annotation
        elif get_origin(model) is list:
            if not key.isdecimal() or int(key) > len(place):
                raise LookupError(_unknown(keys[:depth], [str(i) for i in range(len(place) + 1)]))
            step, model = int(key), get_args(model)[0]
        elif get_origin(model) is not dict and model is not Any:
            raise LookupError(f"must be {_variable(keys[:depth])}; it has no keys of its own")
        else:
            model = Any
        path.append(step)
        if last:
            value = EnvironmentText(text) if model is Any else EnvironmentText(text).typed(model)
            _set(place, step, value)
        else:
            place = _below(place, step, model)
    return tuple(path)


def _below(place: Any, step: str | int, model: Any) -> Any:
    """The mapping or list at ``step``, made where there is none."""
    empty: Any = [] if get_origin(model) is list else {}
    held = place[step] if isinstance(step, int) and step < len(place) else None
    if isinstance(step, str):
        held = place.get(step)
    if not isinstance(held, type(empty)):
        held = empty
        _set(place, step, held)
    return held


def _set(place: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int) and step == len(place):
        place.append(value)
    else:
        place[step] = value


def _unknown(above: list[str], known: list[str]) -> str:
    return "unknown name; must be one of " + ", ".join(_variable([*above, key]) for key in known)


def _variable(keys: list[str]) -> str:
    return PREFIX + "__".join(keys).upper()
