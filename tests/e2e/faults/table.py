"""Two tables: what goes wrong, and when. A row says how it begins and ends, and what names it."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.emulator.operator import Answer
from autoscaler.testing_apiserver import Fault as Trouble
from autoscaler.testing_apiserver import User
from tests.adapters.kubernetes.worlds import NAME
from tests.e2e.faults.lane import (
    CLOCKED,
    HIGH,
    HOLD_S,
    LOW,
    PLAIN,
    TICK_S,
    WATCHING,
    WINDOW_S,
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
    lane.await_true(lambda: lane.engine.ranks == HIGH, "more serve")


PHASES = {
    phase.name: phase
    for phase in (
        Phase(IDLE, nothing, nothing, 6 * TICK_S, (), LOW),
        Phase(BEFORE, nothing, _burn, 5 * TICK_S, (HIGH,), HIGH),
        Phase(FLIGHT, _asked, nothing, 6 * TICK_S, (HIGH,), HIGH),
        # Longer than the settling: the shrink falls due while the fault lasts.
        Phase(SETTLING, _grown, nothing, WINDOW_S + 6 * TICK_S, (HIGH, LOW), LOW),
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


# Prometheus.

PROMETHEUS = "prometheus"
_SOURCE = r'autoscaler_errors_total\{class="ObservationError",port="source"'
_QUIET_AGAIN = "what the engine did not tell is missing until a window is over"


def _front(fault: str) -> tuple[Act, Act]:
    def on(lane: Lane) -> None:
        lane.front.fault = fault

    def off(lane: Lane) -> None:
        lane.front.fault = ""

    return on, off


def _answers(name: str, fault: str, says: str) -> Fault:
    return Fault(PROMETHEUS, name, *_front(fault), _SOURCE, says, blind=True)


def _ahead(lane: Lane) -> None:
    lane.front.ahead_s = 600.0


def _back(lane: Lane) -> None:
    lane.front.ahead_s = 0.0


def _skewed(lane: Lane) -> None:
    lane.front.skew_s = 600.0


def _level(lane: Lane) -> None:
    lane.front.skew_s = 0.0


def _shows(signal_name: str, *statuses: str) -> str:
    wanted = "|".join(statuses)
    return rf'autoscaler_signal_status\{{signal="{signal_name}",status="({wanted})"'


_PROMETHEUS = (
    Fault(PROMETHEUS, "refused", lambda lane: lane.front.refuse(),
          lambda lane: lane.front.listen(), _SOURCE, "connection refused", blind=True),
    Fault(PROMETHEUS, "black-holed", lambda lane: lane.front.swallow(),
          lambda lane: lane.front.listen(), _SOURCE, "timed out|no whole answer", blind=True),
    _answers("hung", "hang", "timed out|no whole answer"),
    _answers("1.2 x deadline", "late", "timed out|no whole answer"),
    _answers("429, Retry-After 6 h", "429", "HTTP 429, asks to wait 21600 s"),
    _answers("503", "503", "HTTP 503"),
    _answers("HTML login page", "login", "it is no JSON"),
    _answers("status error in a 200", "error", "query timed out in expression"),
    _answers("NaN", "nan", "is nan"),
    _answers("Inf", "inf", "is inf"),
    _answers("scalar", "scalar", "must be a matrix|no data"),
    _answers("two elements", "two", "2 elements where one is meant"),
    _answers("1e6 series", "many", "bytes|no whole answer|timed out"),
    _answers("truncated", "cut", "(?i)incomplete|cut|protocol|no JSON"),
    Fault(PROMETHEUS, "warnings", *_front("warned"),
          r'autoscaler_errors_total\{class="PartialAnswer",port="source"', "may be partial"),
    Fault(PROMETHEUS, "clock 10 min ahead", _ahead, _back,
          _shows("ttft_p95_s", "quarantined", "few_samples", "stale", "no_series"),
          "stale|few_samples|quarantined|no_series", patience_s=WINDOW_S,
          why="times are compared on Prometheus' clock; a jump of it empties the window"),
    Fault(PROMETHEUS, "clock 10 min ahead of the samples", _skewed, _level,
          _shows("queue_depth", "stale"), "selects no series|the last scrape failed", blind=True,
          patience_s=WINDOW_S, why="the clock goes back at the end, which empties the window"),
)  # fmt: skip


# The API server.

API = "api server"
AT = f"modeldeployments/{NAME}"
_TARGET = r'autoscaler_errors_total\{class="\w+",port="target"'
_WRITE = r'autoscaler_errors_total\{class="\w+",port="(write|memory)"'


def _status(code: int, reason: str, message: str, *causes: str) -> str:
    details = {"causes": [{"reason": "FieldValueInvalid", "message": c} for c in causes]}
    content = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return json.dumps({**content, "code": code, **({"details": details} if causes else {})})


def _meets(*troubles: dict[str, object]) -> tuple[Act, Act]:
    def on(lane: Lane) -> None:
        lane.door.faults[:] = [Trouble(times=None, **one) for one in troubles]  # type: ignore[arg-type]

    def off(lane: Lane) -> None:
        lane.door.faults.clear()

    return on, off


def _always(code: int, reason: str, message: str, *causes: str, method: str = "",
            applied: bool = False, **headers: str) -> tuple[Act, Act]:  # fmt: skip
    head = {key.replace("_", "-"): value for key, value in headers.items()}
    body = _status(code, reason, message, *causes)
    return _meets({"kind": "answer", "method": method, "status": code, "body": body,
                   "applied": applied, "headers": head})  # fmt: skip


def _rotate(lane: Lane) -> None:
    """The old token is worth nothing, and the file does not have the new one yet."""
    (old,) = lane.door.tokens
    lane.grant(f"{old}+")


def _rotated(lane: Lane) -> None:
    (new,) = lane.door.tokens
    lane.token.write_text(new, encoding="utf-8")


def _forbid(lane: Lane) -> None:
    lane.door.tokens = {token: User("nobody") for token in lane.door.tokens}


def _allow(lane: Lane) -> None:
    (token,) = lane.door.tokens
    lane.grant(token)


def _watches(trouble: dict[str, object]) -> tuple[Act, Act]:
    """Every watch is cut, and those that come meet trouble."""
    on, off = _meets({"path": "watch=true", **trouble})

    def cut(lane: Lane) -> None:
        on(lane)
        lane.restart_door()

    return cut, off


def _then_replaced(off: Act) -> Act:
    def both(lane: Lane) -> None:
        off(lane)
        with lane.operating:
            lane.operator.replace_master(lane.store.get(lane.kind, "gpustack-bench", NAME))

    return both


_refused = _always(422, "Invalid", "spec is invalid", "width: above the quota", method="PATCH")

_API = (
    Fault(API, "refused", lambda lane: lane.door.close(), lambda lane: lane.reopen_door(),
          _TARGET, "Connection refused|connection refused|NewConnectionError", unclear=True),
    Fault(API, "hung", *_meets({"kind": "hang"}), _TARGET, "no complete answer|timed out|"
          "no answer|ReadTimeout", unclear=True),
    Fault(API, "hung write, taken", *_meets({"kind": "hang", "method": "PATCH", "applied": True}),
          _WRITE, "timed out|no answer|no complete answer", named_in=WRITING, unclear=True),
    Fault(API, "401 after token rotation", _rotate, _rotated, _TARGET, "401", resends=True),
    Fault(API, "403", _forbid, _allow, _TARGET, "403"),
    Fault(API, "403 of writes", *_always(403, "Forbidden", "may not patch", method="PATCH"),
          _WRITE, "403", phases=WRITING, named_in=WRITING, patience_s=31.0,
          why="a forbidden write is tried again after 30 s, and after up to 10 min: no storm"),
    Fault(API, "404", *_always(404, "NotFound", "not found"), _TARGET, "404"),
    Fault(API, "409", *_always(409, "Conflict", "the object has been modified", method="PATCH"),
          _WRITE, "409", phases=WRITING, named_in=WRITING),
    Fault(API, "422, a failed test", *_always(422, "Invalid", "testing value failed",
          method="PATCH"), _WRITE, "422", phases=WRITING, named_in=WRITING),
    Fault(API, "422, a refused value", _refused[0], _then_replaced(_refused[1]), _WRITE, "422",
          phases=(BEFORE,), named_in=WRITING, patience_s=WINDOW_S,
          why="a refused width is asked for again when something has changed: here the instance"),
    Fault(API, "429", *_always(429, "TooManyRequests", "slow down", Retry_After="1"), _TARGET,
          "429", unclear=True, patience_s=1.0, why="the server asked for a second"),
    Fault(API, "500", *_always(500, "InternalError", "etcdserver: request timed out"), _TARGET,
          "500", unclear=True),
    Fault(API, "500 to writes", *_always(500, "InternalError", "etcdserver: request timed out",
          method="PATCH"), _WRITE, "500", phases=WRITING, named_in=WRITING, unclear=True,
          patience_s=HOLD_S, why="an unclear write is waited for"),
    Fault(API, "500 to writes that were taken", *_always(500, "InternalError", "timed out",
          method="PATCH", applied=True), _WRITE, "500", phases=WRITING, named_in=WRITING,
          unclear=True),
    Fault(API, "restart", lambda lane: lane.restart_door(), nothing, "", "",
          unclear=True, patience_s=HOLD_S,
          why="a connection is opened anew, nobody has to know; a write it meets is waited for"),
    Fault(API, "watch 410", *_watches({"kind": "answer", "status": 410,
          "body": _status(410, "Expired", "too old resource version")}), "",
          "objects_out_of_sight", lane=WATCHING, unclear=True,
          patience_s=HOLD_S, why="the objects are out of sight, what they declared goes on: as "
          "after a restart of the server, which cut the watches"),
    Fault(API, "silent watch", *_watches({"kind": "stall"}), "", "", lane=WATCHING, unclear=True,
          patience_s=HOLD_S, why="90 s of silence are no fault yet: a bookmark comes each minute"),
)  # fmt: skip


# The engine.

ENGINE = "engine"


def _pages(kind: str) -> tuple[Act, Act]:
    def on(lane: Lane) -> None:
        lane.front.pages = kind

    def off(lane: Lane) -> None:
        lane.front.pages = ""

    return on, off


def _mute(lane: Lane) -> None:
    lane.engine.serves = False


def _speak(lane: Lane) -> None:
    lane.engine.serves = True


def _wedge(lane: Lane) -> None:
    """Every command fails, and nothing is answered any more."""
    lane.engine.answers = [Answer(500, "Scale failed: a rank is gone")] * 100
    lane.engine.serves = False


def _replaced(lane: Lane) -> None:
    _then_replaced(nothing)(lane)


_ENGINE = (
    Fault(ENGINE, "503 through the commit", _mute, _speak, _shows("queue_depth", "stale"),
          "the last scrape failed|selects no series", blind=True, patience_s=WINDOW_S + 1,
          why=_QUIET_AGAIN),
    Fault(ENGINE, "wedged after a failure", _wedge, _replaced, _shows("queue_depth", "stale"),
          "the last scrape failed|selects no series", blind=True, patience_s=WINDOW_S + 1,
          why="a person replaces the instance; then a window has to pass"),
    Fault(ENGINE, "counters reset", lambda lane: lane.front.restart_counters(), nothing,
          _shows("ttft_p95_s", "reset"), "counters restarted", patience_s=WINDOW_S,
          why=_QUIET_AGAIN),
    Fault(ENGINE, "frozen series", *_pages("frozen"),
          _shows("ttft_p95_s", "no_observations", "few_samples", "stale"), "no_observations",
          patience_s=WINDOW_S, why="only a whole window in which nothing ends can tell"),
    Fault(ENGINE, "renamed metric", *_pages("renamed"), _shows("queue_depth", "no_series"),
          "no series vllm:num_requests_waiting", blind=True),
    Fault(ENGINE, "missing series", *_pages("missing"), _shows("queue_depth", "no_series"),
          "no series vllm:num_requests_waiting", blind=True),
)  # fmt: skip


# The process.

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

_PROCESS = (
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

FAULTS = (*_PROMETHEUS, *_API, *_ENGINE, *_PROCESS)
