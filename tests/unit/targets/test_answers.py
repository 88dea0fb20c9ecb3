"""What each answer of an API server means, for a reading and for a write."""

import json

import pytest

from autoscaler.cluster.answers import (
    Gone,
    NotSent,
    Unauthenticated,
    Unclear,
    error_of,
    outcome,
    redacted,
)
from autoscaler.errors import TargetConflict, TargetError, TargetForbidden, TargetRefused
from autoscaler.model import SetOutcome, SetResult

WIDTH = [{"reason": "FieldValueInvalid", "message": "no", "field": "spec.roles[0].elasticEp.width"}]


def answer(status: int, message: str = "said", reason: str = "", **details: object) -> TargetError:
    body = {"kind": "Status", "message": message, "reason": reason, "details": details}
    return error_of("PATCH /x", status, "application/json", json.dumps(body).encode())


@pytest.mark.parametrize(
    ("error", "kind", "result"),
    [
        (answer(401), Unauthenticated, SetResult.FORBIDDEN),
        (answer(403, 'User "x" cannot patch resource "y"'), TargetForbidden, SetResult.FORBIDDEN),
        (answer(403, causes=WIDTH), TargetRefused, SetResult.REFUSED),
        (
            answer(403, 'admission webhook "w" denied the request: z'),
            TargetRefused,
            SetResult.REFUSED,
        ),
        (answer(404), Gone, SetResult.CONFLICT),
        (answer(409, reason="Conflict"), TargetConflict, SetResult.CONFLICT),
        (answer(422, reason="Invalid"), TargetConflict, SetResult.CONFLICT),
        (answer(422, reason="Invalid", causes=WIDTH), TargetRefused, SetResult.REFUSED),
        (
            answer(422, 'admission webhook "w" denied it', "Invalid"),
            TargetRefused,
            SetResult.REFUSED,
        ),
        (answer(400, causes=WIDTH), TargetRefused, SetResult.REFUSED),
        (answer(415), TargetRefused, SetResult.REFUSED),
        (answer(408), Unclear, SetResult.AMBIGUOUS),
        (answer(429), Unclear, SetResult.AMBIGUOUS),
        (answer(500), Unclear, SetResult.AMBIGUOUS),
        (answer(504), Unclear, SetResult.AMBIGUOUS),
        (answer(302), TargetError, SetResult.AMBIGUOUS),
        (NotSent("waits"), NotSent, SetResult.SKIPPED),
    ],
)
def test_each_answer_has_one_meaning_A11_A12(
    error: TargetError, kind: type[TargetError], result: SetResult
) -> None:
    assert type(error) is kind

    def write() -> dict[str, object]:
        raise error

    assert outcome(write) == SetOutcome(result, detail=str(error))


def test_a_write_that_took_effect_says_which_generation_to_wait_for() -> None:
    assert outcome(lambda: {"metadata": {"generation": 3}}) == SetOutcome(SetResult.APPLIED, 3)
    assert outcome(lambda: {"metadata": {}}) == SetOutcome(SetResult.APPLIED, None)


def test_messages_are_short_and_hold_no_credentials() -> None:
    page = b"<html>token=secret" + b"x" * 100_000
    text = str(error_of("GET /x", 403, "text/html", page))
    assert "secret" not in text
    assert "100018 bytes" in text
    long = str(answer(403, "x" * 100_000))
    assert len(long) < 400
    assert "secret" not in str(answer(500, "proxy http://user:secret@proxy:1 failed"))
    assert redacted("via http://user:pass@host/x") == "via http://***@host/x"
