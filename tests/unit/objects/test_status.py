"""When a status is worth a write, and what the write says."""

from dataclasses import replace

from autoscaler.objects.conditions import Condition, Report
from autoscaler.objects.status import Worth, patch_of, status_of, worth

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
REPORT = Report(
    1,
    (
        Condition("AbleToScale", "True", "ReadyForNewWidth", "a width can be written"),
        Condition("Converged", "False", "Resizing", "admitted 2 of 4 for 3 s"),
    ),
    proposed=4,
    desired=4,
    effective=2,
    stable=2,
    code="resizing",
    reason="admitted 2 of 4 for 3 s",
)
STATUS = status_of(REPORT, {}, FIRST)


def after(**changes):
    return status_of(replace(REPORT, **changes), STATUS, LATER)


def condition(status, reason, message="x"):
    return REPORT.conditions[0], Condition("Converged", status, reason, message)


def test_a_first_status_is_worth_a_write():
    assert worth({}, STATUS) is Worth.NOW
    assert STATUS["observedGeneration"] == 1
    assert STATUS["width"] == {"proposed": 4, "desired": 4, "effective": 2, "stable": 2}
    assert {c["lastTransitionTime"] for c in STATUS["conditions"]} == {FIRST}


def test_R22_texts_that_count_seconds_are_worth_nothing():
    told = after(conditions=condition("False", "Resizing", "admitted 2 of 4 for 9 s"), reason="9 s")
    assert told != STATUS
    assert worth(STATUS, told) is Worth.NOTHING


def test_what_may_change_with_every_tick_can_wait():
    assert worth(STATUS, after(proposed=3)) is Worth.SOON
    assert worth(STATUS, after(code="cooldown_up")) is Worth.SOON


def test_conditions_widths_and_generations_cannot_wait():
    assert worth(STATUS, after(conditions=condition("True", "WidthServes"))) is Worth.NOW
    assert worth(STATUS, after(conditions=condition("False", "ResizeFailed"))) is Worth.NOW
    assert worth(STATUS, after(effective=4)) is Worth.NOW
    assert worth(STATUS, after(effective=None)) is Worth.NOW
    assert worth(STATUS, after(generation=2)) is Worth.NOW


def test_a_condition_changes_its_time_with_its_status_only_G28():
    told = after(conditions=condition("False", "ResizeFailed"))
    assert [c["lastTransitionTime"] for c in told["conditions"]] == [FIRST, FIRST]
    told = after(conditions=condition("True", "WidthServes"))
    assert [c["lastTransitionTime"] for c in told["conditions"]] == [FIRST, LATER]


def test_conditions_that_are_not_told_of_stay_as_they_were():
    told = after(conditions=(REPORT.conditions[0],))
    assert [c["type"] for c in told["conditions"]] == ["AbleToScale", "Converged"]


def test_a_patch_takes_away_what_is_not_known_any_more():
    told = after(effective=None)
    assert patch_of(STATUS, told)["width"] == {
        "proposed": 4,
        "desired": 4,
        "effective": None,
        "stable": 2,
    }
    nothing = status_of(Report(1, REPORT.conditions), STATUS, LATER)
    patch = patch_of(STATUS, nothing)
    assert (patch["width"], patch["decision"]) == (None, None)


def test_a_status_that_somebody_has_spoilt_is_written_anew():
    for spoilt in (
        {"conditions": "none"},
        {"conditions": [3, {}], "width": 4},
        {"decision": []},
    ):
        assert worth(spoilt, STATUS) is Worth.NOW
        assert status_of(REPORT, spoilt, LATER)["width"] == STATUS["width"]
        assert patch_of(spoilt, STATUS)["observedGeneration"] == 1


def test_messages_have_an_end():
    told = after(conditions=condition("True", "WidthServes", "x" * 5000), reason="y" * 5000)
    assert len(told["conditions"][1]["message"]) == 1024
    assert len(told["decision"]["reason"]) == 1024
