"""Feeds recorded observations through a controller again, and compares what it decides.

The controller is the one that each line describes; with another policy the question is what that
one would have decided on the same observations. Its widths were never written, so what it would
have led to nobody knows: that is ``simulate``'s question.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscaler.controller import Controller
from autoscaler.decisions import Entry, encode
from autoscaler.errors import ConfigError, TraceError
from autoscaler.model import Decision
from autoscaler.policy_file import PolicyChoice
from autoscaler.steering import Steering, described
from autoscaler.wiring import decision_file

SCHEMA = "autoscaler.replay/v1"

_KEPT = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """One tick that was decided otherwise.

    Args:
        line: number of the line in the log.
        target: whose decision it was.
        tick: number of the tick.
        what: decision, trail or policy state: the first that differs.
        recorded, replayed: both of it, JSON-ready.
    """

    line: int
    target: str
    tick: int
    what: str
    recorded: Any
    replayed: Any


@dataclass(slots=True)
class Replay:
    """What came of a replay.

    Args:
        policy: the other policy; None: the recorded ones.
        decisions: ticks that were decided again.
        unobserved: ticks in which nothing could be observed, so that nothing was to decide.
        starts: how often a controller began anew: targets, and restarts of the program.
        equal: decisions that are the same; with another policy: those that ask for the same width.
        differences: the others, the first ones only.
        higher, lower: with another policy: decisions that ask for more, or for less.
        targets: their names, in the order in which they appear.
    """

    policy: str | None = None
    decisions: int = 0
    unobserved: int = 0
    starts: int = 0
    equal: int = 0
    higher: int = 0
    lower: int = 0
    differences: list[Difference] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Target:
    """One target while its lines are read."""

    steering: Steering
    controller: Controller
    content: Any
    tick: int


def replay(
    path: Path, on_notice: Callable[[str], None], policy: PolicyChoice | None = None
) -> Replay:
    """Decide a log's ticks again.

    Args:
        path: the log.
        on_notice: told of lines that were cut off.
        policy: decides in place of the recorded policies; None: they themselves do.

    Raises:
        TraceError: unreadable, no decision log, or empty.
        ConfigError: a recorded policy or profile is unknown here.
    """
    result = Replay(None if policy is None else policy.name)
    known: dict[str, _Target] = {}
    for line, entry in decision_file.read(path, on_notice):
        name = str(entry.controller.get("target", ""))
        if name not in result.targets:
            result.targets.append(name)
        held = _prepared(known.get(name), entry, f"{path}:{line}", policy, result)
        known[name] = held
        if entry.obs is None:
            result.unobserved += 1
            continue
        result.decisions += 1
        decision = held.controller.step(replace(entry.obs, resize=None))
        if policy is not None:
            _compare_widths(result, line, name, entry, decision)
            continue
        written = decision.width is not None and decision.expected is not None
        if written and entry.outcome is not None:
            held.controller.on_outcome(decision, entry.outcome, entry.obs)
        _compare(result, line, name, entry, decision, held.controller)
    if not result.targets:
        raise TraceError(f"{path}: must have at least one decision; got none")
    return result


def _prepared(
    held: _Target | None, entry: Entry, where: str, policy: PolicyChoice | None, result: Replay
) -> _Target:
    """The controller that this tick is to be decided by."""
    tick = entry.decision.tick
    if held is not None and tick > held.tick and entry.controller == held.content:
        held.tick = tick
        return held
    try:
        steering = described(entry.controller, where)
    except ConfigError as error:
        raise ConfigError(f"{where}: must be decided again here; {error}") from error
    if policy is not None:
        steering = replace(steering, policy=policy, watches=True)
    if held is None or tick <= held.tick:
        result.starts += 1  # tick numbers begin anew with each program and each new target
        return _Target(steering, steering.build(), entry.controller, tick)
    steering.retune(held.controller, held.steering)
    return _Target(steering, held.controller, entry.controller, tick)


def _compare(
    result: Replay, line: int, name: str, entry: Entry, decision: Decision, controller: Controller
) -> None:
    again = encode(replace(entry, decision=decision, policy_state=controller.policy.state()))
    before = encode(entry)
    for what in ("decision", "trail", "policy"):
        if again[what] != before[what]:
            _keep(result, Difference(line, name, decision.tick, what, before[what], again[what]))
            return
    result.equal += 1


def _compare_widths(result: Replay, line: int, name: str, entry: Entry, decision: Decision) -> None:
    recorded, other = _asked(entry.decision), _asked(decision)
    if recorded == other:
        result.equal += 1
        return
    if recorded is not None and other is not None:
        result.higher += other > recorded
        result.lower += other < recorded
    both = [
        {"width": d.width, "code": d.code, "reason": d.reason} for d in (entry.decision, decision)
    ]
    _keep(result, Difference(line, name, decision.tick, "decision", *both))


def _asked(decision: Decision) -> int | None:
    """The width that a decision leaves behind in the spec."""
    return decision.expected if decision.width is None else decision.width


def _keep(result: Replay, difference: Difference) -> None:
    if len(result.differences) < _KEPT:
        result.differences.append(difference)
