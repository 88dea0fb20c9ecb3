"""The controller: what it asks for, what it remembers, what it holds for."""

# test names carry case ids

from dataclasses import replace

import pytest

from autoscaler import policy_file
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.guards import Guards, Params
from autoscaler.model import (
    Capabilities,
    Proposal,
    Resize,
    SetOutcome,
    SetResult,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0, max_reversals_per_hour=None)
CAN = Capabilities(1, 16, can_shrink=Tristate.YES)


class Wish:
    """A policy that wants what it is told, and remembers what it was shown."""

    def __init__(self, width):
        self.width = width
        self.seen = []

    def propose(self, obs):
        self.seen.append(obs)
        return Proposal(self.width, "wish", "a wish")

    def state(self):
        return {"asked": len(self.seen)}


class Run:
    """A controller and the deployment it is shown, tick by tick."""

    def __init__(self, wish=4, width=2, params=FREE, can=CAN):
        self.policy = Wish(wish)
        self.controller = Controller(self.policy, Guards(params), Convergence())
        self.status = WidthStatus(width, width, width)
        self.can, self.tick, self.now_s = can, 0, 50_000.0

    def step(self, answer=None, after_s=5.0, **signals):
        self.now_s += after_s
        obs = observation(self.tick, self.now_s, capabilities=self.can, **signals)
        obs = replace(obs, width=self.status)
        self.tick += 1
        decision = self.controller.step(obs)
        if decision.width is not None and answer is not None:
            outcome = SetOutcome(SetResult(answer), detail=f"{answer}!")
            self.controller.on_outcome(decision, outcome, obs)
        return decision


def shown(width, effective=None):
    return WidthStatus(width, effective, effective)


def test_a_wish_becomes_an_absolute_conditional_write():
    decision = Run().step()
    assert (decision.width, decision.expected, decision.code) == (4, 2, "wish")
    assert [s.name for s in decision.trail] == ["convergence", "policy"]


def test_no_wish_no_write_and_the_policys_reason():
    decision = Run(wish=2).step()
    assert (decision.width, decision.code) == (None, "wish")


def test_one_resize_at_a_time_and_the_wish_is_only_recorded_A09_G30():
    run = Run()
    run.step("applied")
    run.policy.width = 8
    for _ in range(20):
        run.status = shown(4, 2)
        decision = run.step()
        assert (decision.width, decision.code) == (None, "resizing")
        assert decision.trail[1].width == 8
    assert run.policy.seen[-1].resize == Resize(2, 4, 50_005.0)
    assert len(run.policy.seen) == 21  # asked every tick
    run.status = shown(4, 4)
    assert run.step().width == 8
    assert run.policy.seen[-1].resize is None


def test_conflict_and_refusal_neither_begin_a_resize_nor_stop_the_loop_A11_A12():
    run = Run()
    assert run.step("conflict").width == 4
    assert run.step("conflict").width == 4  # read again, decided again
    assert run.step("refused").width == 4
    held = run.step()
    assert (held.width, held.code) == (None, "refused")
    assert "refused!" in held.reason


def test_a_refused_growth_is_asked_for_again_after_ten_minutes_and_a_decrease_never():
    run = Run()
    run.step("refused")
    assert run.step(after_s=590).code == "refused"  # a quota that was raised is not seen from here
    assert run.step("refused", after_s=10).width == 4
    assert [run.step(after_s=299).width for _ in range(2)] == [None, None]
    run = Run(wish=2, width=4)
    run.step()
    run.step("refused", after_s=60)
    assert [run.step(after_s=3600).code for _ in range(3)] == ["shrink_unsupported"] * 3


def test_a_refused_width_is_asked_for_again_at_once_when_something_changed():
    run = Run()
    run.step("refused")
    assert [run.step().width for _ in range(3)] == [None, None, None]
    run.policy.width = 3  # another width is another question
    assert run.step().width == 3
    run.policy.width = 4
    run.can = replace(CAN, max_width=12)
    assert run.step("refused").width == 4
    run.status = replace(run.status, incarnation="new")
    run.step()
    assert run.step().width == 4


