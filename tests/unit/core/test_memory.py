"""What outlives a process: text and back, odd clocks, garbage, and going on from it."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller import Controller
from autoscaler.convergence import Convergence, ConvergenceState
from autoscaler.guards import Guards, Params
from autoscaler.memory import STATES, Memory, decode, encode
from autoscaler.model import Capabilities, Proposal, SetOutcome, SetResult, Tristate, WidthStatus
from autoscaler.testing import observation

EPOCH_S = 1_764_000_000.0
NOW_S = 50_000.0
FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0, max_reversals_per_hour=None)
FULL = Memory(
    4,
    "resizing",
    (2, 4, 49_000.25),
    True,
    True,
    False,
    49_000.25,
    1,
    (47_000.0, 48_000.5),
    ((8, "no such capacity"),),
    "0badcafe",
    48_500.0,
    2,
    "kubectl-edit",
    (48_500.0,),
    49_000.25,
)


class Wish:
    def __init__(self, width):
        self.width = width

    def propose(self, obs):
        return Proposal(self.width, "wish", "a wish")

    def state(self):
        return {}


class Life:
    """One deployment, and the processes that steer it one after the other."""

    def __init__(self, params=FREE, wish=4, width=2, kept=True, **given):
        self.params, self.wish, self.given = params, wish, given
        self.now_s, self.text, self.writes = NOW_S, None, []
        self.status = WidthStatus(width, width, width)
        self.kept = kept
        self.start()

    def start(self, epoch_s=EPOCH_S):
        """A new process; its clock begins elsewhere, the wall clock goes on."""
        self.offset_s = 0.0 if self.text is None else 10_000.0
        self.epoch_s = epoch_s - self.offset_s
        self.controller = Controller(Wish(self.wish), Guards(self.params), Convergence())
        self.tick, self.recalled = 0, self.text is None

    def show(self, width, effective=None, **more):
        self.status = WidthStatus(width, effective, effective, **more)

    def step(self, answer="applied", after_s=5.0, **seen):
        self.now_s += after_s
        now_s = self.now_s + self.offset_s
        generation = 7 if self.kept else None
        status = replace(self.status, generation=generation, observed_generation=generation, **seen)
        can = Capabilities(1, 16, can_shrink=Tristate.YES)
        obs = replace(observation(self.tick, now_s, capabilities=can), width=status)
        if not self.recalled:
            obs = replace(obs, memory=decode(self.text, now_s, self.epoch_s))
            self.recalled = True
        self.tick += 1
        decision = self.controller.step(obs)
        if decision.width is not None:
            self.writes.append(decision.width)
            self.text = encode(self.controller.memory(decision), self.epoch_s)
            if answer == "applied":
                self.show(decision.width, decision.expected)
            if answer == "killed":
                ahead = self.controller.memory(decision, applied=False)
                self.text = encode(ahead, self.epoch_s)
                return decision
            outcome = SetOutcome(SetResult(answer), 7 if self.kept else None, "because")
            self.controller.on_outcome(decision, outcome, obs)
        self.text = encode(self.controller.memory(), self.epoch_s)
        return decision

    @property
    def state(self):
        return self.controller.convergence.state


def test_everything_comes_back_and_short_texts_stay_short():
    assert len(fields(Memory)) == 17
    assert decode(encode(FULL, EPOCH_S), NOW_S, EPOCH_S) == FULL
    assert encode(Memory(), EPOCH_S) == '{"v":1}'
    assert decode('{"v":1}', NOW_S, EPOCH_S) == Memory()
    content = json.loads(encode(FULL, EPOCH_S))
    assert content["resize"] == [2, 4, 1_764_049_000.25], "Unix seconds, for people too"


def test_ages_survive_another_start_of_the_clock():
    text = encode(FULL, EPOCH_S)
    now_s, later_s = 123.0, 60.0
    epoch_s = EPOCH_S + NOW_S + later_s - now_s
    found = decode(text, now_s, epoch_s)
    assert found.over_at_s == pytest.approx(now_s - 1000 - later_s + 0.25)
    assert found.finding == ""


def test_a_stamp_from_the_future_waits_its_whole_time_once_and_says_so_G53():
    found = decode(encode(FULL, EPOCH_S), NOW_S, EPOCH_S - 7200)  # the clock went back 2 h
    assert found.over_at_s == NOW_S
    assert found.reversals == (NOW_S, NOW_S)
    assert found.resize == (2, 4, NOW_S)
    assert found.finding == "memory from 6200 s in the future, taken for now"
    assert replace(found, finding="").says_more_than(None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[1]",
        '{"v":2}',
        '{"v":1,"desired":true}',
        '{"v":1,"desired":-2}',
        '{"v":1,"over_at_s":NaN}',
        '{"v":1,"over_at_s":"yesterday"}',
        '{"v":1,"state":"dreaming"}',
        '{"v":1,"state":"resizing"}',
        '{"v":1,"desired":4,"in_flight":true}',
        '{"v":1,"desired":4,"in_flight":true,"resize":[2,4,1]}',
        '{"v":1,"resize":[2]}',
        '{"v":1,"resize":{}}',
        '{"v":1,"reversals":3}',
        '{"v":1,"refused":[[4]]}',
        "[" * 30_000,
        '{"v":1' + " " * 40_000 + "}",
    ],
)
def test_garbage_is_a_finding_and_never_an_exception(text):
    found = decode(text, NOW_S, EPOCH_S)
    assert found.finding.startswith("memory ignored: ")
    assert found.blank
    controller = Controller(Wish(4), Guards(FREE), Convergence())
    decision = controller.step(replace(observation(now_s=NOW_S), memory=found))
    assert decision.width == 4
    assert (decision.trail[0].name, decision.trail[0].code) == ("memory", "memory_unusable")
    assert decision.trail[0].reason == found.finding


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4),
    ),
    st.sampled_from([f.name for f in fields(Memory)]),
)
def test_any_value_of_any_field_is_read_or_refused(value, name):
    found = decode(json.dumps({"v": 1, "desired": 2, name: value}), NOW_S, EPOCH_S)
    assert found.finding or found.state in STATES
    for at_s in (found.over_at_s, found.foreign_at_s, found.unanswered_at_s, *found.reversals):
        assert at_s is None or at_s <= NOW_S


def test_a_resize_in_flight_is_adopted_with_its_age_A30():
    life = Life()
    assert life.step().width == 4
    life.step(after_s=100)
    life.start()
    decision = life.step(after_s=30)
    assert (decision.width, decision.code) == (None, "resizing")
    assert decision.trail[0].reason == "the last resize 2 -> 4, in flight"
    assert life.controller.progress.ours
    resize = life.controller.resize
    assert (resize.from_width, resize.to_width) == (2, 4)
    assert life.now_s + life.offset_s - resize.requested_at_s == pytest.approx(130)
    life.show(4, 4)
    life.wish = life.controller.policy.width = 4
    assert life.step().trail[0].code == "converged"
    assert life.writes == [4]


def test_a_timeout_counts_from_the_request_and_is_reported_once_in_all_A30():
    life = Life()
    life.step()
    life.start()
    assert life.step(after_s=1300).code == "timed_out"
    life.start()
    assert life.step().code == "timed_out_hold"
    assert life.state is ConvergenceState.TIMED_OUT
    life.show(4, 4)
    assert life.step().trail[0].code == "converged"


def test_a_question_that_was_left_behind_is_held_and_then_asked_again_once_A05():
    life = Life()
    life.step("killed")
    life.start()
    assert life.step().code == "ambiguous"
    assert life.step(after_s=60).code == "ambiguous"
    life.start()
    assert life.step(after_s=60).code == "not_applied"
    assert life.step().width == 4
    assert life.writes == [4, 4]


def test_a_question_that_turns_out_answered_counts_as_our_resize_A05():
    life = Life()
    life.step("killed")
    life.show(4, 2)
    life.start()
    assert life.step().code == "resizing"
    assert life.controller.progress.ours
    life.show(4, 4)
    life.step()
    assert life.controller.memory().direction == 1
    assert life.controller.memory().resize[:2] == (2, 4)


def test_cooldowns_and_the_flap_budget_go_on_T25():
    params = replace(FREE, cooldown_up_s=300, max_reversals_per_hour=1)
    life = Life(params)
    life.step()
    life.show(4, 4)
    life.step(after_s=100)
    life.wish = 6
    life.start()
    assert life.step(after_s=100).code == "cooldown_up"
    life.start()
    assert life.step(after_s=100).code == "cooldown_up"
    life.start()
    assert life.step(after_s=100).width == 6
    life.show(6, 6)
    life.step(after_s=100)
    life.wish = 4
    life.start()
    assert life.step().code == "warming_up"  # T11: no shrink on the history of another process
    assert life.step(after_s=30).width == 4  # the first change of direction
    life.show(4, 4)
    life.step(after_s=100)
    life.wish = 6
    life.start()
    assert life.step(after_s=400).code == "flap_budget"


def test_a_restart_and_a_proof_that_has_to_be_waited_for_move_no_timer_G28():
    life = Life(replace(FREE, cooldown_up_s=300))
    life.step()
    life.show(4, 4)
    life.step()
    over_at_s = life.controller.memory().over_at_s
    life.wish = 6
    life.start()
    life.show(4, None)
    assert life.step(after_s=200).code == "width_unknown"
    life.show(4, 4)
    assert life.step().code == "cooldown_up"
    assert life.controller.memory().over_at_s == pytest.approx(over_at_s + life.offset_s)
    assert life.step(after_s=100).width == 6


def test_refusals_outlive_the_process_until_something_changes():
    life = Life()
    assert life.step("refused").width == 4
    life.start()
    held = life.step()
    assert (held.width, held.code) == (None, "refused")
    assert "because" in held.reason
    life.start()
    assert life.step(incarnation="another").width == 4


def test_what_somebody_else_did_meanwhile_is_noticed():
    life = Life()
    life.step()
    life.show(4, 4)
    life.step()
    life.start()
    life.show(6, 6)
    assert life.step().trail[1].code == "foreign_write"
    assert life.step().code == "overridden"


def test_an_engine_without_an_object_that_went_back_has_failed_and_not_been_overridden():
    life = Life(kept=False)
    life.step()
    life.show(2, 2)
    life.start()
    assert life.step().code == "ambiguous"
    assert life.step(after_s=90).code == "not_applied"
    assert life.step().width == 4


def test_an_empty_memory_is_like_none():
    life = Life()
    life.text = encode(Memory(), EPOCH_S)
    life.start()
    assert life.step().width == 4


def test_only_news_are_kept():
    assert not Memory(2, "converged").says_more_than(None)
    assert FULL.says_more_than(None)
    assert not FULL.says_more_than(FULL)
    assert not replace(FULL, reversals=FULL.reversals[1:]).says_more_than(FULL)
    assert replace(FULL, reversals=(*FULL.reversals, 49_500.0)).says_more_than(FULL)
    assert replace(FULL, in_flight=False, state="converged").says_more_than(FULL)


@pytest.mark.parametrize("step_s", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_neither_pins_nor_skips_a_cool_down_for_a_running_process_G53(
    step_s,
):
    life = Life(replace(FREE, cooldown_up_s=300))
    life.step()
    life.show(4, 4)
    life.step()
    life.wish = 6
    life.controller.policy.width = 6
    life.epoch_s += step_s  # what is written down moves, what is decided does not
    assert life.step(after_s=290).code == "cooldown_up"
    assert life.step(after_s=10).width == 6
    assert json.loads(life.text)["resize"][2] == pytest.approx(EPOCH_S + step_s + life.now_s)


def test_a_restart_over_a_wall_clock_that_went_back_waits_once_and_then_grows_G53():
    life = Life(replace(FREE, cooldown_up_s=300))
    life.step()
    life.show(4, 4)
    life.step()
    life.wish = 6
    life.start(EPOCH_S - 7200.0)
    assert life.step(after_s=100).code == "cooldown_up"
    assert life.step(after_s=290).code == "cooldown_up"
    assert life.step(after_s=10).width == 6  # 300 s, not 2 h
