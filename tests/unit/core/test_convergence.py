"""Convergence: one row a transition. Times are seconds from an arbitrary start."""

# test names carry case ids

from dataclasses import dataclass, replace

import pytest

from autoscaler.convergence import Convergence, ConvergenceState, Params, converged
from autoscaler.errors import ConfigError
from autoscaler.model import Layer, Resize, SetOutcome, SetResult, WidthStatus

START_S = 12_345.678
PARAMS = Params(timeout_s=1200, lost_after_reads=3, ambiguous_hold_s=90)


@dataclass(frozen=True)
class Read:
    """A reading ``at_s`` after the start, and what it has to show."""

    at_s: float
    status: WidthStatus
    state: str
    code: str
    may_write: bool
    resize: tuple[int, int] | None = None
    changed: bool = False


@dataclass(frozen=True)
class Write:
    """A write and its answer."""

    at_s: float
    width: int
    expected: int
    result: str
    generation: int | None = None


def s(desired, effective, stable=None, **rest):
    stable = effective if stable is None else stable
    return WidthStatus(desired, effective, stable, **rest)


def layered(desired, values, effective, **rest):
    names = ("admitted", "allocated", "ray")
    layers = tuple(Layer(n, v) for n, v in zip(names, values, strict=True))
    return s(desired, effective, layers=layers, **rest)


STEADY2 = Read(0, s(2, 2), "idle", "steady", True)
GROW4 = Write(5, 4, 2, "applied")
ONWAY = Read(10, s(4, 2), "resizing", "resizing", False, (2, 4))
TIMED_OUT = Read(1205, s(4, 2), "timed_out", "timed_out", False, (2, 4), True)
TO4 = (STEADY2, GROW4, ONWAY)

