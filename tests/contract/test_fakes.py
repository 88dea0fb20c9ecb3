"""The fakes pass the checks that the real adapters pass, and the checks do find what is wrong."""

import pytest

from autoscaler.model import Proposal, SetOutcome, SetResult, Signal
from autoscaler.testing import (
    FakeSource,
    FakeTarget,
    ManualClock,
    check_policy,
    check_source,
    check_target,
    observation,
)


def test_fake_source():
    assert check_source(FakeSource(observation().metrics)).window_s == 30


def test_fake_target():
    check_target(FakeTarget(ManualClock()))
    check_target(FakeTarget(ManualClock(), width=8))
    target = FakeTarget(ManualClock())
    check_target(target, write=False)
    assert target.desired == 2


def test_fake_target_refuses_what_it_does_not_permit():
    assert FakeTarget(ManualClock()).set_width(99, 2).result is SetResult.REFUSED


def test_manual_clock_ignores_negative_sleeps():
    clock = ManualClock(5.0)
    clock.sleep(-1.0)
    assert clock.now_s() == 5.0


class Blind:
    """Takes what is missing for zero."""

    def propose(self, obs):
        p95 = obs.metrics.ttft_p95_s.value or 0.0
        width = obs.width.present
        return Proposal(width + 1 if p95 > 5 else width - 1, "step", "steps")

    def state(self):
        return {}


class Leaky(Blind):
    """Keeps state outside of itself."""

    calls = 0

    def propose(self, obs):
        Leaky.calls += 1
        return Proposal(Leaky.calls, "count", "counts")


class ClockReader(Blind):
    """Decides by the absolute time."""

    def propose(self, obs):
        return Proposal(4 if obs.now_s < 3_000 else 5, "time", "tells the time")


class Mute(Blind):
    """Gives no reason."""

    def propose(self, obs):
        return Proposal(4, "mute", "")


class Fractional(Blind):
    """Proposes half widths."""

    def propose(self, obs):
        return Proposal(4.5, "half", "halves")


class Undumpable(Blind):
    """Has a state that is no JSON."""

    def state(self):
        return {"x": float("nan")}


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        (Blind, AssertionError, "smaller width on missing data"),
        (Leaky, AssertionError, "equal inputs, unequal proposals"),
        (ClockReader, AssertionError, "depends on the clock's start"),
        (Mute, AssertionError, "no reason"),
        (Fractional, AssertionError, "width is not whole"),
        (Undumpable, ValueError, "JSON"),
    ],
)
def test_check_policy_finds(policy, error, message):
    with pytest.raises(error, match=message):
        check_policy(policy)


def test_check_source_finds_a_bare_nan_and_a_status_that_disagrees():
    for signal in (Signal(float("nan")), Signal(None)):
        with pytest.raises(AssertionError):
            check_source(FakeSource(observation(queue_depth=signal).metrics))


def test_check_target_finds_an_unconditional_write():
    class Unconditional(FakeTarget):
        def set_width(self, width, expected):
            self.apply(width)
            return SetOutcome(SetResult.APPLIED)

    with pytest.raises(AssertionError, match="wrong expected width"):
        check_target(Unconditional(ManualClock()))
