"""A huge backlog beside a rate of nearly nothing, for every shipped policy."""

import math

import pytest

from autoscaler import policy_file, profiles
from autoscaler.controller import Controller
from autoscaler.guards import Guards, Params
from autoscaler.model import Capabilities, Signal, SignalStatus, Slo, Tristate
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0)
CAN = Capabilities(1, 16, can_shrink=Tristate.YES)
STARVED = {
    "queue_depth": 1e9,
    "running": 64.0,
    "completion_rps": 0.001,
    "arrival_rps": 0.001,
    "queue_wait_s": 1e12,
    "ttft_p95_s": Signal(None, SignalStatus.TOP_BUCKET, 2560.0),
    "ttft_observations": 1.0,
}
TELLS = {
    "hpa": "running 64,",
    "kpa": "1e+09 in the system",
    "pid": "1e+09 waiting",
    "queue_threshold": "queue_depth 1e+09,",
    "threshold": "queue 1e+09",
    "wva_like": "spare queue -2.5e+08 a width",
    "dynamo_like": "would wait 1e+12 s",
    "model_based": "1000000000 waiting",
}


@pytest.mark.parametrize(
    "kind",
    TELLS,
)
def test_a_wish_is_never_below_what_is_there_and_the_true_number_is_told_G27(kind):
    context = PolicyContext(Slo(), 5.0, profiles.load("assumed-wide"))
    controller = Controller(policy_file.load(kind).build(context), Guards(FREE))
    asked, told = set(), ""
    for tick in range(40):
        obs = observation(tick, 1000.0 + 5.0 * tick, 4, CAN, signals=STARVED)
        decision = controller.step(obs)
        policy = next(stage for stage in decision.trail if stage.name == "policy")
        assert policy.width >= 4
        assert math.isfinite(policy.width)
        asked.add(decision.width)
        told += policy.reason
    assert asked <= {None, *range(5, 17)}
    assert asked != {None}
    assert TELLS[kind] in told
