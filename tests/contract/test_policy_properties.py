"""What each shipped policy promises for any observations, not only for those somebody drew up."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autoscaler.policies
from autoscaler import policy_file, profiles
from autoscaler.model import (
    Capabilities,
    Metrics,
    Observation,
    Resize,
    Signal,
    SignalStatus,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.ports import PolicyContext

MODULES = sorted(
    path.stem
    for path in Path(autoscaler.policies.__path__[0]).glob("*.py")
    if not path.stem.startswith("_")
)
CODE = re.compile(r"[a-z][a-z0-9_]*")
SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")
RATIOS = tuple(name for name in SIGNALS if name.endswith("_ratio"))
MISSING = [status for status in SignalStatus if status is not SignalStatus.OK]
SHIFTS_S = (4096.0, -65_536.0, 2.0**22)
"""Exact in binary, as all instants here are: what differs is no rounding."""


def signals(name):
    high = 1.0 if name in RATIOS else 1e18
    values = st.floats(0, min(high, 100.0)) | st.floats(0, high) | st.just(0.0)
    return st.one_of(
        values.map(Signal),
        values.map(Signal),
        st.sampled_from(MISSING).map(lambda status: Signal(None, status)),
        values.map(lambda bound: Signal(None, SignalStatus.TOP_BUCKET, bound)),
    )


metrics = st.builds(
    Metrics,
    st.sampled_from([30.0, 300.0]),
    **{name: signals(name) for name in SIGNALS},
)
widths = st.builds(
    WidthStatus,
    desired=st.integers(0, 20),
    effective=st.none() | st.integers(0, 20),
    stable=st.none() | st.integers(0, 20),
    resizing=st.none() | st.booleans(),
    failure=st.none() | st.just("it failed"),
)
lattices = st.none() | st.sampled_from([(1, 2, 4, 8, 16), (2, 3, 5, 7, 11), (6,), ()])
capabilities = st.builds(
    Capabilities,
    st.integers(0, 3),
    st.integers(2, 16),
    lattices,
    st.sampled_from(Tristate),
    st.sampled_from([1, 2, 8]),
    pause_s=st.none() | st.floats(0, 600),
    free_gpus=st.none() | st.integers(0, 64),
)
ticks = st.tuples(
    st.sampled_from([0.0, 1.0, 5.0, 5.0, 5.0, 30.0, 4000.0]),
    metrics,
    widths,
    capabilities,
    st.booleans(),
)
stories = st.lists(st.tuples(ticks, st.integers(1, 8)), min_size=1, max_size=8)


def told(story, offset_s=0.0):
    """The observations: each one drawn is seen for some ticks, as the world goes on so."""
    now_s, made = 1_000.0 + offset_s, []
    for (after_s, shown, width, can, resizing), times in story:
        for _ in range(times):
            now_s += after_s
            resize = Resize(width.present, width.desired, now_s - 10.0) if resizing else None
            made.append(Observation(len(made), now_s, shown, width, can, Slo(), resize))
    return made


def said(kind, observations):
    context = PolicyContext(Slo(), 5.0, profiles.load("assumed-wide"))
    policy = policy_file.load(kind).build(context)
    proposals = []
    for obs in observations:
        proposal = policy.propose(obs)
        assert type(proposal.width) is int, proposal  # so no NaN and no infinity either
        assert CODE.fullmatch(proposal.code), proposal
        assert proposal.reason, proposal
        json.dumps(policy.state(), allow_nan=False)
        proposals.append(proposal)
    return proposals


@pytest.mark.parametrize("kind", MODULES)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(story=stories, shift_s=st.sampled_from(SHIFTS_S))
def test_any_observations_give_equal_whole_proposals_wherever_the_clock_began(kind, story, shift_s):
    here = said(kind, told(story))
    assert here == said(kind, told(story))
    there = said(kind, told(story, shift_s))
    assert [(p.width, p.code) for p in there] == [(p.width, p.code) for p in here]
