"""What goes wrong with the API server."""

import json

from autoscaler.testing_apiserver import Fault as Trouble
from autoscaler.testing_apiserver import User
from tests.e2e.faults.lane import HOLD_S, WATCHING, WINDOW_S, Lane
from tests.e2e.faults.rows import BEFORE, IDLE, WRITING, Act, Fault, nothing, then_replaced

API = "api server"
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


_refused = _always(422, "Invalid", "spec is invalid", "width: above the quota", method="PATCH")

ROWS = (
    Fault(API, "refused", lambda lane: lane.door.close(), lambda lane: lane.reopen_door(),
          _TARGET, "Connection (refused|aborted|broken)|NewConnectionError", unclear=True),
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
    Fault(API, "422, a refused value", _refused[0], then_replaced(_refused[1]), _WRITE, "422",
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
          "objects_out_of_sight", named_in=(IDLE,), lane=WATCHING, unclear=True,
          patience_s=HOLD_S, why="told once while it lasts; what the objects declared goes on"),
    Fault(API, "silent watch", *_watches({"kind": "stall"}), "", "", lane=WATCHING, unclear=True,
          patience_s=HOLD_S, why="90 s of silence are no fault yet: a bookmark comes each minute"),
)  # fmt: skip
