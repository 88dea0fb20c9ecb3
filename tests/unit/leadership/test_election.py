"""The election as tables: what was seen or answered at which instant, and what follows."""

from dataclasses import replace

import pytest

from autoscaler.errors import ConfigError
from autoscaler.leadership.election import Election, Phase, Record
from autoscaler.leadership.lease import stamp
from autoscaler.leadership.timing import Timing

TIMING = Timing(lease_duration_s=15, renew_deadline_s=10.0, retry_period_s=2.0)
T0_S = 5_000.0
OTHER = Record("other", 15.0, "a1", "r1", 3, "100")


def candidate(timing: Timing = TIMING) -> Election:
    return Election("me", timing)


def leader(at_s: float = T0_S) -> Election:
    election = candidate()
    election.observe(None, at_s)
    election.granted(replace(election.claim("r0"), version="1"), at_s, at_s)
    assert election.leads(at_s)
    return election


@pytest.mark.parametrize(
    ("record", "wait_s"),
    [
        pytest.param(None, 0.0, id="L1-no-record"),
        pytest.param(Record("", 1.0, "a", "r", 3, "7"), 0.0, id="L1-empty-holder"),
        pytest.param(OTHER, 15.0, id="L1-expired-by-own-observation"),
        pytest.param(replace(OTHER, lease_duration_s=60.0), 60.0, id="L2-its-lease-not-mine"),
        pytest.param(replace(OTHER, lease_duration_s=2.0), 2.0, id="L2-a-shorter-one"),
        pytest.param(
            replace(OTHER, renewed="1971-01-01T00:00:00.000000Z"), 15.0, id="L3-renewed-long-ago"
        ),
        pytest.param(
            replace(OTHER, renewed="2999-01-01T00:00:00.000000Z"), 15.0, id="L3-renewed-in-future"
        ),
        pytest.param(replace(OTHER, renewed=""), 15.0, id="L3-never-renewed"),
        pytest.param(replace(OTHER, holder="me"), 0.0, id="own-claim-whose-answer-was-lost"),
    ],
)
def test_L1_L2_L3_a_lease_is_taken_after_its_own_length_of_own_observation(record, wait_s):
    election = candidate()
    assert not election.may_claim(T0_S)  # nothing was looked at
    election.observe(record, T0_S)
    if wait_s:
        election.observe(record, T0_S + wait_s / 2)  # seen again: no news
        assert not election.may_claim(T0_S + wait_s - 0.001)
    assert election.may_claim(T0_S + wait_s)
    claim = election.claim("now")
    assert (claim.holder, claim.renewed, claim.lease_duration_s) == ("me", "now", 15.0)
    assert claim.version == ("" if record is None else record.version)
    other = record is not None and record.holder != "me"
    before = 0 if record is None else record.transitions
    assert claim.transitions == before + other


@pytest.mark.parametrize(
    "news",
    [
        {"renewed": "r2"},
        {"holder": "third"},
        {"transitions": 4},
        {"acquired": "a2"},
        {"lease_duration_s": 15.5},
    ],
)
def test_whatever_is_new_in_the_record_begins_the_wait_anew(news):
    election = candidate()
    election.observe(OTHER, T0_S)
    election.observe(replace(OTHER, **news), T0_S + 14.0)
    assert not election.may_claim(T0_S + 28.9)
    assert election.may_claim(T0_S + 29.5)


def test_an_annotation_on_the_lease_is_no_renewal():
    election = candidate()
    election.observe(OTHER, T0_S)
    election.observe(replace(OTHER, version="101"), T0_S + 14.0)
    assert election.may_claim(T0_S + 15.0)
    assert election.claim("x").version == "101"


def test_a_lease_that_is_deleted_is_free_at_once():
    election = candidate()
    election.observe(OTHER, T0_S)
    election.observe(None, T0_S + 1.0)
    assert election.may_claim(T0_S + 1.0)


def test_leadership_counts_from_when_the_claim_was_sent():
    election = candidate()
    election.observe(None, T0_S)
    election.granted(replace(election.claim("r"), version="1"), T0_S, T0_S + 4.0)
    assert election.leads(T0_S + 9.999)
    assert not election.leads(T0_S + 10.0)
    assert election.end_at_s == T0_S + 13.75


