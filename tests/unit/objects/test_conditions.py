"""Every situation as the conditions of an object."""

from dataclasses import replace

import pytest

from autoscaler.convergence import ConvergenceState as State
from autoscaler.convergence import Progress
from autoscaler.model import (
    Capabilities,
    Decision,
    Metrics,
    Observation,
    Proposal,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Stage,
    WidthStatus,
)
from autoscaler.objects import conditions
from autoscaler.objects.conditions import Condition, Tick, camel, kept, refusal, report

STEADY = Progress(State.CONVERGED, "steady", "the width serves as desired", True)
READ = Metrics(30.0, ttft_p95_s=Signal(1.0), queue_depth=Signal(0.0))


def tick(
    code="static", trail=(), progress=STEADY, outcome=None, metrics=READ, width=None, wanted=3
):
    obs = Observation(
        7, 100.0, metrics, width or WidthStatus(3, 3, 3), Capabilities(2, 8), Slo(), None
    )
    written = wanted if outcome is not None else None
    decision = Decision(7, 100.0, written, 3, code, "why", tuple(trail))
    result = None if outcome is None else SetOutcome(outcome, detail="said")
    return Tick(decision, obs, result, progress, Proposal(wanted, "static", "always"))


def unreadable():
    decision = Decision(7, 100.0, None, None, "target_unreadable", "timed out")
    return Tick(decision, None, None, STEADY, None)


def found(one, kind):
    return next(
        (c.status, c.reason) for c in report(one, generation=1).conditions if c.type == kind
    )


def stage(code):
    return Stage("guards", 3, code, f"limited by {code}")


def progress(state, code="x"):
    return Progress(state, code, "so it is", False)


BLIND = replace(READ, ttft_p95_s=Signal(None, SignalStatus.STALE, detail="scrape failed"))
CENSORED = replace(READ, ttft_p95_s=Signal(None, SignalStatus.TOP_BUCKET, lower_bound=10.0))
IDLE = Metrics(
    30.0,
    ttft_p95_s=Signal(None, SignalStatus.NO_OBSERVATIONS),
    queue_depth=Signal(0.0),
    arrival_rps=Signal(0.0),
)

ABLE = {
    "steady": (tick(), "True", "ReadyForNewWidth"),
    "written": (tick(outcome=SetResult.APPLIED), "True", "WidthWritten"),
    "conflict": (tick(outcome=SetResult.CONFLICT), "True", "WriteConflict"),
    "refused write": (tick(outcome=SetResult.REFUSED), "False", "WidthRefused"),
    "ambiguous": (tick(outcome=SetResult.AMBIGUOUS), "Unknown", "WriteUnclear"),
    "forbidden write": (tick(outcome=SetResult.FORBIDDEN), "False", "WriteForbidden"),
    "skipped": (tick(outcome=SetResult.SKIPPED), "False", "WriteSkipped"),
    "in flight": (tick("resizing", progress=progress(State.RESIZING)), "True", "ResizeInFlight"),
    "unreadable": (unreadable(), "False", "TargetUnreadable"),
    "still forbidden": (tick("forbidden"), "False", "WriteForbidden"),
    "still refused": (tick("refused"), "False", "WidthRefused"),
    "timed out": (tick("timed_out_hold"), "False", "ResizeTimedOut"),
    "switched off": (tick("scaled_to_zero"), "False", "ScaledToZero"),
}
ACTIVE = {
    "all known": (tick(), "True", "ValidMetrics"),
    "a lower bound will do": (tick(metrics=CENSORED), "True", "ValidMetrics"),
    "idle": (tick(metrics=IDLE), "True", "ValidMetrics"),
    "blind": (tick(metrics=BLIND), "False", "MetricsUnavailable"),
    "switched off": (tick("scaled_to_zero"), "False", "ScaledToZero"),
    "paused": (tick("paused"), "False", "Paused"),
    "unreadable": (unreadable(), "Unknown", "TargetUnreadable"),
}
LIMITED = {
    "free": (tick(), "False", "WithinLimits"),
    "high": (tick(trail=[stage("max_width")]), "True", "AtMaxWidth"),
    "low": (tick(trail=[stage("min_width")]), "True", "AtMinWidth"),
    "the last one counts": (
        tick(trail=[stage("max_width"), stage("cooldown_up")]), "True", "CoolingDown",
    ),
    "flapping": (tick(trail=[stage("flap_budget")]), "True", "FlapBudget"),
    "paused in one direction": (
        tick(trail=[Stage("controller", None, "paused_up", "x")]), "True", "PausedUp",
    ),
    "somebody else's": (tick(trail=[stage("my_own_rule")]), "True", "MyOwnRule"),
}  # fmt: skip
CONVERGED = {
    "steady": (tick(), "True", "WidthServes"),
    "idle": (tick(progress=progress(State.IDLE)), "True", "WidthServes"),
    "in doubt": (tick(progress=progress(State.CONVERGED, "unproven")), "Unknown", "Unproven"),
    "just asked": (tick(outcome=SetResult.APPLIED), "False", "Resizing"),
    "perhaps asked": (tick(outcome=SetResult.AMBIGUOUS), "False", "Resizing"),
    "refused write": (tick(outcome=SetResult.REFUSED), "True", "WidthServes"),
    "in flight": (tick(progress=progress(State.RESIZING)), "False", "Resizing"),
    "refused": (tick(progress=progress(State.REFUSED)), "False", "WidthRefused"),
    "failed": (tick(progress=progress(State.FAILED)), "False", "ResizeFailed"),
    "timed out": (tick(progress=progress(State.TIMED_OUT)), "False", "ResizeTimedOut"),
    "unreadable": (unreadable(), "Unknown", "TargetUnreadable"),
}
TABLE = [
    (kind, name, *row)
    for kind, rows in {
        "AbleToScale": ABLE,
        "ScalingActive": ACTIVE,
        "ScalingLimited": LIMITED,
        "Converged": CONVERGED,
    }.items()
    for name, row in rows.items()
]


