"""The decision log: valid JSON always, and back again without loss."""

# test names carry case ids

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler import decisions
from autoscaler.controller import Controller
from autoscaler.decisions import Entry, JsonlLog, MemoryLog
from autoscaler.errors import TraceError
from autoscaler.guards import Guards
from autoscaler.loop import ControlLoop
from autoscaler.model import (
    Capabilities,
    Decision,
    Layer,
    Proposal,
    Resize,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Stage,
    Tristate,
    WidthStatus,
)
from autoscaler.policies import threshold
from autoscaler.ports import PolicyContext
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation

STRICT = {"parse_constant": lambda name: pytest.fail(f"bare {name}")}


def a_decision(width=None, expected=2):
    trail = (Stage("policy", 4, "high", "it hurts"), Stage("guards", None, "x", ""))
    return Decision(7, 12.5, width, expected, "code", 'a "reason" \u2192 \n', trail)


signals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(Signal),
    st.builds(
        Signal,
        st.none(),
        st.sampled_from([s for s in SignalStatus if s is not SignalStatus.OK]),
        st.none() | st.floats(0, 1e9),
        st.text(max_size=10),
    ),
)


@given(signals, signals, st.none() | st.integers(0, 99), st.booleans())
def test_round_trip(one, two, effective, resizing):
    obs = replace(
        observation(7, 12.5, ttft_p95_s=one, queue_depth=two),
        width=WidthStatus(
            4, effective, 2, 3, None, "uid", (Layer("ray", None, "late"),), "no", None, resizing
        ),
        capabilities=Capabilities(1, 9, (1, 3, 9), Tristate.NO, 2, 0.8),
        slo=Slo(1.5, 0.05, 20, 60),
        resize=Resize(2, 4, 3.25),
    )
    entry = Entry(a_decision(4), obs, SetOutcome(SetResult.REFUSED, 3, "no"), {"x": [1]}, {"k": 1})
    text = json.dumps(decisions.encode(entry), allow_nan=False)
    assert decisions.decode(json.loads(text, **STRICT)) == entry


def test_an_unobserved_tick_round_trips():
    entry = Entry(a_decision(None, None), None, None, {}, {})
    assert decisions.decode(json.loads(json.dumps(decisions.encode(entry)))) == entry


def test_what_is_not_finite_becomes_null_and_a_status():
    obs = observation(queue_depth=Signal(float("nan"), detail="defect"), window_s=float("inf"))
    state = {"i": float("inf"), "n": np.float64(2.5), "a": (1, {2: np.int64(3)}), "o": object()}
    stream = io.StringIO()
    JsonlLog(stream).record(a_decision(), obs, None, state)
    content = json.loads(stream.getvalue(), **STRICT)
    queue = content["observation"]["metrics"]["queue_depth"]
    assert queue == {"status": "non_finite", "detail": "defect"}
    assert content["policy"]["state"]["i"] is None
    assert content["policy"]["state"]["n"] == 2.5
    assert content["policy"]["state"]["a"] == [1, {"2": 3}]


def test_one_line_a_tick_with_schema_controller_and_wall_time():
    stream = io.StringIO()
    log = JsonlLog(stream, {"policy": {"kind": "hold"}}, wall_time=lambda: "2026-11-30T00:00:00Z")
    for _ in range(3):
        log.record(a_decision(), observation(), None, {})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    content = json.loads(lines[0])
    assert content["schema"] == "autoscaler.decision/v1"
    assert content["controller"] == {"policy": {"kind": "hold"}}
    assert content["time"] == "2026-11-30T00:00:00Z"
    assert content["observation"]["metrics"]["ttft_p95_s"] == {"value": 1.0}
    assert content["observation"]["metrics"]["running"] == {"status": "no_series"}


@pytest.mark.parametrize(
    "bad", ["{", "[]", '{"schema": "other/v1"}', '{"schema": "autoscaler.decision/v1"}', "3"]
)
def test_unusable_lines_are_named_by_file_and_line(bad, tmp_path):
    good = json.dumps(decisions.encode(Entry(a_decision(), observation(), None, {}, {})))
    path = tmp_path / "log.jsonl"
    path.write_text(f"{good}\n\n{bad}\n", encoding="utf-8")
    lines = decisions.read(path)
    next(lines)
    with pytest.raises(TraceError, match=r"log\.jsonl:3: must be a decision"):
        next(lines)


def test_a_missing_log_is_named(tmp_path):
    with pytest.raises(TraceError, match="must be a readable decision log"):
        list(decisions.read(tmp_path / "none.jsonl"))


def a_controller():
    policy = threshold.build(threshold.Params(), PolicyContext(Slo(), 5.0))
    return Controller(policy, Guards())


def test_replaying_a_log_gives_the_same_decisions_S18(tmp_path):
    clock, log = ManualClock(), MemoryLog()
    target = FakeTarget(clock, 2)
    loads = [
        observation(ttft_p95_s=ttft, queue_depth=queue).metrics
        for ttft, queue in [(9.0, 50.0)] * 60 + [(0.4, 0.0)] * 300 + [(3.0, 0.0)] * 20
    ]
    metrics = iter(loads)
    source = FakeSource(lambda: next(metrics))
    ControlLoop(source, target, a_controller(), clock, log, Slo(), 5.0).run(
        until_s=clock.now_s() + 5.0 * len(loads)
    )
    path = tmp_path / "log.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        writer = JsonlLog(stream)
        for e in log.entries:
            writer.record(e.decision, e.obs, e.outcome, e.policy_state)

    again, widths = a_controller(), set()
    for entry in decisions.read(path):
        decision = again.step(entry.obs)
        assert decision == entry.decision
        if entry.outcome is not None:
            again.on_outcome(decision, entry.outcome, entry.obs)
        assert again.policy.state() == entry.policy_state
        widths.add(decision.width)
    assert len(widths) > 2  # it grew, and it shrank


def test_stage_widths_that_are_not_numbers_stay_valid_json():
    obs = observation()
    controller = Controller(
        type(
            "Nan",
            (),
            {"propose": lambda self, o: Proposal(float("nan"), "x", "x"), "state": lambda self: {}},
        )()
    )
    stream = io.StringIO()
    JsonlLog(stream).record(controller.step(obs), obs, None, {})
    assert json.loads(stream.getvalue(), **STRICT)["decision"]["code"] == "non_finite"
