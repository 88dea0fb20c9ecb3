"""What no decision shows is said once, and counted."""

import io
import json
import logging
from types import SimpleNamespace

import pytest

from autoscaler import journal
from autoscaler.clock import wall_s
from autoscaler.redaction import Redaction
from autoscaler.telemetry import Telemetry
from autoscaler.testing import ManualClock
from autoscaler.wiring.oddities import Oddities


@pytest.fixture
def world():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    made = World()
    yield made
    root.handlers[:], root.level = before[0], before[1]


class World:
    def __init__(self):
        self.stream, self.telemetry = io.StringIO(), Telemetry()
        self.clock = ManualClock()
        logger = journal.configure("json", "info", Redaction, self.stream)
        epoch_s = wall_s() - self.clock.now_s()
        self.oddities = Oddities("chat", logger, self.telemetry, epoch_s)
        self.loop = SimpleNamespace(
            source=SimpleNamespace(), clock=self.clock, missed_ticks=0, tick_s=5.0
        )

    def look(self):
        self.oddities.look(self.loop)

    def said(self):
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [{k: v for k, v in line.items() if k not in ("time", "level")} for line in lines]

    def counted(self, kind):
        for family in self.telemetry.collect():
            for sample in family.samples:
                if sample.labels.get("class") == kind:
                    return sample.value
        return 0


def test_nothing_odd_is_nothing_said(world):
    world.loop.missed_ticks = 2
    world.look()
    assert world.said() == []


def test_R05_a_partial_answer_is_said_once_and_counted_each_time(world):
    world.loop.source.warnings = ["a store did not answer"]
    for _ in range(3):
        world.look()
    assert world.said() == [{"event": "source_warns", "problem": "a store did not answer"}]
    assert world.counted("PartialAnswer") == 3
    world.loop.source.warnings = []
    world.look()
    world.loop.source.warnings = ["again"]
    world.look()
    assert [line["problem"] for line in world.said()] == ["a store did not answer", "again"]


def test_a_process_that_stood_still_says_how_many_ticks_are_missing(world):
    world.loop.missed_ticks = 7
    world.look()
    world.look()
    assert world.said() == [{"event": "ticks_missed", "ticks": 7, "after_s": 35.0}]


def test_R10_a_wall_clock_that_was_set_is_said_once_and_counted(world):
    world.clock.advance(7200.0)  # as seen from here, the wall clock went back
    world.look()
    world.look()
    (line,) = world.said()
    assert (line["event"], line["by_s"]) == ("wall_clock_stepped", -7200)
    assert world.counted("WallClockStepped") == 1
