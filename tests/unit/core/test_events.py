"""Events: one a change. Each play is a real loop on a manual clock, with a fake target."""

from dataclasses import replace

import pytest

from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as Patience
from autoscaler.errors import ObservationError, TargetError, TargetForbidden
from autoscaler.events import Event, Events
from autoscaler.guards import Guards, Params
from autoscaler.loop import ControlLoop
from autoscaler.model import (
    Decision,
    Proposal,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Stage,
)
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0)


class Wish:
    """A policy that says what it is told to."""

    def __init__(self, width=2, code="wish"):
        self.width, self.code = width, code

    def propose(self, obs):
        return Proposal(self.width, self.code, "as told")

    def state(self):
        return {}


class Play:
    """A loop, and every Event that its ticks were worth."""

    def __init__(self, **given):
        self.clock = ManualClock()
        self.target = FakeTarget(self.clock, **given)
        self.policy = Wish()
        self.source = FakeSource(observation().metrics)
        self.told: list[tuple[float, Event]] = []
        self.events = Events()
        convergence = Convergence(Patience(timeout_s=600))
        controller = Controller(self.policy, Guards(FREE), convergence)
        self.loop = ControlLoop(
            self.source, self.target, controller, self.clock, self, Slo(), tick_s=5.0
        )
        self.start_s = self.clock.now_s()

    def record(self, decision, obs, outcome, policy_state):
        at_s = decision.at_s - self.start_s
        self.told += [(at_s, event) for event in self.events.tell(decision, obs, outcome)]

    def run(self, duration_s):
        """Let time pass; the reasons told meanwhile."""
        first = len(self.told)
        for _ in range(round(duration_s / 5)):
            self.loop.tick()
            self.clock.advance(5.0)
        return [event.reason for _, event in self.told[first:]]

    def signal(self, name, signal):
        self.source.metrics = replace(observation().metrics, **{name: signal})


def test_quiet_ticks_are_worth_nothing():
    assert Play().run(7200) == []


def test_a_resize_is_two_events_however_many_ticks_it_takes():
    play = Play(resize_s=180)
    play.run(10)
    play.policy.width = 4
    assert play.run(600) == ["ResizeRequested", "ResizeConverged"]
    (asked_s, asked), (over_s, over) = play.told
    assert asked == Event("ResizeRequested", False, "width 2 -> 4: as told")
    assert over == Event("ResizeConverged", False, "width 2 -> 4 serves after 180 s")
    assert over_s - asked_s == 180


def test_a_resize_that_never_ends_is_told_once_and_its_late_success_too_A07():
    play = Play(resize_s=4000)
    play.policy.width = 4
    assert play.run(3600) == ["ResizeRequested", "ResizeTimedOut"]
    assert play.told[-1][1].warning
    assert play.told[-1][1].message.startswith("width 2 -> 4: not over after 600 s: ")
    assert play.run(1000) == ["ResizeConverged"]


def test_somebody_elses_resize_is_told_as_adopted():
    play = Play(resize_s=60)
    play.run(10)
    play.target.apply(3)
    play.policy.width = 3
    assert play.run(100) == ["ResizeAdopted", "ResizeConverged", "ManualOverride"]
    assert "width 2 -> 3" in play.told[0][1].message
    assert play.told[-1][1].message.endswith(
        "somebody else has set the width to 3: respected for 1800 s"
    )


def test_a_refused_write_warns_with_what_was_said():
    play = Play()
    play.run(10)
    play.target.answers = [SetOutcome(SetResult.REFUSED, detail="quota says no")]
    play.policy.width = 4
    assert play.run(600) == ["ResizeRefused"]
    assert play.told[0][1] == Event("ResizeRefused", True, "width 2 -> 4: quota says no")


def test_an_unclear_write_warns_and_so_does_that_it_never_happened():
    play = Play()
    play.run(10)
    play.target.answers = [SetOutcome(SetResult.AMBIGUOUS, detail="no answer")]
    play.policy.width = 4
    assert play.run(95) == ["WriteUnclear", "ResizeNotApplied"]


def test_forbidden_writes_are_one_event_though_they_are_tried_again():
    play = Play()
    play.target.answers = [TargetForbidden("may not patch")] * 20
    play.policy.width = 4
    assert play.run(3500) == ["WriteForbidden"]
    assert len(play.target.writes) > 4
    assert "may not patch" in play.told[0][1].message


def test_what_lasts_longer_than_an_api_server_remembers_is_told_again_each_hour():
    play = Play()
    play.policy.code = "slo_infeasible"
    assert play.run(3 * 3600) == ["SloInfeasible"] * 3
    assert play.told[1][1].message == "still so after 60 min: as told"


def test_what_comes_and_goes_from_tick_to_tick_is_one_event():
    play = Play()
    said = []
    for tick in range(240):
        play.policy.code = "slo_infeasible" if tick % 3 else "wish"
        said += play.run(5)
    assert said == ["SloInfeasible"]


