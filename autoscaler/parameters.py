"""Frozen parameter classes: the rules their numbers obey, and filling them from a mapping.

Every message names the key, the rule and the value received. No I/O: whoever reads the file
says in ``where`` which one it was.
"""

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from autoscaler.errors import ConfigError

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Range:
    """Where a search looks for a parameter's value: ``Annotated[float, Range(0.3, 1.0)]``.

    Narrower than what is permitted: values outside it may be used, and make no sense to try.

    Args:
        low, high: both included, in the parameter's unit.
        log: whether ratios count and not differences; ``low`` has to be above 0.
    """

    low: float
    high: float
    log: bool = False


def ranges(cls: type[Any]) -> dict[str, tuple[Range, type[Any]]]:
    """The parameters of ``cls`` that have a ``Range``, in their order, each with its number type.

    Args:
        cls: frozen dataclass of a policy's parameters.
    """
    found: dict[str, tuple[Range, type[Any]]] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        for note in notes:
            if isinstance(note, Range):
                found[name] = note, kind
    return found


def require_number(
    key: str, value: object, low: float, high: float = math.inf, *, above: bool = False
) -> None:
    """Refuse all but a finite number with ``low`` <= value <= ``high``; None passes.

    Args:
        key: name of the parameter, for the message.
        value: what was given; None means "not set" and passes (the type says where it may be).
        low: inclusive lower limit.
        high: inclusive upper limit.
        above: the value has to be greater than ``low``.

    Raises:
        ConfigError: the rule is broken.
    """
    if value is None:
        return
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
        and not (above and value == low)
    ):
        return
    rule = f"> {low:g}" if above else f">= {low:g}"
    if high < math.inf:
        rule += f" and <= {high:g}"
    raise ConfigError(f"{key}: must be a finite number {rule}; got {value!r}")


def require_whole(key: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse all but a whole number with ``low`` <= value <= ``high``; None passes.

    Raises:
        ConfigError: the rule is broken.
    """
    if value is None:
        return
    if type(value) is int and value >= low and (high is None or value <= high):
        return  # exact type: True is no number
    rule = f">= {low}" if high is None else f">= {low} and <= {high}"
    raise ConfigError(f"{key}: must be a whole number {rule}; got {value!r}")


def from_mapping(cls: type[P], given: Mapping[str, Any], where: str) -> P:
    """Build the dataclass ``cls`` from a mapping such as a YAML file holds.

    Args:
        cls: frozen dataclass whose fields are bool, int, float, str, None, or tuples or mappings
            of these.
        given: keys and values; an integer may stand for a float, a list for a tuple.
        where: what to name in messages, e.g. the file.

    Raises:
        ConfigError: unknown or missing key, wrong type, or a rule of ``cls`` is broken.
    """
    hints = get_type_hints(cls)
    known: dict[str, Field[Any]] = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]  # P is a dataclass
    for key in given:
        if key not in known:
            allowed = ", ".join(known) or "(none)"
            raise ConfigError(f"{where}: {key}: unknown key; must be one of {allowed}")
    for name, field in known.items():
        required = field.default is MISSING and field.default_factory is MISSING
        if required and name not in given:
            raise ConfigError(f"{where}: {name}: must be given; got nothing")
    values = {k: _fit(f"{where}: {k}", hints[k], v) for k, v in given.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _fit(key: str, hint: Any, value: Any) -> Any:
    """The value as the type wants it, or a ConfigError that names the type."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if option is type(None):
            if value is None:
                return None
        elif get_origin(option) is Mapping:
            if isinstance(value, Mapping):
                of = get_args(option)
                return {
                    _fit(key, of[0], k): _fit(f"{key}: {k}", of[1], v) for k, v in value.items()
                }
        elif get_origin(option) is tuple:
            if isinstance(value, list | tuple):
                return tuple(_fit(key, get_args(option)[0], item) for item in value)
        elif option is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        elif type(value) is option:  # exact: True is no integer
            return value
    rule = " or ".join(
        "none" if o is type(None) else getattr(o, "__name__", str(o)) for o in options
    )
    raise ConfigError(f"{key}: must be {rule}; got {value!r}")
