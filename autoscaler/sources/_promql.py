"""PromQL out of trusted parts, and the shape of what Prometheus answers.

Queries are put together from names of series, which are ours, and labels, whose values are quoted.
Answers are checked to the last element: what does not have the documented shape is no answer.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from autoscaler.errors import ConfigError, ObservationError
from autoscaler.model import Signal, SignalStatus

MAX_QUERY_CHARS = 6000
"""Longest query, as it travels in the address: gateways refuse addresses of 8 kB."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range: its labels, and (time, value) ascending; time by Prometheus' clock."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


def selector(names: Iterable[str], labels: Mapping[str, str]) -> str:
    """Selects the series with one of these names and all of these labels."""
    matchers = [f'__name__=~"{"|".join(sorted(names))}"']
    matchers += [f"{label}={quoted(value)}" for label, value in labels.items()]
    return "{" + ",".join(matchers) + "}"


def quoted(value: str) -> str:
    """A text as PromQL writes it; JSON's escapes are among those of Go."""
    return json.dumps(value, ensure_ascii=False)


def require_labels(key: str, labels: Mapping[str, str]) -> None:
    """Refuse what is no label.

    Raises:
        ConfigError: a name breaks Prometheus' pattern, or a value is no Unicode text.
    """
    for label, value in labels.items():
        if not _LABEL.fullmatch(label) or label == "__name__":
            rule = "must match [a-zA-Z_][a-zA-Z0-9_]* and not be __name__"
            raise ConfigError(f"{key}: {rule}; got {label!r}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{key}: {label}: must be Unicode text; got {value!r}") from error


def require_short(key: str, query: str) -> None:
    """Refuse a query that no gateway would let pass.

    Raises:
        ConfigError: longer than MAX_QUERY_CHARS in an address.
    """
    length = len(quote_plus(query))
    if length > MAX_QUERY_CHARS:
        rule = f"must make a query of at most {MAX_QUERY_CHARS} characters in an address"
        raise ConfigError(f"{key}: {rule}; got {length}")


def envelope(body: bytes, clean: Callable[[str], str] = str) -> tuple[str, Any, list[str]]:
    """Type and result of a successful answer, and its warnings.

    Args:
        body: of the answer.
        clean: takes secrets out of what the server says, before it is cut.

    Raises:
        ObservationError: no JSON, not the documented shape, or ``status: error``.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ObservationError("must be an answer of Prometheus; it is no JSON") from error
    if not isinstance(content, dict):
        raise ObservationError("must be an answer of Prometheus; it is no JSON object")
    if content.get("status") != "success":
        raise ObservationError(f"Prometheus reports an error; {_error(content, clean)}")
    data = content.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise ObservationError("must be an answer of Prometheus; it has no data.result")
    warnings = content.get("warnings") or []
    if not isinstance(warnings, list):
        warnings = [warnings]
    return str(data.get("resultType")), data["result"], [clean(str(w))[:200] for w in warnings[:5]]


def refusal(body: bytes, clean: Callable[[str], str] = str) -> str:
    """What Prometheus says of a query that it refused (400, 422); "" if it says nothing.

    ``clean`` as in ``envelope``.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    known = isinstance(content, dict) and "errorType" in content
    return _error(content, clean) if known else ""


def matrix(kind: str, result: Any, max_series: int) -> list[Series]:
    """The series of a range.

    Raises:
        ObservationError: another type, another shape, or too many series.
    """
    if kind != "matrix":
        raise ObservationError(f"must be a matrix; got {kind[:40]!r}")
    if len(result) > max_series:
        raise ObservationError(f"must be at most {max_series} series; got {len(result)}")
    found = []
    for element in result:
        if not isinstance(element, dict) or not isinstance(element.get("metric"), dict):
            raise ObservationError("must be a matrix; an element has no metric")
        labels, values = element["metric"], element.get("values", [])
        if not isinstance(values, list) or not all(isinstance(v, str) for v in labels.values()):
            raise ObservationError("must be a matrix; an element has no values")
        found.append(Series(labels, [_point(value) for value in values]))
    return found


def single(kind: str, result: Any) -> tuple[float, Signal]:
    """Evaluation time and value of what has to be exactly one number: a scalar or one element.

    Returns:
        The time by Prometheus' clock (NaN with no element) and the signal: OK, NO_SERIES,
        AMBIGUOUS or NON_FINITE.

    Raises:
        ObservationError: another type, or another shape.
    """
    if kind == "scalar":
        at_s, value = _point(result)
    elif kind == "vector":
        if not result:
            return math.nan, Signal(None, SignalStatus.NO_SERIES, detail="selects nothing")
        if len(result) > 1:
            detail = f"{len(result)} elements where one is meant"
            return math.nan, Signal(None, SignalStatus.AMBIGUOUS, detail=detail)
        if not isinstance(result[0], dict):
            raise ObservationError("must be a vector; its element is no object")
        at_s, value = _point(result[0].get("value"))
    else:
        raise ObservationError(f"must be a vector or a scalar; got {kind[:40]!r}")
    if not math.isfinite(value):
        return at_s, Signal(None, SignalStatus.NON_FINITE, detail=f"is {value:g}")
    return at_s, Signal(value)


def label_values(kind: str, result: Any, label: str) -> list[str]:
    """The values of one label over the elements of a vector; elements without it are left out.

    Raises:
        ObservationError: another type.
    """
    if kind != "vector":
        raise ObservationError(f"must be a vector; got {kind[:40]!r}")
    metrics = [element.get("metric") for element in result if isinstance(element, dict)]
    return [str(m[label]) for m in metrics if isinstance(m, dict) and label in m]


def _point(value: Any) -> tuple[float, float]:
    """Time and value; Prometheus writes values as texts, NaN and +Inf among them."""
    if not isinstance(value, list) or len(value) != 2:
        raise ObservationError("must be a pair of time and value; it is not")
    at, number = value
    if isinstance(at, bool) or not isinstance(number, str):
        raise ObservationError("must be a pair of time and value; the value is no text")
    try:
        at_s, parsed = float(at), float(number)
    except (ValueError, TypeError, OverflowError) as error:
        raise ObservationError("must be a pair of time and value; one is no number") from error
    if not math.isfinite(at_s):
        raise ObservationError("must be a pair of time and value; the time is not finite")
    return at_s, parsed


def _error(content: Mapping[str, Any], clean: Callable[[str], str]) -> str:
    kind, said = clean(str(content.get("errorType"))), clean(str(content.get("error")))
    return f"{kind[:40]}: {said[:200]}"
