"""What goes wrong with the process."""

import os
import signal

from tests.e2e.faults.lane import CLOCKED, Lane
from tests.e2e.faults.rows import Act, Fault

PROCESS = "process"


def _killed(number: signal.Signals) -> Act:
    def on(lane: Lane) -> None:
        code = lane.end(number)
        assert code == (0 if number is signal.SIGTERM else -number), f"ended with {code}"

    return on


def _again(lane: Lane) -> None:
    lane.start()


def _stop(lane: Lane) -> None:
    assert lane.process is not None
    lane.process.process.send_signal(signal.SIGSTOP)
    lane.stopped = True


def _continue(lane: Lane) -> None:
    assert lane.process is not None
    lane.process.process.send_signal(signal.SIGCONT)
    lane.stopped = False


def _fill(lane: Lane) -> None:
    """From now on the decision log is on a full disk."""
    full, kept = lane.folder / "full", lane.folder / "kept"
    full.symlink_to("/dev/full")
    os.link(lane.world.log, kept)
    full.replace(lane.world.log)
    lane.saved = kept


def _empty(lane: Lane) -> None:
    assert lane.saved is not None
    lane.saved.replace(lane.world.log)


def _garble(lane: Lane) -> None:
    lane.world.config.write_text("targets: [\x01", encoding="utf-8")


def _correct(lane: Lane) -> None:
    lane.world.save()


def _set_clock(text: str) -> Act:
    def act(lane: Lane) -> None:
        lane.wall.write_text(text, encoding="utf-8")

    return act


def _step_and_kill(text: str) -> Act:
    def on(lane: Lane) -> None:
        _set_clock(text)(lane)
        lane.end(signal.SIGKILL)
        lane.start()

    return on


_CLOCK = r'autoscaler_errors_total\{class="WallClockStepped",port="clock"'

ROWS = (
    Fault(PROCESS, "SIGTERM", _killed(signal.SIGTERM), _again, "", "SIGTERM", lives=False,
          why="who is gone has no series: their absence is the alert AutoscalerGone"),
    Fault(PROCESS, "SIGKILL", _killed(signal.SIGKILL), _again, "", "", lives=False,
          why="no time to say anything; the next process says what it goes on with"),
    Fault(PROCESS, "SIGSTOP", _stop, _continue, "", "ticks_missed", lives=False,
          why="named when it goes on; until then AutoscalerScrapeFails is what tells"),
    Fault(PROCESS, "full disk for the decision log", _fill, _empty,
          r'autoscaler_errors_total\{class="OSError",port="decisions"', "decisions_lost"),
    Fault(PROCESS, "config replaced by garbage", _garble, _correct,
          r'autoscaler_errors_total\{class="\w+",port="config"', "config_refused"),
    Fault(PROCESS, "clock step of +2 h", _set_clock("+7200"), _set_clock("+0"), _CLOCK,
          "wall_clock_stepped", lane=CLOCKED),
    Fault(PROCESS, "clock step of -2 h", _set_clock("-7200"), _set_clock("+0"), _CLOCK,
          "wall_clock_stepped", lane=CLOCKED),
    Fault(PROCESS, "clock step of -2 h and SIGKILL", _step_and_kill("-7200"), _set_clock("+0"),
          "", "", lane=CLOCKED,
          why="the next process finds a memory from the future, and takes it for now"),
)  # fmt: skip