@pytest.mark.parametrize(
    ("kind", "name", "one", "status", "reason"), TABLE, ids=[f"{r[0]} {r[1]}" for r in TABLE]
)
def test_R22_each_situation_has_its_reason(kind, name, one, status, reason):
    assert found(one, kind) == (status, reason)


def test_a_report_has_widths_and_decision_and_none_for_what_is_unknown():
    told = report(tick(width=WidthStatus(4, None, 3)), generation=2)
    assert (told.generation, told.proposed, told.desired) == (2, 3, 4)
    assert (told.effective, told.stable) == (None, 3)
    assert (told.code, told.reason) == ("static", "why")
    blind = report(unreadable(), 2)
    assert (blind.proposed, blind.desired, blind.code) == (None, None, "target_unreadable")
    assert all(c.message for c in told.conditions + blind.conditions)


def test_a_missing_signal_is_named_with_its_reason():
    active = report(tick(metrics=BLIND), 1).conditions[1]
    assert active.message == "ttft_p95_s: stale (scrape failed)"


def test_what_is_refused_is_not_able_and_the_rest_is_unknown():
    told = refusal(3, "invalid_spec", "spec.policy: must be given")
    assert told.conditions[0] == Condition(
        "AbleToScale", "False", "InvalidSpec", "spec.policy: must be given"
    )
    assert {(c.status, c.reason) for c in told.conditions[1:]} == {("Unknown", "NotSteered")}


def test_a_refused_edit_says_which_spec_is_in_force_and_keeps_the_rest_true():
    told = kept(report(tick(), 1), refusal(2, "already_steered", "taken"))
    assert told.generation == 2
    assert told.conditions[0].reason == "AlreadySteered"
    assert told.conditions[0].message.endswith("steered by the spec of generation 1 until then")
    assert told.conditions[3].reason == "WidthServes"
    assert told.effective == 3


def test_reasons_are_words_that_kubernetes_permits():
    reasons = [
        *conditions._UNABLE.values(),
        *conditions._LIMITS.values(),
        *(reason for _, reason in conditions._OUTCOMES.values()),
        *(reason for _, reason in conditions._CONVERGED.values()),
        camel("step_limit"),
        camel(""),
    ]
    assert all(reason.isalpha() and reason[0].isupper() for reason in reasons)
    assert set(conditions._CONVERGED) == set(State)
    assert set(conditions._OUTCOMES) == set(SetResult)