def test_a_refused_decrease_stops_all_decreases_A06():
    run = Run(wish=2, width=4)
    run.step()
    run.step("refused", after_s=60)
    assert run.step().code == "shrink_unsupported"
    run.policy.width = 3
    assert run.step().code == "shrink_unsupported"
    run.policy.width = 6
    assert run.step().width == 6


def test_can_shrink_no_is_never_even_tried_A06():
    run = Run(wish=2, width=4, can=replace(CAN, can_shrink=Tristate.NO))
    run.step()
    decision = run.step(after_s=600)
    assert (decision.width, decision.code) == (None, "shrink_unsupported")


def test_an_ambiguous_write_is_held_and_never_resent_A05_A26():
    run = Run()
    assert run.step("ambiguous").width == 4
    held = [run.step() for _ in range(17)]
    assert {d.width for d in held} == {None}
    assert {d.code for d in held} == {"ambiguous"}
    run.status = shown(4, 2)
    assert run.step().code == "resizing"
    run.status = shown(4, 4)
    assert run.step().width is None
    assert run.step().width is None


def test_an_ambiguous_write_that_never_happened_is_decided_anew_A05():
    run = Run()
    run.step("ambiguous")
    run.step(after_s=91)
    assert run.step().width == 4


def test_forbidden_holds_backs_off_and_is_not_ready_A12():
    run = Run()
    assert run.controller.ready
    run.step("forbidden")
    assert not run.controller.ready
    assert (run.step().code, run.step(after_s=20).code) == ("forbidden", "forbidden")
    assert run.step("forbidden", after_s=5).width == 4
    assert run.step(after_s=55).code == "forbidden"
    assert run.step("applied", after_s=5).width == 4
    assert run.controller.ready


def test_width_unknown_at_the_start_holds():
    run = Run()
    run.status = WidthStatus(2, None)
    assert run.step().code == "width_unknown"
    run.status = shown(2, 2)
    run.step()
    assert run.step().width == 4


def test_after_a_failure_the_next_decision_is_from_the_real_width_A20():
    run = Run()
    run.step("applied")
    run.status = WidthStatus(4, 2, 2, failure="grow failed")
    held = run.step()
    assert (held.width, held.code) == (None, "already_desired")
    run.policy.width = 6
    decision = run.step()
    assert (decision.width, decision.expected) == (6, 4)
    run.policy.width = 2  # no change from the real width, so no revert behind anybody's back
    assert run.step().width is None


def test_timed_out_holds_for_ever_and_never_grows_further_A07():
    run = Run(wish=8)
    run.step("applied")
    run.status = shown(8, 4)
    run.policy.width = 16
    codes = [run.step(after_s=100).code for _ in range(20)]
    assert codes.count("timed_out") == 1
    assert codes[-1] == "timed_out_hold"


def test_foreign_writes_count_as_resizes_so_the_flap_budget_ends_the_fight_G33():
    alone = replace(FREE, override_hold_s=0, fight_after=None)
    run = Run(params=replace(alone, max_reversals_per_hour=3))
    writes = 0
    for _ in range(20):
        decision = run.step("applied")
        if decision.width is not None:
            writes += 1
            run.status = shown(4, 4)
            run.step()
            run.status = shown(2, 2)  # a GitOps tool re-applies its own width
    assert writes == 2
    assert decision.code == "flap_budget"


def test_a_tick_is_decided_once_T16():
    run = Run()
    first = run.step()
    run.tick -= 1
    again = run.step()
    assert first.width == 4
    assert (again.width, again.code) == (None, "already_decided")
    assert again.tick == first.tick  # by which the log tells
    assert run.policy.state() == {"asked": 1}


