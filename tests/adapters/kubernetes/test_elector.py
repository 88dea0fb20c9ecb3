"""One candidate and an API server over HTTP, on a manual clock."""

import json
import math
import threading

import pytest

from autoscaler.cluster.answers import NotSent
from autoscaler.cluster.connection import Access, Connection
from autoscaler.leadership.election import Election
from autoscaler.leadership.elector import Elector
from autoscaler.leadership.fence import fenced
from autoscaler.leadership.lease import Lease
from autoscaler.leadership.timing import Timing
from autoscaler.model import SetOutcome, SetResult
from autoscaler.ports import RememberingTarget
from autoscaler.testing import FakeTarget, ManualClock, check_target
from autoscaler.testing_apiserver import Fault, Rule, User

NAMESPACE, NAME = "apps", "autoscaler"
TIMING = Timing(15, 10.0, 2.0)
QUICK_S = 0.3  # real seconds that a call of these tests may take


class Room:
    """Candidates for one lease."""

    def __init__(self, api, clock, folder):
        self.api, self.clock, self.folder = api, clock, folder
        self.kind = api.store.resource("coordination.k8s.io/v1", "leases")
        self.wall_s = 1_700_000_000.0
        self.connections = []

    def candidate(self, identity, token="admin"):  # noqa: S107  # opens the fake server only
        kubeconfig = self.api.kubeconfig(self.folder / f"{identity}.kubeconfig", token)
        connection = Connection(Access(kubeconfig, timeout_s=QUICK_S))
        self.connections.append(connection)
        lease = Lease(connection, NAMESPACE, NAME, 15.0)
        return Elector(lease, Election(identity, TIMING), self.clock, wall=lambda: self.wall_s)

    def lease(self):
        return self.api.store.get(self.kind, NAMESPACE, NAME)

    @property
    def holder(self):
        return self.lease()["spec"]["holderIdentity"]

    def edit(self, how):
        self.api.store.change(self.kind, NAMESPACE, NAME, how)

    def hand_over(self, holder):
        def change(found):
            found["spec"] |= {"holderIdentity": holder, "renewTime": "later"}
            return found

        self.edit(change)

    def calls(self, method):
        return sum(r.method == method for r in self.api.requests)


@pytest.fixture
def room(api, clock, tmp_path):
    made = Room(api, clock, tmp_path)
    yield made
    for connection in made.connections:
        connection.close()


@pytest.fixture
def leader(room):
    elector = room.candidate("one")
    elector.attempt()
    assert elector.leads
    return elector


def fault(room, kind, method="", **given):
    room.api.faults.append(Fault(kind, method=method, path="leases", times=None, **given))


def test_L1_the_first_candidate_makes_the_lease_and_the_second_waits_G61(room, leader):
    spec = room.lease()["spec"]
    assert spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2023-11-14T22:13:20.000000Z",
        "renewTime": "2023-11-14T22:13:20.000000Z",
        "leaseTransitions": 0,
    }
    second = room.candidate("two")
    for _ in range(100):  # a living leader is never replaced, whatever becomes of the time
        second.attempt()
        room.clock.advance(2.0)
        leader.attempt()
        assert leader.leads
        assert not second.leads
    assert room.holder == second.holder == "one"


