"""Policies with a calendar get the wall clock of the process, live and in a replay."""

from dataclasses import replace

from autoscaler.clock import wall_s
from autoscaler.steering import described
from tests.unit.live.test_steering import a_steering


def test_a_recorded_controller_keeps_its_calendar():
    dated = replace(a_steering(), epoch_s=1_764_000_000.0)
    assert described(dated.describe("chat"), "log:1").epoch_s == 1_764_000_000.0


def test_the_calendar_tells_no_settings_apart():
    assert replace(a_steering(), epoch_s=wall_s()) == a_steering()
