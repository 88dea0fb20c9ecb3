"""The log of a run, for people and their log search: few lines, one JSON object each.

One canonical line whenever a decision, its outcome or the resize changes, and one a minute while
nothing does. Errors are part of that line, not lines of their own, so that an outage is no storm.
"""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from autoscaler.model import (
    Capabilities,
    Decision,
    Metrics,
    Observation,
    SetOutcome,
    SignalStatus,
)
from autoscaler.redaction import Redaction, plain

_REPEAT_S = 60.0
_QUOTED = {*" \t=\r\n\"'"}  # structlog quotes, and so escapes, only what has one of these
_SHOWN = ("ttft_p95_s", "slo_attainment_ratio", "queue_depth", "arrival_rps")
_UNREAD = frozenset(SignalStatus) - {
    SignalStatus.OK,
    SignalStatus.NO_OBSERVATIONS,  # perhaps nobody asked for anything
    SignalStatus.FEW_SAMPLES,
    SignalStatus.TOP_BUCKET,
}

Logger = structlog.typing.FilteringBoundLogger


def configure(
    form: str, level: str, redaction: Callable[[], Redaction], stream: TextIO | None = None
) -> Logger:
    """The run's logger; libraries' warnings go the same way.

    Args:
        form: json | text.
        level: debug | info | warning | error.
        redaction: the secrets to keep out, asked for with each line: a reload may bring new ones.
        stream: where lines go; None: standard output.
    """
    out: Any = _Patient(sys.stdout if stream is None else stream)

    def redact(_logger: Any, _method: str, event: Any) -> Any:
        return redaction().value(event)

    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer: Any = structlog.processors.JSONRenderer(serializer=_json)
    if form == "text":
        shared.append(_in_lines)
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty())
    _adopt_libraries(out, shared, renderer)
    minimum = logging.getLevelNamesMapping()[level.upper()]
    logger: Logger = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(minimum),
        cache_logger_on_first_use=True,
    )
    return logger


def _in_lines(_logger: Any, _method: str, event: Any) -> Any:
    """No words of others command a terminal; those with blanks are shown as Python has them."""
    return {
        key: plain(value, keep="") if isinstance(value, str) and not _QUOTED & {*value} else value
        for key, value in event.items()
    }


class _Patient:
    """A stream whose full disk or closed pipe costs lines, and never the loop."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _adopt_libraries(out: Any, shared: list[Any], renderer: Any) -> None:
    """Warnings of libraries as lines of the same form; their chatter stays out."""
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, renderer],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


class Journal:
    """Writes the canonical lines of one target; a ``DecisionLog``.

    Args:
        logger: bound to the target.
        errors: the loop's errors so far, by (port, class).
    """

    def __init__(self, logger: Logger, errors: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._logger = logger
        self._errors = errors
        self._said: tuple[Any, ...] | None = None
        self._said_at_s = 0.0
        self._unseen = False  # whether it is unknown if there are GPUs to grow into

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],  # noqa: ARG002  # the port's signature
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """Write a line if there is something to say."""
        if obs is not None:
            self._note_capacity(obs.capabilities)
        resize = None if obs is None else obs.resize
        desired = None if obs is None else obs.width.desired
        effective = None if obs is None else obs.width.effective
        result = None if outcome is None else outcome.result.value
        trouble = "" if obs is None else _trouble(obs.metrics)
        unread = bool(trouble)
        said = (decision.code, decision.width, result, desired, effective, resize, unread)
        if said == self._said and decision.at_s - self._said_at_s < _REPEAT_S:
            return
        line: dict[str, Any] = {
            "tick": decision.tick,
            "code": decision.code,
            "reason": decision.reason,
            "width": decision.width,
            "desired": desired,
            "effective": effective,
        }
        if outcome is not None:
            line["outcome"] = result
            if outcome.detail:
                line["detail"] = outcome.detail
        if resize is not None:
            line["resize"] = f"{resize.from_width} -> {resize.to_width}"
        if obs is not None:
            signals = {name: getattr(obs.metrics, name) for name in _SHOWN}
            line |= {
                name: s.status.value if s.value is None else round(s.value, 4)
                for name, s in signals.items()
            }
        if trouble:
            line["unread"] = trouble
        if shadows:
            line["shadows"] = {name: other.width for name, other in shadows.items()}
        errors = {f"{port}.{kind}": count for (port, kind), count in self._errors().items()}
        if errors:
            line["errors"] = errors
        changed = said != self._said
        self._said, self._said_at_s = said, decision.at_s
        self._logger.info("decision" if changed else "unchanged", **line)

    def _note_capacity(self, can: Capabilities) -> None:
        """Say once that, and why, it is not known whether there are GPUs to grow into."""
        unseen = can.free_gpus is None and can.capacity.startswith("unknown")
        if unseen and not self._unseen:
            self._logger.warning("capacity_unknown", problem=can.capacity)
        self._unseen = unseen


def _trouble(metrics: Metrics) -> str:
    """Why a signal that decisions need cannot be read; "": all can, or there is nothing to read.

    The status alone would leave it open whether Prometheus is away, refuses, or asks to wait.
    """
    for signal in (metrics.queue_depth, metrics.ttft_p95_s):
        if signal.status in _UNREAD and signal.detail:
            return f"{signal.status}: {signal.detail}"
    running = metrics.running.value or 0
    if running and metrics.ttft_p95_s.status is SignalStatus.NO_OBSERVATIONS:
        return f"no_observations: {running:g} requests run, none has had a first token of late"
    return ""


def _json(value: Any, **_options: Any) -> str:
    """Valid JSON always: what JSON cannot hold becomes text."""
    try:
        return json.dumps(value, allow_nan=False, default=str, ensure_ascii=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=str, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
