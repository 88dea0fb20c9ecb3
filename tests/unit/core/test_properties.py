"""What holds for every sequence of observations, not only for those somebody thought of."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoscaler import guards as guarding
from autoscaler import limits, policy_file
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.guards import Guards, Params
from autoscaler.model import (
    Capabilities,
    Proposal,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation
from autoscaler.window import RollingMax

LOW, HIGH = 2, 12


class Dice:
    """A policy that wants anything at all, as drawn."""

    def __init__(self, wishes):
        self._wishes = list(wishes)

    def propose(self, obs):
        return Proposal(self._wishes[obs.tick % len(self._wishes)], "dice", "chance")

    def state(self):
        return {}


wishes = st.lists(st.integers(-3, 20) | st.floats() | st.just(10**25), min_size=1, max_size=12)
statuses = st.sampled_from([s for s in SignalStatus if s is not SignalStatus.OK])
signals = (
    st.floats(0, 100).map(Signal)
    | st.just(Signal(0.0))
    | statuses.map(lambda status: Signal(None, status))
)
ticks = st.lists(
    st.fixed_dictionaries(
        {
            "after_s": st.sampled_from([1.0, 5.0, 5.0, 30.0, 400.0, 2000.0]),
            "ttft": signals,
            "queue": signals,
            "arrivals": signals,
            "answer": st.sampled_from(["applied"] * 4 + [r.value for r in SetResult]),
            "progress": st.sampled_from(
                ["converge"] * 3 + ["wait", "unread", "fail", "refuse", "foreign", "replace"]
            ),
            "foreign": st.integers(0, 14),
        }
    ),
    max_size=60,
)
capabilities = st.builds(
    Capabilities,
    st.integers(0, 3),
    st.integers(4, 16),
    st.none() | st.sampled_from([(1, 2, 4, 8, 16), (2, 3, 5, 7, 11), (6,), (50,)]),
    st.sampled_from(Tristate),
    st.sampled_from([1, 2]),
)
guard_params = st.builds(
    Params,
    st.just(LOW),
    st.just(HIGH),
    max_gpus=st.none() | st.integers(1, 24),
    max_step_up=st.none() | st.integers(1, 4),
    max_step_down=st.none() | st.integers(1, 4),
    cooldown_up_s=st.sampled_from([0.0, 60.0]),
    cooldown_down_s=st.sampled_from([0.0, 300.0]),
    scale_down_window_s=st.sampled_from([0.0, 20.0, 300.0]),
    max_reversals_per_hour=st.none() | st.integers(1, 3),
    allow_shrink_attempt=st.booleans(),
    settle_s=st.sampled_from([0.0, 30.0]),
)


def play(policy, params, can, script, offset_s=0.0, check=lambda *_: None):
    """Play a script of a world that does not depend on the clock's start; returns decisions."""
    controller = Controller(policy, Guards(params), Convergence(ConvergenceParams(600, 3, 90)))
    status, now_s, decided = WidthStatus(4, 4, 4, incarnation="0"), 1_000.0 + offset_s, []
    for tick, step in enumerate(script):
        now_s += step["after_s"]
        obs = observation(
            tick,
            now_s,
            capabilities=can,
            ttft_p95_s=step["ttft"],
            queue_depth=step["queue"],
            arrival_rps=step["arrivals"],
        )
        obs = replace(obs, width=status)
        decision = controller.step(obs)
        check(controller, obs, decision)
        decided.append(decision)
        if decision.width is not None:
            outcome = SetOutcome(SetResult(step["answer"]))
            controller.on_outcome(decision, outcome, obs)
            if step["answer"] == "applied":
                status = replace(status, desired=decision.width, failure=None, refusal=None)
        status = moved(status, step)
    return decided


def moved(status, step):
    """What the deployment looks like in the next tick."""
    match step["progress"]:
        case "converge":
            width = status.desired
            return replace(status, effective=width, stable=width, failure=None, refusal=None)
        case "unread":
            return replace(status, effective=None)
        case "fail" if status.effective != status.desired:
            return replace(status, failure="it failed")
        case "refuse" if status.effective != status.desired:
            return replace(status, refusal="no")
        case "foreign":
            return replace(status, desired=step["foreign"])
        case "replace":
            return replace(status, incarnation=status.incarnation + "1")
    return status


@settings(max_examples=100, deadline=None)
@given(wishes, guard_params, capabilities, ticks)
def test_widths_are_always_within_bounds_lattice_and_budget(wish, params, can, script):
    def check(_controller, _obs, decision):
        width = decision.width
        if width is not None:
            assert type(width) is int
            assert LOW <= width <= HIGH
            assert can.permits(width)
            assert params.max_gpus is None or width * can.gpus_per_width <= params.max_gpus

    play(Dice(wish), params, can, script, check=check)


