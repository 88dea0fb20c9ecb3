"""Growth and the GPUs that there are: what is held, what is cut down, what is let pass."""

import pytest

from autoscaler.errors import ConfigError
from autoscaler.guards import Guards, Params
from autoscaler.model import Capabilities, Layer, Proposal, Tristate, WidthStatus
from autoscaler.testing import observation

WHY = "6 of 8 nvidia.com/gpu of queue pool are taken"


def apply(wish, free, *, can_shrink=Tristate.NO, required="auto", width=None, **limits):
    valid = limits.pop("valid_widths", None)
    can = Capabilities(2, 16, valid, can_shrink, 2, free_gpus=free, capacity=WHY)
    obs = observation(capabilities=can)
    if width is not None:
        obs = type(obs)(0, obs.now_s, obs.metrics, width, can, obs.slo)
    guards = Guards(Params(min_width=2, require_capacity=required, **limits))
    allowed, stages = guards.apply(Proposal(wish, "wish", "as told"), obs)
    return allowed, stages


@pytest.mark.parametrize(
    ("wish", "free", "width", "code"),
    [
        (4, 4, 4, "wish"),
        (4, 5, 4, "wish"),
        (4, 3, 3, "wish"),  # one rank more is nearer to what is needed, and can be had
        (4, 1, 2, "no_capacity"),
        (4, 0, 2, "no_capacity"),
        (4, None, 4, "wish"),  # unknown is no reason against
        (2, 0, 2, "wish"),
    ],
)
def test_growth_that_cannot_be_undone_goes_no_further_than_the_gpus_that_are_there(
    wish, free, width, code
):
    allowed, stages = apply(wish, free)
    assert (allowed.width, allowed.code) == (width, code)
    assert [stage.code for stage in stages] == (["no_capacity"] if width < wish else [])


def test_the_reason_names_the_layer_and_the_numbers():
    allowed, _ = apply(4, 1)
    assert allowed.reason == f"4 more GPUs are needed for width 4, there are 1: {WHY}"


@pytest.mark.parametrize(
    ("can_shrink", "required", "held"),
    [
        (Tristate.NO, "auto", True),
        (Tristate.UNKNOWN, "auto", True),
        (Tristate.YES, "auto", False),
        (Tristate.YES, "always", True),
        (Tristate.NO, "never", False),
    ],
)
def test_when_missing_gpus_hold(can_shrink, required, held):
    allowed, _ = apply(4, 0, can_shrink=can_shrink, required=required)
    assert (allowed.code == "no_capacity") == held


def test_on_a_lattice_the_largest_width_that_fits():
    assert apply(8, 8, valid_widths=(2, 4, 8, 16))[0].width == 4
    allowed, _ = apply(8, 2, valid_widths=(2, 4, 8, 16))
    assert (allowed.width, allowed.code) == (2, "no_capacity")


def test_what_a_failed_growth_holds_already_is_not_needed_again_A20():
    after = WidthStatus(4, 2, 2, layers=(Layer("allocated", 4),))
    assert apply(6, 4, width=after)[0].width == 6
    # Between the spec and the width that serves there is nothing to ask for.
    assert apply(6, 2, width=after)[0].width == 5
    allowed, _ = apply(6, 0, width=WidthStatus(4, 2, 2))
    assert (allowed.width, allowed.code) == (2, "no_capacity")


def test_the_step_limit_comes_first_so_that_a_step_that_fits_is_taken():
    allowed, stages = apply(8, 4, max_step_up=2)
    assert allowed.width == 4
    assert [stage.code for stage in stages] == ["step_limit"]


def test_the_parameter_is_one_of_three_words():
    with pytest.raises(ConfigError, match=r"guards.require_capacity: must be one of auto, always"):
        Params(require_capacity="yes")


def test_policies_see_what_is_free_now():
    guards = Guards(Params())
    for free in (8, 8, 2, None):
        reach = guards.reach(Capabilities(1, 8, free_gpus=free))
        assert reach.free_gpus == free
