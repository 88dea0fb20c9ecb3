"""The decision log: one JSON object a tick, and the observations read back from it.

Valid JSON always: what is not finite becomes null. Times are the loop's own clock, so that a
replay sees exactly what the controller saw; a wall clock, where one is wanted, is handed in.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from autoscaler.errors import TraceError
from autoscaler.memory import Memory
from autoscaler.model import (
    Capabilities,
    Decision,
    Layer,
    Metrics,
    Observation,
    Resize,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Stage,
    Tristate,
    WidthStatus,
)

SCHEMA = "autoscaler.decision/v1"

_UNUSABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What decoding a line of somebody else's may raise: numbers and nestings beyond all reason too."""

_SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")
_PLAIN = {
    cls: tuple(f.name for f in fields(cls))
    for cls in (Capabilities, Layer, Memory, Resize, Slo, Stage, WidthStatus, SetOutcome)
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded tick.

    Args:
        decision: what was decided.
        obs: what it was decided from; None: nothing could be observed.
        outcome: the answer to the write; None: nothing was written.
        policy_state: the policy's own state after the tick.
        controller: what the log was told of the controller: policy, guards; may be empty.
        shadows: what each shadow policy decided, by its name.
    """

    decision: Decision
    obs: Observation | None
    outcome: SetOutcome | None
    policy_state: dict[str, Any]
    controller: Mapping[str, Any]
    shadows: Mapping[str, Decision] = field(default_factory=dict)


class MemoryLog:
    """Keeps the ticks in a list: for tests, and for whoever looks at a run afterwards."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """Append one tick."""
        self.entries.append(Entry(decision, obs, outcome, policy_state, {}, shadows or {}))


class JsonlLog:
    """Writes one line a tick and flushes it, so that a crash loses nothing decided.

    Args:
        stream: text stream; whoever opened it closes it.
        controller: JSON-ready description that a replay needs: kind and parameters of the
            policy, parameters of guards and convergence; repeated in each line, so that any part
            of a log can be replayed.
        wall_time: gives the wall-clock time as text for people; None: not recorded.
    """

    def __init__(
        self,
        stream: IO[str],
        controller: Mapping[str, Any] | None = None,
        wall_time: Callable[[], str] | None = None,
    ) -> None:
        self._stream = stream
        self._controller = dict(controller or {})
        self._wall_time = wall_time

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """Write one line."""
        entry = Entry(decision, obs, outcome, policy_state, self._controller, shadows or {})
        content = encode(entry)
        if self._wall_time is not None:
            content["time"] = self._wall_time()
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        self._stream.write(text + "\n")
        self._stream.flush()


def encode(entry: Entry) -> dict[str, Any]:
    """One tick as JSON-ready values."""
    decision, obs = entry.decision, entry.obs
    content = {
        "schema": SCHEMA,
        "tick": decision.tick,
        "at_s": _json(decision.at_s),
        "observation": None if obs is None else _observation(obs),
        "policy": {"state": _json(entry.policy_state)},
        **_decided(decision),
        "outcome": None if entry.outcome is None else _json(_named(entry.outcome)),
        "controller": _json(entry.controller),
    }
    if entry.shadows:
        content["shadows"] = {name: _decided(other) for name, other in entry.shadows.items()}
    return content


def read(path: Path) -> Iterator[Entry]:
    """The recorded ticks of a log, in its order.

    Raises:
        TraceError: unreadable, or a line is not a decision of this schema; names file and line.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _entry(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: must be a readable decision log; {error}") from error


def decode(content: Mapping[str, Any]) -> Entry:
    """The inverse of ``encode``.

    Raises:
        KeyError, TypeError, ValueError: not such a content.
    """
    if content.get("schema") != SCHEMA:
        raise ValueError(f"schema: must be {SCHEMA}; got {content.get('schema')!r}")
    tick, at_s = content["tick"], content["at_s"]
    observed, outcome = content["observation"], content["outcome"]
    shadows = content.get("shadows", {}).items()
    answered = None
    if outcome is not None:
        answered = SetOutcome(**{**outcome, "result": SetResult(outcome["result"])})
    return Entry(
        _decision(content, tick, at_s),
        None if observed is None else observation(observed, tick),
        answered,
        content["policy"]["state"],
        content["controller"],
        {name: _decision(other, tick, at_s) for name, other in shadows},
    )


def observation(content: Mapping[str, Any], tick: int) -> Observation:
    """The ``observation`` of one recorded tick.

    Raises:
        KeyError, TypeError, ValueError: not such a content.
    """
    metrics, width, can = content["metrics"], content["width"], content["capabilities"]
    signals = {name: _signal(metrics[name]) for name in _SIGNALS if name in metrics}
    valid = can["valid_widths"]
    return Observation(
        tick,
        content["now_s"],
        Metrics(metrics["window_s"], **signals),
        WidthStatus(**{**width, "layers": tuple(Layer(**layer) for layer in width["layers"])}),
        Capabilities(
            **{
                **can,
                "valid_widths": None if valid is None else tuple(valid),
                "can_shrink": Tristate(can["can_shrink"]),
            }
        ),
        Slo(**content["slo"]),
        None if content["resize"] is None else Resize(**content["resize"]),
        None if content.get("memory") is None else _memory(content["memory"]),
    )


def _decided(decision: Decision) -> dict[str, Any]:
    return {
        "trail": [_json(_named(stage)) for stage in decision.trail],
        "decision": {
            "width": decision.width,
            "expected": decision.expected,
            "code": decision.code,
            "reason": decision.reason,
        },
    }


def _decision(content: Mapping[str, Any], tick: int, at_s: float) -> Decision:
    said, trail = content["decision"], tuple(Stage(**stage) for stage in content["trail"])
    return Decision(
        tick, at_s, said["width"], said["expected"], said["code"], said["reason"], trail
    )


def _observation(obs: Observation) -> dict[str, Any]:
    metrics: dict[str, Any] = {"window_s": _json(obs.metrics.window_s)}
    for name in _SIGNALS:
        metrics[name] = _encoded(getattr(obs.metrics, name))
    content = {
        "now_s": _json(obs.now_s),
        "metrics": metrics,
        "width": _json(_named(obs.width)),
        "capabilities": _json(_named(obs.capabilities)),
        "slo": _json(_named(obs.slo)),
        "resize": None if obs.resize is None else _json(_named(obs.resize)),
    }
    if obs.memory is not None:
        content["memory"] = _json(_named(obs.memory))
    return content


def _memory(content: Mapping[str, Any]) -> Memory:
    """JSON knows no tuples."""
    lists = {key: tuple(content[key]) for key in ("reversals", "answered")}
    refused = tuple((width, why) for width, why in content["refused"])
    resize = None if content["resize"] is None else tuple(content["resize"])
    return Memory(**{**content, **lists, "refused": refused, "resize": resize})


def _encoded(signal: Signal) -> dict[str, Any]:
    """A value, or the reason why there is none; what is empty is left out."""
    value = _json(signal.value)
    if value is not None:
        known: dict[str, Any] = {"value": value}
    else:
        # A value that is not finite is a defect of the source; its reason says what it was.
        ok = signal.status is SignalStatus.OK
        known = {"status": (SignalStatus.NON_FINITE if ok else signal.status).value}
    bound = _json(signal.lower_bound)
    if bound is not None:
        known["lower_bound"] = bound
    if signal.detail:
        known["detail"] = signal.detail
    return known


def _signal(content: Mapping[str, Any]) -> Signal:
    value, bound = content.get("value"), content.get("lower_bound")
    status = SignalStatus.OK if value is not None else SignalStatus(content["status"])
    return Signal(value, status, bound, content.get("detail", ""))


def _named(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _PLAIN[type(value)]}


def _json(value: Any) -> Any:
    """The value as JSON can hold it: null for what is not finite, text for what it knows not."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if type(value) in _PLAIN:
        return _json(_named(value))
    item = getattr(value, "item", None)  # a number of numpy's
    return _json(item()) if callable(item) else str(value)


def _entry(line: str, where: str) -> Entry:
    try:
        return decode(json.loads(line))
    except _UNUSABLE as error:
        raise TraceError(f"{where}: must be a decision of {SCHEMA}; {error!r}") from error
