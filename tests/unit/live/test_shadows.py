"""Shadow policies: they see what the real one sees, and nothing they say is written."""

import json

from autoscaler import decisions
from autoscaler.controller import Controller
from autoscaler.decisions import Entry, MemoryLog
from autoscaler.errors import TargetError
from autoscaler.guards import Guards, Params
from autoscaler.loop import ControlLoop
from autoscaler.model import Slo
from autoscaler.policies import static
from autoscaler.ports import PolicyContext
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0, max_reversals_per_hour=None)


def a_controller(width, **given):
    policy = static.build(static.Params(width), PolicyContext(Slo(), 5.0))
    return Controller(policy, Guards(FREE), **given)


def a_loop(shadows):
    clock, log = ManualClock(), MemoryLog()
    target = FakeTarget(clock, 2, resize_s=12.0)
    loop = ControlLoop(
        FakeSource(observation().metrics),
        target,
        a_controller(4),
        clock,
        log,
        Slo(),
        5.0,
        {f"static:{w}": a_controller(w, watches=True) for w in shadows},
    )
    return loop, target, log, clock


def test_shadows_decide_on_the_same_readings_and_are_never_written():
    loop, target, log, clock = a_loop([2, 6])
    loop.run(until_s=clock.now_s() + 50)
    assert target.writes == [4]
    six = [entry.shadows["static:6"] for entry in log.entries]
    assert [d.width for d in six] == [6, None, None, *[6] * 7]  # held in the resize
    assert {d.code for d in six} == {"static", "foreign_write", "resizing"}
    assert log.entries[-1].shadows["static:2"].width == 2
    assert [d.tick for d in six] == list(range(10))


def test_the_real_decisions_are_the_same_with_and_without_shadows():
    said = []
    for shadows in ([], [2, 6]):
        loop, _, log, clock = a_loop(shadows)
        loop.run(until_s=clock.now_s() + 50)
        said.append([(e.decision, e.obs, e.outcome) for e in log.entries])
    assert said[0] == said[1]


def test_without_a_reading_a_shadow_says_nothing():
    loop, target, log, _ = a_loop([6])
    target.unreadable = TargetError("gone")
    loop.tick()
    assert log.entries[0].shadows == {}
    assert loop.shadow_decisions == {}


def test_what_shadows_said_round_trips_through_the_log():
    loop, _, log, _ = a_loop([6])
    loop.tick()
    entry = log.entries[0]
    content = json.loads(json.dumps(decisions.encode(entry), allow_nan=False))
    assert decisions.decode(content) == entry
    alone = Entry(entry.decision, entry.obs, None, {}, {})
    assert "shadows" not in decisions.encode(alone)
