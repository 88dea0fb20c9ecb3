"""Changed parameters in a running controller, and the replay that has to follow them."""

import json
from dataclasses import replace

import pytest

from autoscaler import limits, policy_file, profiles
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.decisions import Entry, encode
from autoscaler.errors import ConfigError, TargetError, TraceError
from autoscaler.loop import ControlLoop
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping
from autoscaler.policies import threshold
from autoscaler.policy_file import PolicyChoice
from autoscaler.redaction import Redaction
from autoscaler.steering import Steering, described
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation
from autoscaler.wiring.decision_file import DecisionFile, FileLog
from autoscaler.wiring.replayed import replay

QUIET = observation(ttft_p95_s=0.1, queue_depth=0.0).metrics
BURNING = observation(ttft_p95_s=20.0, queue_depth=90.0).metrics


def a_threshold(**params):
    params = {"up_for_s": 0.0, "down_for_s": 0.0, "remember_s": 0.0, **params}
    return PolicyChoice("threshold", "threshold", threshold.Params(**params))


def a_steering(policy=None, profile=None, **guards):
    guards = {"cooldown_down_s": 0, "scale_down_window_s": 0, "settle_s": 0, **guards}
    return Steering(
        policy or a_threshold(),
        Slo(),
        5.0,
        from_mapping(limits.Params, guards, "guards"),
        ConvergenceParams(),
        profile and profiles.load(profile),
        profile,
    )


class World:
    """A loop that logs to a file, as a worker runs it."""

    def __init__(self, folder, steering, name="chat"):
        self.path = folder / "decisions.jsonl"
        self.name = name
        self.clock = ManualClock()
        self.target = FakeTarget(self.clock, 2, resize_s=12.0)
        self.source = FakeSource(QUIET)
        self.begin(steering)

    def begin(self, steering):
        self.steering = steering
        self.loop = ControlLoop(
            self.source, self.target, steering.build(), self.clock, self.log(), Slo(), 5.0
        )

    def log(self):
        file = DecisionFile(self.path, lambda _: None)
        return FileLog(file, self.steering.describe(self.name), Redaction(), lambda: None)

    def retune(self, steering):
        steering.retune(self.loop.controller, self.steering)
        self.steering = steering
        self.loop.log = self.log()

    def ticks(self, count, metrics):
        self.source.metrics = metrics
        for _ in range(count):
            self.loop.tick()
            self.clock.advance(5.0)


def replayed(path, policy=None):
    notices = []
    result = replay(path, notices.append, policy)
    assert notices == []
    return result


def test_a_description_is_read_back_whole():
    for profile in (None, "h100-dsv2lite-elastic-ep-rdma"):
        before = a_steering(policy_file.load("static:4"), profile, max_gpus=16)
        content = json.loads(json.dumps(before.describe("chat")))
        assert described(content, "log:1") == before


@pytest.mark.parametrize("key", ["policy", "slo", "tick_s", "guards", "convergence"])
def test_an_incomplete_description_is_refused(key):
    content = a_steering().describe("chat")
    del content[key]
    with pytest.raises(ConfigError, match=rf"log:1: controller\.{key}: must be recorded"):
        described(content, "log:1")
    with pytest.raises(ConfigError, match="log:1: controller: must describe a controller"):
        described({**content, key: {}, "policy": {}}, "log:1")


def test_cool_downs_and_the_resize_in_flight_survive_changed_parameters(tmp_path):
    world = World(tmp_path, a_steering(cooldown_up_s=60, max_reversals_per_hour=1))
    world.ticks(2, BURNING)
    assert world.target.writes == [3]
    world.retune(a_steering(a_threshold(step_up=2), cooldown_up_s=90, max_reversals_per_hour=1))
    assert world.loop.controller.resize.to_width == 3
    world.ticks(18, BURNING)  # the resize was over after 15 s; 90 s from there are not
    assert world.target.writes == [3]
    world.ticks(3, BURNING)
    assert world.target.writes == [3, 5]
    world.ticks(5, QUIET)
    world.retune(replace(world.steering, guards=limits.Params(settle_s=0, scale_down_window_s=0)))
    assert world.loop.controller.guards.params.max_reversals_per_hour == 4
    assert replayed(world.path).equal == 28