@pytest.mark.parametrize("kind", ["threshold", "pid", "hpa", "kpa", "dynamo_like"])
def test_two_targets_of_one_policy_share_no_state_T24(kind):
    choice = policy_file.load(kind)
    context = PolicyContext(Slo(), 5.0)
    hurt, well, alone = (Controller(choice.build(context), Guards(FREE)) for _ in range(3))
    hurting = {"ttft_p95_s": 20.0, "queue_depth": 400.0, "queue_wait_s": 40.0, "running": 64.0}
    calm = {"ttft_p95_s": 0.2, "queue_depth": 0.0, "queue_wait_s": 0.0, "running": 40.0}
    seen = []
    for tick in range(60):
        at_s = 50_000.0 + 5.0 * tick
        hurt.step(observation(tick, at_s, 4, CAN, **hurting))
        calmly = observation(tick, at_s, 4, CAN, **calm)
        seen.append((well.step(calmly), alone.step(calmly)))
    assert all(beside == by_itself for beside, by_itself in seen)
    assert well.policy.state() == alone.policy.state()
    assert hurt.proposal.width > well.proposal.width


def test_controllers_share_nothing_T24():
    one, two = Run(), Run()
    one.step("refused")
    one.step()
    assert two.step().width == 4


def test_width_zero_is_a_width_where_the_bounds_include_it_A34():
    zero = {"width": 0, "can": replace(CAN, min_width=0), "params": replace(FREE, min_width=0)}
    assert Run(wish=2, **zero).step().width == 2
    assert Run(wish=0, **zero).step().width is None


def test_R23_a_deployment_that_somebody_scaled_to_zero_is_left_alone_A34():
    decision = Run(wish=2, width=0).step()
    assert (decision.width, decision.code) == (None, "scaled_to_zero")


def test_absurd_wishes_saturate_T18():
    assert Run(wish=10**30).step().width == 16
    assert Run(wish=float("inf")).step().width == 16
    assert Run(wish=float("nan")).step().code == "non_finite"


def test_policies_see_what_is_reachable():
    run = Run(params=replace(FREE, max_width=6))
    run.step()
    assert run.policy.seen[0].capabilities.max_width == 6


def test_cooldown_counts_from_the_end_of_the_resize():
    run = Run(params=replace(FREE, cooldown_up_s=60))
    run.step("applied")
    run.policy.width = 8
    run.status = shown(4, 2)
    run.step(after_s=170)
    run.status = shown(4, 4)
    assert run.step().code == "cooldown_up"
    assert run.step(after_s=55).code == "cooldown_up"
    assert run.step().width == 8


def test_on_outcome_needs_a_write():
    run = Run(wish=2)
    decision = run.step()
    with pytest.raises(ValueError, match="asked for no write"):
        run.controller.on_outcome(decision, SetOutcome(SetResult.APPLIED), observation())


@pytest.mark.parametrize(
    ("safe", "written"), [(Tristate.UNKNOWN, None), (Tristate.NO, None), (Tristate.YES, 2)]
)
def test_only_where_it_is_known_to_be_safe_is_a_width_taken_back_A21(safe, written):
    run = Run(wish=2, width=4, can=replace(CAN, can_shrink=safe))
    run.step()
    decision = run.step(after_s=600)
    assert decision.width == written
    assert decision.code == ("wish" if written else "shrink_unsupported")


def test_cycles_are_limited_and_the_one_that_hangs_is_named_A24():
    run = Run(params=replace(FREE, max_reversals_per_hour=4))
    run.step()
    asked = []
    for cycle in range(12):
        run.policy.width = 2 if cycle % 2 else 4
        decision = run.step("applied", after_s=60)
        asked.append(decision.width)
        if decision.width is not None:
            run.status = shown(decision.width, decision.expected)
            run.step()
            run.status = shown(decision.width, decision.width)
            run.step()
    assert asked[:5] == [4, 2, 4, 2, 4]
    assert set(asked[5:]) == {None}
    assert decision.code == "flap_budget"
    hanging = Run()
    hanging.step("applied")
    hanging.status = shown(4, 2)
    codes = [hanging.step(after_s=100).code for _ in range(15)]
    assert codes.index("timed_out") == 11  # 1200 s, the engine's own limit is 600 s an attempt
    assert codes[12:] == ["timed_out_hold"] * 3
