"""What pydantic finds wrong with a part of the configuration, in the words of all our messages."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from autoscaler.redaction import MASK, is_secret, masked
from autoscaler.settings.where import KeyPath, Where


def problems_of(
    error: ValidationError, model: type[BaseModel], where: Where, at: KeyPath = ()
) -> list[str]:
    """One line a problem: where, the rule, and the value received, secrets masked.

    Args:
        error: what validating ``model`` raised.
        model: the part of the configuration.
        where: names key paths.
        at: the part's own key path.
    """
    return [_problem(one, model, where, at) for one in error.errors(include_url=False)]


def _problem(found: Mapping[str, Any], model: type[BaseModel], where: Where, at: KeyPath) -> str:
    path: tuple[str | int, ...] = found["loc"]
    value, kind, here = found["input"], found["type"], where((*at, *path))
    if kind == "missing":
        return f"{here}: must be given; got nothing"
    if kind == "extra_forbidden":
        return f"{here}: unknown key; must be one of {', '.join(_keys(model, path[:-1]))}"
    rule = found["msg"].replace("Input should be", "must be").replace("String should", "must")
    if any(is_secret(str(step)) for step in path):
        value = MASK
    shown = repr(masked(value))
    return f"{here}: {rule}; got {shown if len(shown) <= 120 else shown[:117] + '...'}"


def _keys(model: Any, path: KeyPath) -> list[str]:
    """The keys that are allowed at a place below the model."""
    for step in path:
        # The entries of a list have one model, whichever of them it is.
        model = get_args(model)[0] if isinstance(step, int) else model.model_fields[step].annotation
    return list(model.model_fields)