def test_a_warning_that_comes_back_soon_is_counted_and_told_with_the_next():
    play = Play()
    said = []
    for _ in range(8):  # ten seconds of it every two and a half minutes
        play.policy.code = "slo_infeasible"
        said += play.run(10)
        play.policy.code = "wish"
        said += play.run(140)
    assert said == ["SloInfeasible"] * 2
    assert play.told[1][1].message == "as told (3 more since the last one)"


def test_a_lost_signal_is_told_after_half_a_minute_and_so_is_its_return():
    play = Play()
    play.run(10)
    play.signal("queue_depth", Signal(None, SignalStatus.NO_SERIES, detail="vllm:num_waiting"))
    assert play.run(30) == []
    assert play.run(600) == ["SignalLost"]
    assert play.told[0][1].message == "queue_depth: no_series (vllm:num_waiting)"
    play.signal("queue_depth", Signal(0.0))
    assert play.run(600) == ["SignalRecovered"]
    assert play.told[1][1].message == "after 630 s"


def test_a_scrape_that_is_late_and_a_source_that_fails_for_a_moment_are_no_loss():
    play = Play()
    said = []
    for _ in range(20):
        play.source.metrics = ObservationError("connection refused")
        said += play.run(20)
        play.source.metrics = observation().metrics
        said += play.run(20)
    assert said == []


def test_a_source_that_is_gone_is_a_lost_signal_G43():
    play = Play()
    play.source.metrics = ObservationError("connection refused")
    assert play.run(100) == ["SignalLost"]


@pytest.mark.parametrize(
    "status",
    [
        SignalStatus.NO_OBSERVATIONS,
        SignalStatus.FEW_SAMPLES,
        SignalStatus.RESET,
        SignalStatus.QUARANTINED,
        SignalStatus.TOP_BUCKET,
    ],
)
def test_a_signal_that_says_why_it_has_no_value_is_not_lost(status):
    play = Play()
    play.signal("ttft_p95_s", Signal(None, status))
    assert play.run(300) == []


def test_silence_during_a_resize_is_the_resize_and_no_recovery_either():
    play = Play(resize_s=180)
    play.run(10)
    play.policy.width = 4
    assert play.run(20) == ["ResizeRequested"]
    play.signal("queue_depth", Signal(None, SignalStatus.STALE))
    assert play.run(100) == []
    play.signal("queue_depth", Signal(0.0))
    assert play.run(120) == ["ResizeConverged"]
    play.signal("queue_depth", Signal(None, SignalStatus.STALE))
    play.run(60)
    play.target.apply(5)
    play.policy.width = 5
    assert play.run(100) == ["ResizeAdopted"]


def test_an_unreadable_target_is_told_and_its_return():
    play = Play()
    play.run(10)
    play.target.unreadable = TargetError("no connection")
    assert play.run(300) == ["TargetUnreadable"]
    assert play.told[0][1].message == "no connection"
    play.target.unreadable = None
    assert play.run(100) == ["TargetReadable"]


def hold(at_s, code, reason="why"):
    trail = (Stage("convergence", None, "steady", ""), Stage("switch", None, code, reason))
    return Decision(int(at_s / 5), at_s, None, 2, code, reason, trail)


@pytest.mark.parametrize(
    ("code", "reason", "warning", "after"),
    [
        ("paused", "ScalingPaused", False, ["ScalingResumed"]),
        ("paused_up", "ScalingPaused", False, ["ScalingResumed"]),
        ("paused_down", "ScalingPaused", False, ["ScalingResumed"]),
        ("overridden", "ManualOverride", False, []),
        ("fight", "WriterFight", True, []),
        ("flap_budget", "FlapBudgetSpent", True, []),
        ("no_capacity", "CapacityMissing", True, []),
        ("waiting_for_capacity", "CapacityMissing", True, []),
        ("forbidden", "WriteForbidden", True, []),
    ],
)
def test_each_hold_that_a_person_should_know_of_has_its_reason_T25(code, reason, warning, after):
    events, obs = Events(), observation()
    told = [e for i in range(20) for e in events.tell(hold(5.0 * i, code), obs, None)]
    assert told == [Event(reason, warning, "why")]
    later = [e for i in range(20, 40) for e in events.tell(hold(5.0 * i, "hold"), obs, None)]
    assert [event.reason for event in later] == after


def test_a_boot_at_the_same_width_is_no_resize():
    play = Play()
    play.target.effective = None
    play.target._due_s = play.clock.now_s() + 60
    assert play.run(120) == []


def test_a_replaced_instance_is_told():
    play = Play()
    play.run(10)
    play.target.incarnation = "two"
    assert play.run(60) == ["InstanceReplaced"]


def test_a_fleet_that_is_half_unwell_is_held_and_told_and_the_metric_moves_G43():
    play = Play(width=8)
    play.policy.width = 2
    stale = Signal(None, SignalStatus.STALE, 12.0, "11 of 20 engines")
    play.signal("queue_depth", stale)
    told = play.run(44 * 3600)
    assert play.target.writes == []
    assert told.count("SignalLost") >= 44  # again each hour, as long as it lasts
    assert set(told) == {"SignalLost"}
    assert "11 of 20 engines" in play.told[-1][1].message
    play.signal("queue_depth", Signal(0.0))
    play.run(600)
    assert play.target.writes == [2]