def test_a_longer_scale_down_window_has_to_fill_first(tmp_path):
    world = World(tmp_path, a_steering(scale_down_window_s=10))
    world.target.apply(4)
    world.ticks(8, QUIET)
    world.retune(a_steering(scale_down_window_s=100))
    before = list(world.target.writes)
    world.ticks(19, QUIET)
    assert world.target.writes == before
    world.ticks(4, QUIET)
    assert len(world.target.writes) == len(before) + 1


def test_a_policy_keeps_its_state_unless_something_it_is_built_from_changed(tmp_path):
    world = World(tmp_path, a_steering())
    policy = world.loop.controller.policy
    world.retune(a_steering(cooldown_up_s=7))
    assert world.loop.controller.policy is policy
    world.retune(replace(world.steering, convergence=ConvergenceParams(timeout_s=9)))
    assert world.loop.controller.policy is policy
    assert world.loop.controller.convergence.params.timeout_s == 9
    world.retune(replace(world.steering, slo=Slo(1.0)))
    assert world.loop.controller.policy is not policy


def test_a_replay_follows_restarts_changes_gaps_and_several_targets_S18(tmp_path):
    one = World(tmp_path, a_steering())
    two = World(tmp_path, a_steering(policy_file.load("static:6")), "batch")
    for metrics in (QUIET, BURNING, QUIET):
        one.ticks(7, metrics)
        two.ticks(7, metrics)
    one.retune(a_steering(a_threshold(step_up=2)))
    one.target.unreadable = TargetError("gone")
    one.ticks(3, BURNING)
    one.target.unreadable = None
    one.ticks(7, BURNING)
    two.begin(two.steering)  # the program was started anew
    two.ticks(5, QUIET)
    result = replayed(one.path)
    assert result.differences == []
    assert (result.decisions, result.equal, result.unobserved) == (54, 54, 3)
    assert (result.starts, result.targets) == (3, ["chat", "batch"])


def test_the_first_difference_is_named(tmp_path):
    world = World(tmp_path, a_steering())
    world.ticks(9, BURNING)
    lines = world.path.read_text("utf-8").splitlines()
    changed = json.loads(lines[4])
    changed["decision"]["code"] = "something_else"
    lines[4] = json.dumps(changed)
    world.path.write_text("\n".join(lines) + "\n", "utf-8")
    result = replayed(world.path)
    assert (result.decisions, result.equal) == (9, 8)
    (found,) = result.differences
    assert (found.line, found.tick, found.target, found.what) == (5, 4, "chat", "decision")
    assert found.recorded["code"] == "something_else"


def test_another_policy_is_asked_about_the_same_observations(tmp_path):
    world = World(tmp_path, a_steering(min_width=2))
    world.ticks(10, QUIET)
    wants_three = policy_file.load("static:3")
    result = replayed(world.path, wants_three)
    assert (result.policy, result.decisions, result.equal) == ("static:3", 10, 0)
    assert (result.higher, result.lower) == (10, 0)
    assert result.differences[0].replayed == {
        "width": 3,
        "code": "static",
        "reason": "always 3",
    }
    assert replayed(world.path, policy_file.load("static:2")).equal == 10


def test_an_empty_log_and_unknown_policies_are_refused(tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_text("\n", "utf-8")
    with pytest.raises(TraceError, match="must have at least one decision"):
        replayed(path)
    controller = a_steering().describe("chat")
    controller["policy"]["kind"] = "of_the_future"
    decision = a_steering().build().step(observation())
    entry = Entry(decision, observation(), None, {}, controller)
    path.write_text(json.dumps(encode(entry)) + "\n", "utf-8")
    with pytest.raises(ConfigError, match=r"decisions\.jsonl:1: .*of_the_future"):
        replayed(path)