ROWS = {
    "idle stays idle": [STEADY2, Read(5, s(2, 2), "idle", "steady", True)],
    "applied write begins a resize": list(TO4),
    "resize converges": [*TO4, Read(190, s(4, 4), "converged", "converged", True, None, True)],
    "converged stays converged": [
        *TO4,
        Read(190, s(4, 4), "converged", "converged", True, None, True),
        Read(195, s(4, 4), "converged", "steady", True),
    ],
    "A01 phase Ready and desired set is not converged": [
        *TO4,
        Read(17, s(4, 2, detail="phase Ready"), "resizing", "resizing", False, (2, 4)),
    ],
    "unread layers are not yet": [
        STEADY2,
        GROW4,
        Read(
            10,
            layered(4, (None, None, None), None, stable=2),
            "resizing",
            "resizing",
            False,
            (2, 4),
        ),
        Read(15, layered(4, (4, 4, None), 4), "resizing", "resizing", False, (2, 4)),
        Read(20, layered(4, (4, 4, 4), 4), "converged", "converged", True, None, True),
    ],
    "a status of an older spec proves nothing": [
        STEADY2,
        GROW4,
        Read(
            10,
            s(4, 4, generation=3, observed_generation=2),
            "resizing",
            "status_stale",
            False,
            (2, 4),
        ),
        Read(
            15,
            s(4, 4, generation=3, observed_generation=3),
            "converged",
            "converged",
            True,
            None,
            True,
        ),
    ],
    "the target still says resizing": [
        *TO4,
        Read(15, s(4, 4, resizing=True), "resizing", "resizing", False, (2, 4)),
        Read(20, s(4, 4, resizing=False), "converged", "converged", True, None, True),
    ],
    "refusal inside its bound is not terminal": [
        *TO4,
        Read(60, s(4, 2, detail="attempt 2 of 5 failed"), "resizing", "resizing", False, (2, 4)),
    ],
    "definite refusal is terminal until something changes": [
        *TO4,
        Read(960, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False, None, True),
        Read(5000, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False),
    ],
    "refused, then the width is reached after all": [
        *TO4,
        Read(960, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False, None, True),
        Read(990, s(4, 4), "converged", "converged", True, None, True),
    ],
    "refusal lifted goes on waiting": [
        *TO4,
        Read(960, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False, None, True),
        Read(990, s(4, 2), "resizing", "refusal_lifted", False, (2, 4), True),
    ],
    "refused, then somebody changes the width": [
        *TO4,
        Read(960, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False, None, True),
        Read(990, s(6, 2), "resizing", "foreign_write", False, (2, 6), True),
    ],
    "A20 a failed resize leaves the real width to decide from": [
        *TO4,
        Read(100, s(4, 2, failure="grow failed at commit"), "failed", "failed", True, None, True),
        Read(105, s(4, 2, failure="grow failed at commit"), "failed", "failed", True),
        Write(110, 6, 4, "applied"),
        Read(115, s(6, 2), "resizing", "resizing", False, (4, 6)),
    ],
    "failed and the real width unknown: hold": [
        *TO4,
        Read(
            100, WidthStatus(4, None, failure="worker lost"), "failed", "failed", False, None, True
        ),
        Read(105, s(4, 2, failure="worker lost"), "failed", "failed", True),
    ],
    "failed, and the engine is at it again although it still tells of the failure: hold": [
        *TO4,
        Read(100, s(4, 2, failure="x", resizing=True), "failed", "failed", False, None, True),
        Read(105, s(4, 2, failure="x", resizing=True), "failed", "failed", False),
        Read(110, s(4, 2, failure="x", resizing=False), "failed", "failed", True),
    ],
    "failed, then the target tries by itself": [
        *TO4,
        Read(100, s(4, 2, failure="x"), "failed", "failed", True, None, True),
        Read(110, s(4, 2, resizing=True), "resizing", "adopted", False, (2, 4), True),
    ],
    "failed, then late success": [
        *TO4,
        Read(100, s(4, 2, failure="x"), "failed", "failed", True, None, True),
        Read(110, s(4, 4), "converged", "converged", True, None, True),
    ],
    "A07 timed out: reported once, then held, never retried": [
        *TO4,
        replace(TIMED_OUT, at_s=1204.9, state="resizing", code="resizing", changed=False),
        TIMED_OUT,
        replace(TIMED_OUT, at_s=1210, code="timed_out_hold", changed=False),
        replace(TIMED_OUT, at_s=99_999, code="timed_out_hold", changed=False),
    ],
    "timed out and late success": [
        *TO4,
        TIMED_OUT,
        Read(2000, s(4, 4), "converged", "converged", True, None, True),
    ],
    "timed out and somebody changes the width": [
        *TO4,
        TIMED_OUT,
        Read(2000, s(2, 2), "converged", "foreign_write", True, None, True),
    ],
    "timed out is not left by a late refusal": [
        *TO4,
        TIMED_OUT,
        Read(2000, s(4, 2, refusal="no"), "timed_out", "timed_out_hold", False, (2, 4)),
    ],
    "unread all through the resize times out": [
        STEADY2,
        GROW4,
        Read(1205, WidthStatus(4, None, 2), "timed_out", "timed_out", False, (2, 4), True),
    ],
    "A05 ambiguous, then it had happened": [
        STEADY2,
        Write(5, 4, 2, "ambiguous"),
        Read(10, s(2, 2), "resizing", "ambiguous", False, (2, 4)),
        Read(15, s(4, 2), "resizing", "resizing", False, (2, 4)),
        Read(190, s(4, 4), "converged", "converged", True, None, True),
    ],
    "A05 ambiguous, and it had not happened": [
        STEADY2,
        Write(5, 4, 2, "ambiguous"),
        Read(94, s(2, 2), "resizing", "ambiguous", False, (2, 4)),
        Read(95, s(2, 2), "idle", "not_applied", False, None, True),
        Read(100, s(2, 2), "idle", "steady", True),
    ],
    "ambiguous, and the target is busy with something": [
        STEADY2,
        Write(5, 4, 2, "ambiguous"),
        Read(500, s(2, 2, resizing=True), "resizing", "ambiguous", False, (2, 4)),
        Read(505, s(4, 4), "converged", "converged", True, None, True),
    ],
    "ambiguous, and somebody else was faster": [
        STEADY2,
        Write(5, 4, 2, "ambiguous"),
        Read(10, s(6, 2), "resizing", "foreign_write", False, (2, 6), True),
    ],
    "conflict changes nothing; the next read shows the other writer": [
        STEADY2,
        Write(5, 4, 2, "conflict"),
        Read(10, s(3, 2), "resizing", "foreign_write", False, (2, 3), True),
    ],
    "a refused write leaves the deployment as it was": [
        STEADY2,
        Write(5, 4, 2, "refused"),
        Read(10, s(2, 2), "idle", "steady", True),
    ],
    "a forbidden write leaves the deployment as it was": [
        STEADY2,
        Write(5, 4, 2, "forbidden"),
        Read(10, s(2, 2), "idle", "steady", True),
    ],
    "R16 a read older than the own write is no foreign write": [
        Read(0, s(2, 2, generation=1, observed_generation=1), "idle", "steady", True),
        Write(5, 4, 2, "applied", 2),
        Read(
            6,
            s(2, 2, generation=1, observed_generation=1),
            "resizing",
            "not_visible",
            False,
            (2, 4),
        ),
        Read(
            7, s(4, 2, generation=2, observed_generation=2), "resizing", "resizing", False, (2, 4)
        ),
    ],
    "reverted by somebody, seen by its generation": [
        Read(0, s(2, 2, generation=1, observed_generation=1), "idle", "steady", True),
        Write(5, 4, 2, "applied", 2),
        Read(
            10,
            s(2, 2, generation=3, observed_generation=3),
            "converged",
            "foreign_write",
            True,
            None,
            True,
        ),
    ],
    "without generations a write that never shows is somebody's revert": [
        STEADY2,
        GROW4,
        Read(10, s(2, 2), "resizing", "not_visible", False, (2, 4)),
        Read(95, s(2, 2), "converged", "foreign_write", True, None, True),
    ],
    "G33 A26 a foreign write in idle is adopted": [
        STEADY2,
        Read(5, s(6, 2), "resizing", "foreign_write", False, (2, 6), True),
        Read(190, s(6, 6), "converged", "converged", True, None, True),
    ],
    "a foreign write in mid-resize becomes the target": [
        *TO4,
        Read(50, s(6, 2), "resizing", "foreign_write", False, (2, 6), True),
        Read(55, s(6, 4), "resizing", "resizing", False, (2, 6)),
        Read(60, s(6, 6), "converged", "converged", True, None, True),
    ],
    "A30 a resize in flight at the start is adopted": [
        Read(0, s(4, 2), "resizing", "adopted", False, (2, 4), True),
        Read(5, s(4, 2), "resizing", "resizing", False, (2, 4)),
        Read(100, s(4, 4), "converged", "converged", True, None, True),
    ],
    "an adopted one times out from when it was first seen": [
        Read(0, s(4, 2), "resizing", "adopted", False, (2, 4), True),
        Read(1200, s(4, 2), "timed_out", "timed_out", False, (2, 4), True),
    ],
    "refused at the start": [
        Read(0, s(4, 2, refusal="ScaleRefused"), "refused", "refused", False, None, True),
    ],
    "failed at the start": [Read(0, s(4, 2, failure="x"), "failed", "failed", True, None, True)],
    "A34 width unknown at the start: hold": [
        Read(0, WidthStatus(2, None), "resizing", "width_unknown", False, (2, 2), True),
        Read(5, WidthStatus(2, None), "resizing", "resizing", False, (2, 2)),
        Read(10, s(2, 2), "converged", "converged", True, None, True),
    ],
    "A34 width zero is a width": [Read(0, s(0, 0), "idle", "steady", True)],
    "incarnation change restarts the machine": [
        Read(0, s(2, 2, incarnation="a"), "idle", "steady", True),
        GROW4,
        Read(10, s(4, 2, incarnation="a"), "resizing", "resizing", False, (2, 4)),
        Read(
            20,
            WidthStatus(4, None, None, incarnation="b"),
            "resizing",
            "restarted",
            False,
            (4, 4),
            True,
        ),
        Read(99, s(4, 4, incarnation="b"), "converged", "converged", True, None, True),
    ],
    "incarnation change out of a time-out": [
        Read(0, s(2, 2, incarnation="a"), "idle", "steady", True),
        GROW4,
        Read(1205, s(4, 2, incarnation="a"), "timed_out", "timed_out", False, (2, 4), True),
        Read(1210, s(4, 4, incarnation="b"), "converged", "restarted", True, None, True),
    ],
    "an unread incarnation is no change": [
        Read(0, s(2, 2), "idle", "steady", True),
        Read(5, s(2, 2, incarnation="a"), "idle", "steady", True),
        Read(10, s(2, 2), "idle", "steady", True),
        Read(15, s(2, 2, incarnation="a"), "idle", "steady", True),
    ],
    "a flaky probe is not lost width": [
        STEADY2,
        Read(5, WidthStatus(2, None, 2), "idle", "unproven", True),
        Read(10, WidthStatus(2, None, 2), "idle", "unproven", True),
        Read(15, s(2, 2), "idle", "steady", True),
        Read(20, WidthStatus(2, None, 2), "idle", "unproven", True),
    ],
    "K unproven reads in a row are lost width": [
        STEADY2,
        Read(5, WidthStatus(2, None, 2), "idle", "unproven", True),
        Read(10, WidthStatus(2, None, 2), "idle", "unproven", True),
        Read(15, WidthStatus(2, None, 2), "resizing", "width_lost", False, (2, 2), True),
        Read(20, s(2, 2), "converged", "converged", True, None, True),
    ],
    "A19 a smaller proven width is lost width at once": [
        Read(0, s(4, 4), "idle", "steady", True),
        Read(5, s(4, 0), "resizing", "width_lost", False, (0, 4), True),
    ],
    "another stable width is lost width at once": [
        Read(0, s(4, 4), "idle", "steady", True),
        Read(5, WidthStatus(4, None, 3), "resizing", "width_lost", False, (3, 4), True),
    ],
    "a spec edit elsewhere holds writes while the status lags": [
        Read(0, s(2, 2, generation=1, observed_generation=1), "idle", "steady", True),
        Read(5, s(2, 2, generation=2, observed_generation=1), "idle", "unproven", False),
        Read(10, s(2, 2, generation=2, observed_generation=2), "idle", "steady", True),
    ],
    "G30 surge in a layer is no convergence": [
        STEADY2,
        Read(5, layered(2, (3, 3, 2), 2), "idle", "unproven", True),
    ],
    "somebody resizes without touching the desired width": [
        STEADY2,
        Read(5, s(2, 2, resizing=True), "resizing", "adopted", False, (2, 2), True),
    ],
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("start_s", [START_S, 0.0, -77_777.1])
def test_transition(name, start_s):
    machine = Convergence(PARAMS)
    for step in ROWS[name]:
        now_s = start_s + step.at_s
        if isinstance(step, Write):
            outcome = SetOutcome(SetResult(step.result), step.generation)
            machine.on_written(step.width, step.expected, outcome, now_s)
            continue
        got = machine.advance(step.status, now_s)
        resize = got.resize and (got.resize.from_width, got.resize.to_width)
        want = (step.state, step.code, step.may_write, step.resize, step.changed)
        assert (got.state, got.code, got.may_write, resize, got.changed) == want, (step, got)
        assert got.reason


def test_every_state_is_reached_by_the_table():
    reached = {step.state for row in ROWS.values() for step in row if isinstance(step, Read)}
    assert reached == set(ConvergenceState)


def test_the_blocking_layer_is_named_A07():
    machine = Convergence(PARAMS)
    machine.advance(s(2, 2), 0)
    machine.on_written(8, 2, SetOutcome(SetResult.APPLIED), 1)
    got = machine.advance(layered(8, (8, 4, None), 2), 6)
    assert got.reason == "waiting for layer allocated: 4 of 8"
    late = machine.advance(layered(8, (8, 4, None), 2), 1201)
    assert (late.code, late.may_write) == ("timed_out", False)
    assert "allocated 4 of 8 for 20 min" in late.reason


def test_the_end_of_a_resize_is_told_once_with_the_resize():
    machine = Convergence(PARAMS)
    machine.advance(s(2, 2), 0)
    machine.on_written(4, 2, SetOutcome(SetResult.APPLIED), 1)
    assert machine.advance(s(4, 2), 6).ours
    over = machine.advance(s(4, 4), 11)
    assert over.ended == Resize(2, 4, 1)
    assert over.ours
    assert machine.advance(s(4, 4), 16).ended is None


def test_converged_needs_every_layer_there_is_A02():
    assert converged(layered(4, (4, 4, 4), 4), 4)
    assert not converged(layered(4, (4, 4, None), 4), 4)
    assert not converged(layered(4, (4, 4, 4), None, stable=4), 4)
    assert not converged(layered(4, (4, 4, 4), 4, generation=2, observed_generation=None), 4)
    assert not converged(layered(4, (4, 4, 4), 4), 2)


@pytest.mark.parametrize("key", ["timeout_s", "lost_after_reads", "ambiguous_hold_s"])
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "1"])
def test_params_name_key_rule_and_value(key, bad):
    with pytest.raises(ConfigError, match=rf"convergence\.{key}: must be .*; got {bad!r}"):
        Params(**{key: bad})


def test_a_reading_that_was_steady_once_is_not_steady_after_another_one():
    machine = Convergence()
    before = WidthStatus(2, 2)
    assert machine.advance(before, 0.0).may_write
    assert machine.advance(before, 5.0).code == machine.advance(before, 10.0).code
    assert machine.advance(WidthStatus(4, 2), 15.0).code == "foreign_write"
    # The very same object again: the width went back, which is another change and no steadiness.
    assert machine.advance(before, 20.0).code == "foreign_write"
