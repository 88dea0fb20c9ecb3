"""Operators' switches and other writers: paused, overridden, fight, in that order."""

from dataclasses import replace

import pytest

from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.guards import Guards, Params
from autoscaler.model import Capabilities, Proposal, SetOutcome, SetResult, Tristate, WidthStatus
from autoscaler.pause import paused
from autoscaler.testing import observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0, max_reversals_per_hour=None)
BRIEF = replace(FREE, override_hold_s=60, fight_window_s=600)


class Wish:
    def __init__(self, width):
        self.width, self.asked = width, 0

    def propose(self, obs):
        self.asked += 1
        return Proposal(self.width, "wish", "a wish")

    def state(self):
        return {}


class Run:
    """A controller, and an object that anybody may write; resizes take one tick."""

    def __init__(self, params=FREE, wish=4, width=2, kept=True, **given):
        self.policy = Wish(wish)
        self.controller = Controller(self.policy, Guards(params), Convergence(), **given)
        self.width, self.writer, self.pause, self.kept = width, "", None, kept
        self.effective = width
        self.tick, self.now_s, self.writes = 0, 50_000.0, []

    def step(self, after_s=5.0):
        self.now_s += after_s
        generation = 3 if self.kept else None
        status = WidthStatus(
            self.width,
            self.effective,
            self.effective,
            generation,
            generation,
            writer=self.writer,
            pause=self.pause,
        )
        can = Capabilities(1, 16, can_shrink=Tristate.YES)
        obs = replace(observation(self.tick, self.now_s, capabilities=can), width=status)
        self.tick += 1
        decision = self.controller.step(obs)
        self.effective = self.width
        if decision.width is not None:
            self.writes.append((round(self.now_s), decision.width))
            self.width, self.writer = decision.width, "autoscaler"
            self.controller.on_outcome(decision, SetOutcome(SetResult.APPLIED), obs)
        return decision

    def other(self, width, by="kubectl-edit"):
        self.width, self.writer = width, by

    def codes(self, duration_s):
        return [self.step().code for _ in range(round(duration_s / 5))]


def test_pause_all_holds_and_the_policy_goes_on_watching():
    run = Run()
    run.pause = "all"
    decision = run.step()
    assert (decision.width, decision.code) == (None, "paused")
    assert decision.reason == "the annotation pause says 'all'"
    assert run.policy.asked == 1
    run.pause = None
    assert run.step().width == 4


@pytest.mark.parametrize("value", ["yes", "", "true", "UP", "none", "x" * 1000])
def test_a_switch_that_says_something_unknown_pauses_everything_and_says_so(value):
    run = Run()
    run.pause = value
    decision = run.step()
    assert decision.code == "paused"
    assert "is none of all, up, down and taken for all" in decision.reason
    assert len(decision.reason) < 200


def test_pause_up_holds_growth_and_lets_shrink():
    run = Run(width=4, wish=6)
    run.pause = "up"
    assert (run.step().width, run.step(60).code) == (None, "paused_up")
    run.policy.width = 2
    assert run.step().width == 2


def test_pause_down_holds_shrink_and_lets_growth():
    run = Run(width=4, wish=2)
    run.pause = "down"
    run.step()
    assert run.step(60).code == "paused_down"
    run.policy.width = 6
    assert run.step().width == 6


def test_pause_down_holds_what_is_less_than_a_failed_growth_has_left_in_the_spec():
    pause = paused("down", None)
    assert pause is not None
    assert pause.forbids(3, present=2, desired=4)
    assert not pause.forbids(5, present=2, desired=4)


def test_the_configuration_pauses_as_well_and_both_add_up():
    run = Run(pause="up")
    assert run.step().code == "paused_up"
    run.pause = "down"
    decision = run.step()
    assert decision.code == "paused"
    assert "annotation" in decision.reason
    assert "configuration" in decision.reason


def test_a_width_set_by_somebody_else_is_respected_for_a_time_and_then_the_policy_goes_on():
    run = Run(wish=2)
    run.step()
    run.other(3)
    run.policy.width = 4
    assert run.step().code == "foreign_write"
    run.step()
    held = run.step()
    assert (held.width, held.code) == (None, "overridden")
    assert held.reason == "'kubectl-edit' has set the width to 3: respected for 1800 s"
    assert set(run.codes(1700)) == {"overridden"}
    run.codes(100)
    assert [width for _, width in run.writes] == [4]