def test_a_claim_that_was_answered_after_its_deadline_is_no_leadership_and_may_be_sent_again():
    election = candidate()
    election.observe(None, T0_S)
    election.granted(replace(election.claim("r"), version="1"), T0_S, T0_S + 10.0)
    assert election.phase is Phase.STANDBY
    assert election.may_claim(T0_S + 10.0)
    assert election.end_at_s == float("-inf")


def test_renewals_move_the_deadline_and_change_nothing_but_the_time():
    election = leader()
    claim = election.claim("r1")
    assert claim == replace(election.record, renewed="r1")
    election.granted(replace(claim, version="2"), T0_S + 8.0, T0_S + 8.5)
    assert election.leads(T0_S + 17.9)
    assert not election.leads(T0_S + 18.0)


def test_L7_L8_without_a_renewal_leadership_ends_at_the_deadline_for_good():
    election = leader()
    election.expire(T0_S + 9.9)
    assert election.phase is Phase.LEADING
    election.expire(T0_S + 10.0)
    assert election.phase is Phase.LOST
    assert election.reason == "the lease could not be renewed for 10 s"
    # The answer to a renewal that comes now is too late, and so is every other.
    election.granted(replace(election.claim("r"), version="2"), T0_S + 9.0, T0_S + 11.0)
    assert not election.leads(T0_S + 11.0)
    assert not election.may_claim(T0_S + 60.0)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (OTHER, "the lease is held by other"),
        (replace(OTHER, holder=""), "the lease is held by nobody"),
        (None, "the lease is gone"),
    ],
)
def test_another_holder_ends_leadership_at_once_G44_G46(seen, reason):
    election = leader()
    election.observe(seen, T0_S + 1.0)
    assert (election.phase, election.reason) == (Phase.LOST, reason)
    assert not election.leads(T0_S + 1.0)
    assert not election.may_claim(T0_S + 100.0)


def test_L6_a_release_clears_the_holder_and_leads_no_more():
    election = leader()
    freed = election.release("r9")
    assert freed is not None
    assert (freed.holder, freed.lease_duration_s, freed.renewed) == ("", 1.0, "r9")
    assert freed.version == "1"
    election.end()
    assert election.phase is Phase.RELEASED
    assert not election.leads(T0_S)
    assert not election.may_claim(T0_S + 100.0)


def test_what_is_not_ours_is_not_released():
    election = candidate()
    assert election.release("r") is None
    election.observe(OTHER, T0_S)
    assert election.release("r") is None


@pytest.mark.parametrize("shift_s", [-4_999.0, 1e6])
def test_only_differences_of_time_matter(shift_s):
    election = candidate()
    election.observe(OTHER, T0_S + shift_s)
    assert not election.may_claim(T0_S + shift_s + 14.9)
    assert election.may_claim(T0_S + shift_s + 15.1)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            {"renew_deadline_s": 10.0, "retry_period_s": 9.0},
            "renew_deadline_s: must be more than 1.2 x retry_period_s (10.8); got 10",
        ),
        (
            {"renew_deadline_s": 2.4},
            "renew_deadline_s: must be more than 1.2 x retry_period_s (2.4); got 2.4",
        ),
        (
            {"lease_duration_s": 10},
            "lease_duration_s: must be more than renew_deadline_s (10); got 10",
        ),
        ({"lease_duration_s": 0}, "lease_duration_s: must be a whole number >= 1; got 0"),
        ({"lease_duration_s": 15.5}, "lease_duration_s: must be a whole number >= 1; got 15.5"),
        ({"retry_period_s": 0}, "retry_period_s: must be a finite number > 0; got 0"),
        (
            {"renew_deadline_s": float("nan")},
            "renew_deadline_s: must be a finite number > 0; got nan",
        ),
    ],
)
def test_L4_times_that_break_a_rule_are_refused(times, message):
    with pytest.raises(ConfigError) as refused:
        Timing(**times)
    assert str(refused.value) == message


def test_work_has_ended_before_the_others_may_begin():
    for timing in (TIMING, Timing(1, 0.7, 0.2), Timing(137, 107.0, 26.0)):
        assert timing.renew_deadline_s + timing.stop_s < timing.end_s < timing.lease_duration_s
        assert 3 * timing.call_timeout_s < timing.renew_deadline_s


def test_a_time_stamp_has_microseconds_and_is_never_the_one_before():
    assert stamp(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
    assert stamp(1_700_000_000.25, "2023-11-14T22:13:20.250000Z") == "2023-11-14T22:13:20.250001Z"
    assert stamp(0.0) == "1970-01-01T00:00:00.000000Z"