def test_a_leader_that_is_gone_is_replaced_after_one_lease_of_own_observation_G51(room, leader):
    second = room.candidate("two")
    room.clock.advance(3.0)
    second.attempt()
    room.clock.advance(14.9)
    second.attempt()
    assert not second.leads
    assert leader.lost  # long before
    room.clock.advance(0.1)
    second.attempt()
    assert second.leads
    spec = room.lease()["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)


def test_of_two_that_claim_at_once_one_leads(room, leader):
    second, third = room.candidate("two"), room.candidate("three")
    second.attempt()
    third.attempt()
    room.clock.advance(15.0)
    threads = [threading.Thread(target=c.attempt) for c in (second, third)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert [second.leads, third.leads].count(True) == 1


@pytest.mark.parametrize("step_s", [-86_400.0, -0.000001, 0.0, 3_600.0])
def test_steps_of_the_wall_clock_change_nothing(room, leader, step_s):
    second = room.candidate("two")
    versions = set()
    for _ in range(20):
        room.wall_s += step_s
        leader.attempt()
        second.attempt()
        versions.add(room.lease()["metadata"]["resourceVersion"])
        assert leader.leads
        assert not second.leads
        room.clock.advance(2.0)
    assert len(versions) == 20  # a renewal that stores nothing new would be none for the others


def test_L7_refused_connections_end_work_before_the_lease_does(room, leader):
    fault(room, "close")
    for _ in range(4):
        room.clock.advance(2.0)
        leader.attempt()
        assert leader.leads
    assert "leases" in leader.problem
    room.clock.advance(2.0)
    assert not leader.leads  # by the clock alone, with no call in between
    assert leader.lost == "the lease could not be renewed for 10 s"
    room.api.faults.clear()
    leader.attempt()
    assert not leader.leads  # for good


def test_L8_a_call_that_hangs_holds_up_nobody_who_asks(room, clock):
    kubeconfig = room.api.kubeconfig(room.folder / "patient.kubeconfig")
    connection = Connection(Access(kubeconfig, timeout_s=30.0))
    room.connections.append(connection)
    elector = Elector(Lease(connection, NAMESPACE, NAME, 15.0), Election("one", TIMING), clock)
    elector.attempt()
    fault(room, "hang")
    hanging = threading.Thread(target=elector.attempt, daemon=True)
    hanging.start()
    while not room.api.faults[0].seen:
        assert hanging.is_alive()
    assert elector.leads
    clock.advance(10.0)
    assert not elector.leads
    assert elector.lost
    assert hanging.is_alive()
    assert elector.release(0.2) == ""  # lost: nothing to free, and nothing to wait for
    room.api.faults.clear()
    room.api.closing.set()
    hanging.join(5)
    assert not hanging.is_alive()


def test_a_release_does_not_wait_for_a_call_that_hangs(room, clock):
    kubeconfig = room.api.kubeconfig(room.folder / "patient.kubeconfig")
    connection = Connection(Access(kubeconfig, timeout_s=30.0))
    room.connections.append(connection)
    elector = Elector(Lease(connection, NAMESPACE, NAME, 15.0), Election("one", TIMING), clock)
    elector.attempt()
    fault(room, "hang")
    assert elector.release(0.2) == "the API server did not answer in time"
    with elector.writing(1.0) as refusal:
        assert refusal == "the program is about to end"
    room.api.closing.set()


@pytest.mark.parametrize(
    ("status", "headers"),
    [(500, {}), (503, {}), (429, {"Retry-After": "1"}), (401, {}), (403, {}), (422, {}), (404, {})],
)
def test_a_renewal_that_is_not_answered_well_is_tried_again_until_the_deadline_G44(
    room, leader, status, headers
):
    fault(room, "answer", "PUT", status=status, headers=headers)
    for _ in range(4):
        room.clock.advance(2.0)
        leader.attempt()
        assert leader.leads
    room.clock.advance(2.1)
    assert leader.lost == "the lease could not be renewed for 10 s"
    assert room.holder == "one"


def test_a_renewal_that_meets_another_holder_is_the_end_G46(room, leader):
    room.hand_over("two")
    before = room.calls("PUT")
    leader.attempt()
    assert leader.lost == "the lease is held by two"
    leader.attempt()
    assert room.calls("PUT") == before + 1
    assert room.holder == "two"


def test_a_deleted_lease_is_the_end_and_free_for_the_next(room, leader):
    room.api.store.delete(room.kind, NAMESPACE, NAME)
    leader.attempt()
    assert leader.lost == "the lease is gone"
    second = room.candidate("two")
    second.attempt()
    assert second.leads


def test_somebody_elses_edit_costs_no_leadership_and_is_kept(room, leader):
    def label(found):
        found["metadata"]["labels"] = {"team": "serving"}
        found["metadata"]["annotations"] = {"note": "mine"}
        found["spec"]["preferredHolder"] = ""
        return found

    room.edit(label)
    for _ in range(3):
        room.clock.advance(2.0)
        leader.attempt()
        assert leader.leads
    assert room.lease()["metadata"]["labels"] == {"team": "serving"}
    assert room.lease()["metadata"]["annotations"] == {"note": "mine"}
    assert room.lease()["spec"]["preferredHolder"] == ""


def test_a_renewal_whose_answer_was_lost_is_taken_up_again(room, leader):
    room.api.faults.append(Fault("close", method="PUT", path="leases", applied=True))
    room.clock.advance(2.0)
    leader.attempt()
    assert leader.problem
    room.clock.advance(2.0)
    leader.attempt()  # meets a conflict with itself
    assert leader.problem == ""
    room.clock.advance(9.0)
    assert leader.leads


def test_a_claim_whose_answer_was_lost_is_found_to_be_ours(room):
    room.api.faults.append(Fault("close", method="POST", path="leases", applied=True))
    elector = room.candidate("one")
    elector.attempt()
    assert not elector.leads
    elector.attempt()
    assert elector.leads
    assert room.lease()["spec"]["leaseTransitions"] == 0


def test_L6_a_release_clears_the_holder_and_the_next_leads_at_once(room, leader):
    second = room.candidate("two")
    second.attempt()
    assert leader.release(2.0) == ""
    assert not leader.leads
    assert room.holder == ""
    second.attempt()
    assert second.leads
    assert leader.release(2.0) == ""  # again: nothing
    assert room.holder == "two"


def test_L5_a_release_that_meets_a_conflict_reads_again_and_retries(room, leader):
    def annotate(found):
        found["metadata"]["annotations"] = {"x": "y"}
        return found

    room.edit(annotate)
    assert leader.release(2.0) == ""
    assert room.holder == ""
    assert room.lease()["metadata"]["annotations"] == {"x": "y"}


def test_L5_a_release_that_meets_another_holder_leaves_it_alone(room, leader):
    room.hand_over("two")
    assert leader.release(2.0) == ""
    assert room.holder == "two"


def test_a_standby_releases_nothing(room, leader):
    second = room.candidate("two")
    second.attempt()
    assert second.release(2.0) == ""
    assert room.holder == "one"
    second.attempt()
    room.clock.advance(100.0)
    second.attempt()
    assert room.holder == "one"  # and stands for nothing any more


def test_a_lease_that_makes_no_sense_is_a_problem_and_no_defect(room, leader):
    second = room.candidate("two")
    for spec in (["x"], {"holderIdentity": 7}):
        body = json.dumps({"metadata": {"resourceVersion": "9"}, "spec": spec})
        room.api.faults[:] = [Fault("answer", method="GET", path="leases", status=200, body=body)]
        second.attempt()
        assert "must be" in second.problem


def test_a_record_without_a_length_is_waited_for_as_long_as_our_own(room, leader):
    def bare(found):
        found["spec"] = {"holderIdentity": "other"}
        return found

    room.edit(bare)
    second = room.candidate("two")
    second.attempt()
    room.clock.advance(14.9)
    second.attempt()
    assert not second.leads
    room.clock.advance(0.1)
    second.attempt()
    assert second.leads


LEAST = Rule(("get", "create", "update"), ("coordination.k8s.io",), ("leases",), (NAMESPACE,))


def test_get_create_and_update_of_a_lease_are_all_that_is_needed_G49(room):
    room.api.tokens["least"] = User("autoscaler", (LEAST,))
    elector = room.candidate("one", "least")
    for _ in range(3):
        elector.attempt()
        room.clock.advance(2.0)
    with elector.writing(1.0) as refusal:
        assert refusal == ""
    assert elector.release(2.0) == ""
    assert room.holder == ""


def test_a_standby_without_rights_says_what_is_forbidden(room):
    room.api.tokens["none"] = User("autoscaler")
    elector = room.candidate("one", "none")
    elector.attempt()
    assert 'cannot get resource "leases"' in elector.problem
    assert elector.silent_s == math.inf
    room.api.tokens["none"] = User("autoscaler", (LEAST,))
    elector.attempt()
    room.clock.advance(20.0)
    assert elector.silent_s == 20.0


class TestFence:
    """Writes of a target behind the lease."""

    @pytest.fixture
    def target(self):
        return FakeTarget(ManualClock())

    def test_a_leader_writes_after_a_renewal(self, room, leader, target):
        before = room.calls("PUT")
        wrapped = fenced(target, 4.0, leader.writing)
        assert wrapped.set_width(3, 2).result is SetResult.APPLIED
        assert room.calls("PUT") == before + 1
        assert target.writes == [3]
        assert wrapped.read().desired == 3
        assert wrapped.capabilities() == target.capabilities()

    def test_it_keeps_the_contract_of_its_port(self, room, leader, target):
        check_target(fenced(target, 4.0, leader.writing))

    def test_a_standby_writes_nothing(self, room, leader, target):
        second = room.candidate("two")
        second.attempt()
        outcome = fenced(target, 4.0, second.writing).set_width(3, 2)
        assert outcome == SetOutcome(SetResult.SKIPPED, detail="nothing was written: not leading")
        assert target.writes == []

    def test_R18_a_leader_that_was_replaced_unnoticed_writes_nothing(self, room, leader, target):
        room.hand_over("two")
        outcome = fenced(target, 4.0, leader.writing).set_width(3, 2)
        assert outcome.result is SetResult.SKIPPED
        assert outcome.detail == "nothing was written: the lease is held by two"
        assert target.writes == []
        assert leader.lost

    @pytest.mark.parametrize("kind", ["hang", "close"])
    def test_R18_a_lease_that_cannot_be_confirmed_permits_no_write(
        self, room, leader, target, kind
    ):
        fault(room, kind)
        outcome = fenced(target, 4.0, leader.writing).set_width(3, 2)
        assert outcome.result is SetResult.SKIPPED
        assert "could not be confirmed" in outcome.detail
        assert target.writes == []
        assert leader.leads  # there is time left to renew

    def test_a_write_that_could_outlast_the_lease_is_not_sent(self, room, leader, target):
        outcome = fenced(target, 13.8, leader.writing).set_width(3, 2)
        assert outcome.detail == (
            "nothing was written: the lease ends in 13.8 s, and a write may last 13.8 s"
        )
        assert fenced(target, 13.7, leader.writing).set_width(3, 2).result is SetResult.APPLIED

    def test_the_lease_is_kept_while_a_write_is_under_way(self, room, leader):
        with leader.writing(4.0) as refusal:
            assert refusal == ""
            assert leader.release(1.0) == "a write was under way"
        assert room.holder == "one"
        with leader.writing(4.0) as refusal:
            assert refusal == "the program is about to end"

    def test_a_target_that_remembers_is_fenced_in_all_that_it_writes(self, room, leader, target):
        plain = fenced(target, 4.0, leader.writing)
        assert not isinstance(plain, RememberingTarget)
        wrapped = fenced(Remembering(ManualClock()), 4.0, leader.writing)
        assert isinstance(wrapped, RememberingTarget)
        assert wrapped.set_width(3, 2, "one").result is SetResult.APPLIED
        assert wrapped.recall() == "one"
        wrapped.remember("two")
        room.hand_over("two")
        assert wrapped.set_width(4, 3, "three").result is SetResult.SKIPPED
        with pytest.raises(NotSent, match="nothing was written: the lease is held by two"):
            wrapped.remember("three")
        assert wrapped.recall() == "two"


class Remembering(FakeTarget):
    """A deployment with room for a text."""

    text = None

    def set_width(self, width, expected, note=None):
        self.text = note
        return super().set_width(width, expected)

    def recall(self):
        return self.text

    def remember(self, text):
        self.text = text
