"""What a row of the tables is, and the table of phases."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.adapters.kubernetes.worlds import NAME
from tests.e2e.faults.lane import (
    HIGH,
    LOW,
    PLAIN,
    SETTLE_S,
    TICK_S,
    Lane,
)

Act = Callable[[Lane], None]

IDLE, BEFORE, FLIGHT, SETTLING = "idle", "before a patch", "in flight", "settling"
ALL = IDLE, BEFORE, FLIGHT, SETTLING
WRITING = BEFORE, SETTLING
"""Phases in which a width is due."""


def nothing(lane: Lane) -> None:
    """Nothing to do."""


@dataclass(frozen=True)
class Phase:
    """When it goes wrong.

    Args:
        name: for people.
        enter: how the lane gets there from rest, before the fault begins.
        during: what happens as soon as the fault has begun.
        hold_s: how long the fault lasts at least.
        commands: what the engine has been told when all is over.
        ends_at: the width then.
    """

    name: str
    enter: Act
    during: Act
    hold_s: float
    commands: tuple[int, ...]
    ends_at: int


def _burn(lane: Lane) -> None:
    lane.front.burning = True


def _asked(lane: Lane) -> None:
    lane.engine.held = True
    lane.front.burning = True
    lane.await_true(lambda: lane.engine.commands[-1:] == [HIGH], "asked for more")


def _grown(lane: Lane) -> None:
    lane.front.burning = True
    lane.await_true(lambda: lane.width == HIGH, "asked for more")
    lane.front.burning = False
    lane.await_true(lambda: lane.steady(HIGH) and lane.quiet(), "more serve, and nobody waits")


PHASES = {
    phase.name: phase
    for phase in (
        Phase(IDLE, nothing, nothing, 6 * TICK_S, (), LOW),
        Phase(BEFORE, nothing, _burn, 5 * TICK_S, (HIGH,), HIGH),
        Phase(FLIGHT, _asked, nothing, 6 * TICK_S, (HIGH,), HIGH),
        # Longer than the settling: the shrink falls due while the fault lasts.
        Phase(SETTLING, _grown, nothing, SETTLE_S + 2 * TICK_S, (HIGH, LOW), LOW),
    )
}


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Args:
        group: where: prometheus, api server, engine, process.
        name: for people.
        on, off: how it begins and ends.
        metric: the program's series that rises, a pattern; "": none can, see ``why``.
        says: what a line of the program's log says, a pattern; "": none can.
        phases: in which it can be met.
        named_in: in which the program can know of it.
        blind: whether the signals are missing while it lasts, so that nothing may shrink.
        unclear: whether a write that it meets may have happened.
        resends: whether the same write may be sent again at once (401: it was not looked at).
        patience_s: how long after its end the three ticks begin, and ``why``.
        lives: whether the process stays alive and healthy.
        lane: the kind of lane that it takes.
        why: of what is unusual in the row.
    """

    group: str
    name: str
    on: Act
    off: Act
    metric: str
    says: str
    phases: tuple[str, ...] = ALL
    named_in: tuple[str, ...] = ALL
    blind: bool = False
    unclear: bool = False
    resends: bool = False
    patience_s: float = 0.0
    lives: bool = True
    lane: str = PLAIN
    why: str = ""


def shows(signal_name: str, *statuses: str) -> str:
    """The series of a signal that has one of these statuses."""
    wanted = "|".join(statuses)
    return rf'autoscaler_signal_status\{{signal="{signal_name}",status="({wanted})"'


def then_replaced(off: Act) -> Act:
    """And then a person replaces the instance."""

    def both(lane: Lane) -> None:
        off(lane)
        with lane.operating:
            lane.operator.replace_master(lane.store.get(lane.kind, "gpustack-bench", NAME))

    return both
