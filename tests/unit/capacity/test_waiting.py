"""A resize whose members do not come: which layer blocks, since when, and the way back."""

import pytest

from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as Patience
from autoscaler.guards import Guards, Params
from autoscaler.model import (
    Capabilities,
    Layer,
    Observation,
    SetOutcome,
    SetResult,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.policies.static import Params as Width
from autoscaler.policies.static import Static
from autoscaler.testing import observation

NAMES = ("desired", "admitted", "allocated", "ray", "effective")
DETAIL = "new members are not admitted, allocated and registered"


def read(desired, *values, detail=DETAIL, **rest):
    layers = tuple(Layer(n, v, "") for n, v in zip(NAMES, values, strict=True))
    effective = values[-1]
    return WidthStatus(desired, effective, 2, layers=layers, detail=detail, **rest)


SHORT = read(8, 8, 4, 4, 2, 2)


class Play:
    def __init__(self, **patience):
        self.convergence = Convergence(Patience(**patience))
        self.now_s = 5_000.0
        self.convergence.advance(read(2, 2, 2, 2, 2, 2), self.now_s)
        self.convergence.on_written(8, 2, SetOutcome(SetResult.APPLIED), self.now_s)

    def tick(self, status, after_s=5.0):
        self.now_s += after_s
        return self.convergence.advance(status, self.now_s)


def test_a_lasting_lack_names_the_layer_and_how_long_it_lasts_A07():
    play = Play()
    codes = [play.tick(SHORT).code for _ in range(12)]
    assert set(codes) == {"resizing"}  # the first minute is what a good resize takes
    said = play.tick(SHORT)
    assert (said.code, said.may_write) == ("waiting_for_capacity", False)
    assert said.reason == f"admitted 4 of 8 for 1 min: {DETAIL}"
    said = play.tick(SHORT, 660.0)
    assert said.reason == f"admitted 4 of 8 for 12 min: {DETAIL}"


@pytest.mark.parametrize(
    ("values", "code", "begins"),
    [
        ((8, 4, 4, 2, 2), "waiting_for_capacity", "admitted 4 of 8 for 2 min"),
        ((8, 8, 4, 2, 2), "waiting_for_capacity", "allocated 4 of 8 for 2 min"),
        ((8, 8, 8, 6, 2), "waiting_for_ray", "ray 6 of 8 for 2 min"),
        # The engine is at it, which takes minutes, and a layer that is unread says nothing.
        ((8, 8, 8, 8, 2), "resizing", "waiting for layer effective: 2 of 8"),
        ((8, None, None, None, 2), "resizing", "waiting for layer admitted: unread"),
        ((2, 2, 2, 2, 2), "resizing", "waiting for layer desired: 2 of 8"),
    ],
)
def test_each_layer_has_its_word(values, code, begins):
    play = Play()
    status = read(8, *values)
    play.tick(status)
    said = play.tick(status, 120.0)
    assert said.code == code
    assert said.reason.startswith(begins)


def test_the_wait_begins_anew_when_the_layer_moves_but_not_for_an_unread_pass():
    play = Play()
    play.tick(read(8, 8, 4, 4, 2, 2))
    play.tick(read(8, 8, None, None, None, None), 50.0)
    assert play.tick(read(8, 8, 4, 4, 2, 2), 20.0).code == "waiting_for_capacity"
    assert play.tick(read(8, 8, 6, 4, 2, 2)).code == "resizing"
    assert play.tick(read(8, 8, 6, 4, 2, 2), 65.0).code == "waiting_for_capacity"


def test_after_the_time_out_the_layer_is_still_named():
    play = Play(timeout_s=600)
    play.tick(SHORT)
    over = play.tick(SHORT, 720.0)
    assert over.code == "timed_out"
    assert over.reason == f"not over after 725 s: admitted 4 of 8 for 12 min: {DETAIL}"
    later = play.tick(SHORT, 60.0)
    assert (later.code, later.reason) == ("timed_out_hold", f"admitted 4 of 8 for 13 min: {DETAIL}")


def test_the_next_resize_has_its_own_wait():
    play = Play()
    play.tick(SHORT, 5.0)
    play.tick(read(8, 8, 8, 8, 8, 8), 300.0)
    play.convergence.on_written(16, 8, SetOutcome(SetResult.APPLIED), play.now_s)
    short = read(16, 16, 4, 4, 8, 8)
    assert play.tick(short).code == "resizing"
    assert play.tick(short, 30.0).code == "resizing"


class Steered:
    """A controller that wants a width, on a target that tells of replicas."""

    def __init__(self, can_shrink=Tristate.YES, wanted=4):
        limits = Params(scale_down_window_s=0, cooldown_down_s=0, settle_s=0)
        patience = Convergence(Patience(timeout_s=600))
        self.controller = Controller(Static(Width(wanted)), Guards(limits), patience)
        self.can = Capabilities(1, 8, can_shrink=can_shrink)
        self.number, self.now_s = 0, 5_000.0

    def tick(self, desired, serving, layer="available", after_s=5.0, **rest):
        layers = (Layer("replicas", desired), Layer(layer, serving))
        status = WidthStatus(desired, serving, 2, layers=layers, **rest)
        base = observation()
        self.number, self.now_s = self.number + 1, self.now_s + after_s
        obs = Observation(self.number, self.now_s, base.metrics, status, self.can, Slo())
        decision = self.controller.step(obs)
        if decision.width is not None:
            self.controller.on_outcome(decision, SetOutcome(SetResult.APPLIED), obs)
        return decision


def test_members_that_never_come_are_given_up_and_the_spec_goes_back_to_what_serves_A10_G32_G40():
    found = Steered()
    assert found.tick(2, 2).width == 4
    assert found.tick(4, 2).width is None
    assert found.tick(4, 2, after_s=500.0).width is None  # bounded, and not sooner
    back = found.tick(4, 2, after_s=120.0)
    assert (back.width, back.expected, back.code) == (2, 4, "reverted")
    assert back.reason.startswith("back to the width that serves: not over after 62")
    assert found.tick(2, 2).width == 4  # the wish stands, and may be granted now


def test_two_of_six_that_never_start_keep_nobody_from_shrinking_G32():
    found = Steered(wanted=6)
    assert found.tick(4, 4).width == 6
    waited = [found.tick(6, 4, "ready", after_s=50.0) for _ in range(11)]
    assert {decision.width for decision in waited} == {None}
    assert found.tick(6, 4, "ready", after_s=60.0).width == 4
    found.controller.policy = Static(Width(2))  # the load has gone
    assert found.tick(4, 4).width == 2


@pytest.mark.parametrize(
    ("can_shrink", "layer", "rest"),
    [
        (Tristate.NO, "available", {}),
        (Tristate.UNKNOWN, "available", {}),
        (Tristate.YES, "available", {"resizing": True}),
        (Tristate.YES, "available", {"generation": 2, "observed_generation": 1}),
        (Tristate.YES, "rank_bound", {}),  # the engine's own: only looking tells
        (Tristate.YES, "effective", {}),
        (Tristate.YES, "available", {"pause": "all"}),
        (Tristate.YES, "available", {"pause": "down"}),
    ],
)
def test_there_is_no_way_back_where_it_cannot_be_gone_or_the_engine_is_at_it(
    can_shrink, layer, rest
):
    found = Steered(can_shrink)
    found.tick(2, 2)
    found.tick(4, 2, layer, **rest)
    decisions = [found.tick(4, 2, layer, after_s=400.0, **rest) for _ in range(5)]
    assert [decision.width for decision in decisions] == [None] * 5
    assert decisions[-1].code == "timed_out_hold"


def test_what_somebody_else_asked_for_is_theirs_to_take_back():
    found = Steered(wanted=2)
    found.tick(2, 2)
    assert {found.tick(4, 2, after_s=100.0).width for _ in range(20)} == {None}


def test_nothing_more_is_asked_for_while_members_are_lacking_A07():
    found = Steered(Tristate.NO, wanted=8)
    found.tick(2, 2)
    assert {found.tick(8, 4, "allocated").width for _ in range(240)} == {None}