@settings(max_examples=100, deadline=None)
@given(wishes, guard_params, capabilities, ticks)
def test_no_write_while_a_resize_is_in_flight(wish, params, can, script):
    def check(controller, obs, decision):
        if controller.resize is not None or obs.width.resizing:
            assert decision.width is None
        if decision.width is not None:
            # What is written from is either proven, or known to have failed.
            assert obs.width.failure or obs.width.present == obs.width.desired

    play(Dice(wish), params, can, script, check=check)


@settings(max_examples=100, deadline=None)
@given(wishes, guard_params, capabilities, ticks)
def test_missing_data_never_shrinks(wish, params, can, script):
    def check(_controller, obs, decision):
        if decision.width is None or decision.width >= obs.width.present:
            return
        assert obs.metrics.queue_depth.value is not None
        assert obs.metrics.ttft_p95_s.value is not None or obs.idle
        assert obs.width.effective is not None

    play(Dice(wish), params, can, script, check=check)


@settings(max_examples=100, deadline=None)
@given(wishes, guard_params, capabilities, ticks)
def test_equal_observations_give_equal_decisions(wish, params, can, script):
    assert play(Dice(wish), params, can, script) == play(Dice(wish), params, can, script)


@pytest.mark.parametrize("kind", ["threshold", "static", "hold"])
@settings(max_examples=40, deadline=None)
@given(
    params=guard_params,
    can=capabilities,
    script=ticks,
    offset_s=st.floats(-1e6, 1e6).map(lambda s: round(s, 3)),
)
def test_shifting_every_time_changes_no_decision(kind, params, can, script, offset_s):
    context = PolicyContext(Slo(), 5.0)
    choice = policy_file.load(kind)
    here = play(choice.build(context), params, can, script)
    there = play(choice.build(context), params, can, script, offset_s)
    assert [(d.width, d.code) for d in here] == [(d.width, d.code) for d in there]


@given(capabilities, st.integers(-2, 20), st.integers(-4, 4))
def test_neighbours_are_permitted_or_the_width_itself(can, width, steps):
    near = can.neighbour(width, steps)
    assert near == width or can.permits(near)
    assert (near - width) * steps >= 0


observed = st.builds(
    lambda status, ttft, queue, arrivals: replace(
        observation(3, 5_000.0, ttft_p95_s=ttft, queue_depth=queue, arrival_rps=arrivals),
        width=status,
    ),
    st.builds(
        WidthStatus,
        st.integers(0, 16),
        st.none() | st.integers(0, 16),
        st.none() | st.integers(0, 16),
        failure=st.none() | st.just("it failed"),
    ),
    signals,
    signals,
    signals,
)
ages = st.floats(0, 5_000)
histories = st.tuples(
    st.none() | ages,
    st.none() | ages,
    st.sampled_from([-1, 0, 1]),
    st.lists(ages, max_size=5),
    st.lists(st.tuples(ages, st.integers(0, 16)), max_size=5),
)
LIMITS = {limit.__name__: limit for limit in (*guarding._GROWING, *guarding._SHRINKING)}


def remembered(params, drawn):
    started_at_s, over_at_s, direction, reversals, wishes = drawn
    history = limits.History(params, RollingMax(params.scale_down_window_s))
    history.started_at_s, history.over_at_s, history.direction = started_at_s, over_at_s, direction
    history.reversals.extend(sorted(reversals))
    for at_s, width in sorted(wishes):
        history.wishes.add(at_s, width)
    return history


@pytest.mark.parametrize("name", sorted(LIMITS))
@settings(max_examples=100, deadline=None, derandomize=True)
@given(params=guard_params, can=capabilities, obs=observed, past=histories, data=st.data())
def test_each_limit_only_shortens_or_delays_a_change(name, params, can, obs, past, data):
    obs = replace(obs, capabilities=can)
    reach = Guards(params).reach(can)
    permitted = [w for w in range(reach.min_width, reach.max_width + 1) if reach.permits(w)]
    assume(permitted)
    wish, present = data.draw(st.sampled_from(permitted)), obs.width.present
    assume(wish != present)
    verdict = LIMITS[name](remembered(params, past), wish, obs, reach)
    if verdict is not None:
        width, code, reason = verdict
        assert type(width) is int
        assert min(wish, present) <= width <= max(wish, present)
        assert width != wish
        assert width == present or reach.permits(width)
        assert re.fullmatch("[a-z_]+", code)
        assert reason


@settings(max_examples=200, deadline=None, derandomize=True)
@given(wish=st.floats() | st.integers(), params=guard_params, can=capabilities, obs=observed)
def test_any_wish_comes_out_as_a_permitted_whole_width_or_no_change(wish, params, can, obs):
    obs = replace(obs, capabilities=can)
    allowed, stages = Guards(params).apply(Proposal(wish, "dice", "chance"), obs)
    assert type(allowed.width) is int
    reach = Guards(params).reach(can)
    assert allowed.width == obs.width.present or reach.permits(allowed.width)
    assert Guards(params).apply(Proposal(wish, "dice", "chance"), obs) == (allowed, stages)
