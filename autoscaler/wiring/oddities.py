"""What no decision shows and people still have to know of: told once, and counted."""

from autoscaler.clock import wall_s
from autoscaler.journal import Logger
from autoscaler.loop import ControlLoop
from autoscaler.telemetry import Telemetry

STALLED_TICKS = 3
"""A loop that has not begun a tick for longer than so many is taken for stuck."""

_STEPPED_S = 5.0  # NTP slews smaller differences; what is stepped at a start is minutes or hours


class Oddities:
    """Looks at a loop after each tick.

    Answers that a source calls partial; ticks that were left out, as by a process that stood still;
    and a wall clock that was set. Intervals are on a monotonic clock, so that the last moves no
    timer; but schedules keep to the wall clock of the start.

    Args:
        target: name of the loop's target.
        logger: bound to it.
        telemetry: where it is counted.
        epoch_s: Unix time at which the loop's clock showed 0, s.
    """

    def __init__(self, target: str, logger: Logger, telemetry: Telemetry, epoch_s: float) -> None:
        self._target = target
        self._logger = logger
        self._telemetry = telemetry
        self._epoch_s = epoch_s
        self._warned = False
        self._missed = 0

    def look(self, loop: ControlLoop) -> None:
        """Say what is new; in the loop's thread, after a tick."""
        warnings = tuple(getattr(loop.source, "warnings", ()))
        if warnings:
            self._telemetry.count_error(self._target, "source", "PartialAnswer")
            if not self._warned:
                self._logger.warning("source_warns", problem=warnings[0])
        self._warned = bool(warnings)
        missed, self._missed = loop.missed_ticks - self._missed, loop.missed_ticks
        if missed >= STALLED_TICKS:
            self._logger.warning("ticks_missed", ticks=missed, after_s=missed * loop.tick_s)
        stepped_s = wall_s() - loop.clock.now_s() - self._epoch_s
        if abs(stepped_s) > _STEPPED_S:
            self._epoch_s += stepped_s
            self._telemetry.count_error(self._target, "clock", "WallClockStepped")
            self._logger.warning(
                "wall_clock_stepped",
                by_s=round(stepped_s),
                cure="restart where a schedule has to follow",
            )
