"""One cell of the matrix: a fault in a phase, and what must be so whatever the fault is."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from tests.e2e.faults.lane import HIGH, HOLD_S, LOW, TICK_S, Lane, Write, rises, well
from tests.e2e.faults.rows import PHASES, Fault

TICKS = 3
"""Within so many ticks after the fault ends everything is known again."""


@dataclass
class Result:
    """How a cell went.

    Args:
        fault, phase: which one.
        problems: what was not as it must be.
        recovery_ticks: ticks from the end of the fault until all was known; None: never.
        duration_s: of the whole cell.
        metric, line: what named the fault.
    """

    fault: Fault
    phase: str
    problems: list[str] = field(default_factory=list)
    recovery_ticks: int | None = None
    duration_s: float = 0.0
    metric: bool = False
    line: str = ""

    def __str__(self) -> str:
        said = "; ".join(self.problems) or "ok"
        return f"{self.fault.group}: {self.fault.name} x {self.phase}: {said}"


def run(lane: Lane, fault: Fault, phase_name: str) -> Result:
    """Play a cell; a lane that has been at rest is at rest or at HIGH afterwards."""
    result = Result(fault, phase_name)
    began_s = lane.clock.now_s()
    try:
        _play(lane, fault, phase_name, result)
    except AssertionError as error:
        result.problems.append(str(error))
        fault_over(lane, fault)
    result.duration_s = lane.clock.now_s() - began_s
    return result


def fault_over(lane: Lane, fault: Fault) -> None:
    """Leave nothing behind for the next cell."""
    lane.engine.held = False
    lane.front.burning = False


def _play(lane: Lane, fault: Fault, phase_name: str, result: Result) -> None:
    phase = PHASES[phase_name]
    lane.rest()
    lane.engine.commands.clear()
    first, first_line = len(lane.requests), len(lane.lines())
    phase.enter(lane)
    before, on_s = lane.page(), lane.clock.now_s()
    fault.on(lane)
    try:
        phase.during(lane)
        _last(lane, fault, phase_name, phase.hold_s, before, first_line, result)
    finally:
        off_s = lane.clock.now_s()
        seen = len(lane.entries())
        fault.off(lane)
        seen = seen if lane.saved is None else len(lane.entries())
        lane.saved = None
    _recover(lane, fault, seen, result)
    lane.engine.held = False
    lane.await_true(lambda: lane.steady(phase.ends_at), f"{phase.ends_at} serve")
    _name_late(lane, fault, phase_name, before, first_line, result)
    result.problems += list(_judge(lane, fault, phase.commands, first, on_s, off_s))


def _last(lane: Lane, fault: Fault, phase: str, hold_s: float, before: dict[str, float],
          first_line: int, result: Result) -> None:  # fmt: skip
    """Let the fault last until it was long enough, and was named if it can be."""
    on_s = lane.clock.now_s()
    expected = phase in fault.named_in
    while lane.clock.now_s() < on_s + hold_s + (12.0 if expected else 0.0):
        lane.clock.sleep(0.1)
        _name(lane, fault, before, first_line, result)
        named = (result.metric or not fault.metric) and (result.line or not fault.says)
        if lane.clock.now_s() >= on_s + hold_s and (named or not expected or lane.stopped):
            break
    if fault.lives:
        lane.await_true(lane.healthy, "healthy throughout", 10.0)


def _name(
    lane: Lane, fault: Fault, before: dict[str, float], first_line: int, result: Result
) -> None:
    if fault.metric and not result.metric:
        result.metric = rises(before, lane.page(), fault.metric)
    if fault.says and not result.line:
        wanted = re.compile(fault.says)
        result.line = next((s for s in lane.lines()[first_line:] if wanted.search(s)), "")


def _name_late(lane: Lane, fault: Fault, phase: str, before: dict[str, float], first_line: int,
               result: Result) -> None:  # fmt: skip
    if phase not in fault.named_in:
        return
    _name(lane, fault, before, first_line, result)
    if fault.metric and not result.metric:
        result.problems.append(f"no series names it: {fault.metric}")
    if fault.says and not result.line:
        result.problems.append(f"no line names it: {fault.says}")


def _recover(lane: Lane, fault: Fault, seen: int, result: Result) -> None:
    """All is known within three ticks after the one that was under way."""
    patient_s = lane.clock.now_s() + fault.patience_s

    def over() -> bool:
        entries = lane.entries()
        found = next((n for n, entry in enumerate(entries[seen:]) if well(entry)), None)
        if found is not None:
            result.recovery_ticks = found
        return found is not None

    while lane.clock.now_s() < patient_s and not over():
        lane.clock.sleep(0.1)
    if result.recovery_ticks is None:
        seen_late = len(lane.entries())
        lane.await_true(over, "all is known again", TICKS * TICK_S + 20.0)
        assert result.recovery_ticks is not None
        late = result.recovery_ticks - (seen_late - seen)
        if late > TICKS:
            result.problems.append(f"recovered after {late} ticks")


def _judge(
    lane: Lane, fault: Fault, commands: tuple[int, ...], first: int, on_s: float, off_s: float
) -> list[str]:
    """What must be so in every cell, from what the API server and the engine were asked for."""
    writes = lane.writes(first)
    problems = [f"out of bounds: {one}" for one in writes if not LOW <= one.width <= HIGH]
    problems += [
        f"shrunk without data: {one}"
        for one in writes
        if fault.blind and one.width < one.expected and on_s <= one.at_s <= off_s
    ]
    problems += _unfounded(lane, writes)
    for one, other in pairwise(writes):
        if (one.width, one.expected) != (other.width, other.expected):
            continue
        met = on_s <= one.at_s <= off_s
        if met and fault.resends:
            continue
        if not other.looked:
            problems.append(f"resent without looking: {other}")
        if met and fault.unclear and other.at_s - one.at_s < HOLD_S - 0.2:
            problems.append(f"resent after {other.at_s - one.at_s:.1f} s although it was unclear")
    told = [w for n, w in enumerate(lane.engine.commands) if lane.engine.commands[n - 1 : n] != [w]]
    if tuple(told) != commands:
        problems.append(f"the engine was told {told}, not {list(commands)}")
    return problems


def _unfounded(lane: Lane, writes: list[Write]) -> list[str]:
    """Shrinks in the decision log whose tick did not know the signals."""
    problems = []
    for entry in lane.entries()[-200:]:
        decision, seen = entry["decision"], entry["observation"]
        asked = entry["outcome"] and decision["width"] is not None
        if not asked or decision["width"] >= decision["expected"]:
            continue
        unknown = [n for n in ("queue_depth", "ttft_p95_s") if "value" not in seen["metrics"][n]]
        if unknown:
            problems.append(f"shrunk in tick {decision['tick']} without {', '.join(unknown)}")
    return problems