def test_a_width_that_nobody_signs_is_somebody_elses_too():
    run = Run(wish=2)
    run.step()
    run.other(3, by="")
    run.codes(10)
    assert run.step().reason.startswith("somebody else has set the width to 3")


def test_another_process_of_ours_is_no_override_A17():
    run = Run(wish=2)
    run.step()
    run.other(3, by="autoscaler")
    assert run.step().trail[0].code == "foreign_write"
    run.step()
    run.policy.width = 4
    assert run.step().width == 4


def test_an_engine_that_was_away_has_come_back_and_nobody_has_set_its_width():
    run = Run(wish=2, kept=False)
    run.step()
    run.other(3, by="")
    run.tick += 3  # ticks in which it could not be read
    run.policy.width = 4
    assert run.step().trail[0].code == "foreign_write"
    run.step()
    assert run.step().code != "overridden"
    run = Run(wish=2, kept=False)
    run.step()
    run.other(3, by="")
    run.policy.width = 4
    run.codes(10)
    assert run.step().code == "overridden", "while somebody looked, somebody must have"


def fought(params, rounds, after_s=20):
    run = Run(params)
    for _ in range(rounds):
        while run.width != 4:
            run.step()
        run.step(after_s)
        run.other(2, by="argocd-controller")
        run.step()
    return run


def test_a_fight_is_seen_said_once_and_ended_G33_A17_A26():
    run = fought(BRIEF, 3)
    assert len(run.writes) == 3
    assert run.controller.fights == 1
    run.step()
    held = run.step()
    assert (held.width, held.code) == (None, "fight")
    assert held.reason == (
        "'argocd-controller' has undone 3 of our writes, the last with width 2: "
        "nothing is written until 600 s have passed without another"
    )
    assert set(run.codes(550)) == {"fight"}
    assert run.controller.fights == 1


def test_a_fight_is_over_when_the_other_has_been_quiet_and_begins_again_with_it():
    run = fought(BRIEF, 3)
    run.codes(620)
    assert len(run.writes) == 4, "one more try"
    run.other(2, by="argocd-controller")
    run.codes(15)
    assert run.step().code == "fight"
    assert run.controller.fights == 2


def test_a_person_who_sets_the_width_three_times_does_not_fight():
    run = Run(replace(BRIEF, override_hold_s=600))
    run.step()
    run.step()
    for width in (6, 3, 5):
        run.other(width)
        run.codes(20)
    assert run.step().code == "overridden"
    assert run.controller.fights == 0
    assert len(run.writes) == 1


def test_no_hold_and_no_fight_where_none_is_wanted():
    run = fought(replace(FREE, override_hold_s=0, fight_after=None), 6)
    assert len(run.writes) == 6
    assert run.controller.fights == 0


def test_two_rounds_long_ago_are_no_part_of_a_fight():
    run = fought(BRIEF, 2)
    run.policy.width = 2
    run.codes(900)
    run.policy.width = 4
    run.step()
    run.step()
    run.other(2)
    run.codes(15)
    assert run.step().code == "overridden"
    assert run.controller.fights == 0


def test_a_watcher_is_neither_paused_nor_overridden():
    run = Run(wish=2, watches=True, pause="all")
    run.pause = "all"
    run.step()
    run.other(3)
    run.policy.width = 4
    run.codes(15)
    assert [width for _, width in run.writes] == [4]


def test_the_hold_and_the_fight_outlive_the_process():
    run = fought(BRIEF, 3)
    run.step()
    memory = run.controller.memory()
    assert (memory.foreign_by, memory.foreign_width) == ("argocd-controller", 2)
    assert len(memory.answered) == 3
    heir = Run(BRIEF)
    heir.now_s, heir.controller = run.now_s, Controller(Wish(4), Guards(BRIEF), Convergence())
    status = WidthStatus(2, 2, 2, 3, 3, writer="argocd-controller")
    obs = replace(observation(0, run.now_s + 5), width=status, memory=memory)
    assert heir.controller.step(obs).code == "fight"
