"""Two real processes, one API server and one target: who writes, and when."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from autoscaler.testing_apiserver import Fault

from .worlds import PLUGINS

SLACK_S = 1.0
"""For the machine: processes share it with other tests."""


def series(replica):
    lines = replica.page("/metrics").text.splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_a_standby_is_well_and_ready_and_does_nothing_G61(cluster, pair):
    first, second = pair
    cluster.await_true(lambda: len(cluster.writes("one")) > 5)
    assert cluster.asked("two") == []
    assert "autoscaler_leader 1.0" in series(first)
    assert "autoscaler_leader 0.0" in series(second)
    assert [second.page(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert not any("autoscaler_tick_lateness_seconds" in line for line in series(second))
    told = second.events("standby")[-1]
    assert told["holder"].startswith("one_")
    assert told["identity"].startswith("two_")
    assert told["lease"] == "apps/autoscaler"


def test_after_a_kill_the_other_takes_over_within_one_lease_G51(cluster, pair):
    first, second = pair
    first.signal(signal.SIGKILL)
    took_s = second.holding()
    # A renewal counts from when the standby saw it, a quarter of a renewal's period later at most.
    assert took_s < cluster.lease_s + cluster.retry_s / 4 + SLACK_S
    second.leading()
    assert "autoscaler_leader 1.0" in series(second)
    assert cluster.strays() == []


def test_the_program_as_it_is_installed_takes_part(cluster, start, tmp_path):
    path = cluster.configuration("one")
    command = [sys.executable, "-m", "autoscaler", "run", "--config", str(path)]
    paths = os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")])
    with (tmp_path / "one.log").open("w") as out:
        first = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}, stdout=out)
    try:
        cluster.await_true(lambda: cluster.writes("one"))
        second = start("two")
        second.await_event("standby")
        first.kill()
        assert second.holding() < cluster.lease_s + cluster.retry_s / 4 + SLACK_S
        second.leading()
        assert cluster.strays() == []
    finally:
        first.kill()
        first.wait(5)


def test_after_a_freeze_the_other_takes_over_within_two_and_the_frozen_one_never_writes(
    cluster, pair
):
    first, second = pair
    first.signal(signal.SIGSTOP)
    assert second.holding() < 2 * cluster.lease_s
    second.leading()
    before = len(cluster.asked("one"))
    first.signal(signal.SIGCONT)
    assert first.wait() == 14  # by the kernel's timer
    assert len(cluster.asked("one")) == before
    assert cluster.strays() == []
    assert cluster.holder == "two"


def test_R18_a_leader_that_is_frozen_between_permission_and_write_never_sends_it(cluster, pair):
    first, second = pair
    cluster.await_write_of(first, slow_s=0.3)
    first.signal(signal.SIGSTOP)
    before = len(cluster.writes("one"))
    second.leading()
    first.signal(signal.SIGCONT)
    assert first.wait() == 14
    assert len(cluster.writes("one")) == before
    assert cluster.strays() == []


def test_a_freeze_shorter_than_the_deadline_costs_nothing(cluster, pair):
    first, _ = pair
    threading.Event().wait(cluster.retry_s)
    first.signal(signal.SIGSTOP)
    threading.Event().wait(0.3 * cluster.lease_s)
    first.signal(signal.SIGCONT)
    before = len(cluster.writes("one"))
    cluster.await_true(lambda: len(cluster.writes("one")) > before + 3)
    assert cluster.holder == "one"
    assert not first.ended


def test_L6_on_sigterm_the_holder_is_cleared_after_work_and_the_other_leads_soon(cluster, pair):
    first, second = pair
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert first.events("lease_released")
    assert second.holding() < cluster.lease_s / 2
    held = [
        (h.object["spec"]["holderIdentity"], h.version)
        for h in cluster.api.store.history
        if h.resource is cluster.leases
    ]
    freed = next(version for holder, version in held if holder == "")
    assert all(write.version <= freed for write in cluster.writes("one"))
    assert cluster.strays() == []


@pytest.mark.parametrize("kind", ["close", "hang"])
def test_L7_L8_without_an_api_server_work_stops_before_the_lease_ends_and_the_program_too(
    cluster, start, kind
):
    first = start("one")
    first.leading()
    cluster.api.faults.append(Fault(kind, path="leases", times=None))
    began_s = cluster.clock.now_s()
    assert first.wait() == 1
    assert cluster.clock.now_s() - began_s < cluster.lease_s
    assert "could not be renewed" in first.events("leadership_lost")[0]["reason"]
    assert cluster.holder == "one"  # nobody could be told
    # Writes need a confirmed lease: there was none from the first call on that failed.
    failed = next(r for r in cluster.api.requests[::-1] if "/leases" in r.path)
    assert cluster.writes("one")[-1].version <= failed.version
    cluster.api.faults.clear()
    again = start("three")
    again.leading()
    assert cluster.strays() == []


def test_a_leader_that_was_replaced_stops_and_ends_G44(cluster, start):
    first = start("one")
    first.leading()

    def take(found):
        found["spec"]["holderIdentity"] = "somebody"
        return found

    cluster.api.store.change(cluster.leases, "apps", "autoscaler", take)
    assert first.wait() == 1
    assert first.events("leadership_lost")[0]["reason"] == "the lease is held by somebody"
    assert cluster.holder == "somebody"
    assert cluster.strays() == []


def test_a_loop_that_dies_frees_the_lease_and_ends_the_program_G47(cluster, pair):
    first, second = pair
    (cluster.folder / "defect").touch()
    assert first.wait() == 1
    (cluster.folder / "defect").unlink()
    assert first.events("defect")
    assert first.events("lease_released")
    assert second.holding() < cluster.lease_s / 2


def test_a_dry_run_needs_no_lease_and_takes_none(cluster, start):
    beside = start("dry", "--dry-run")
    beside.await_event("decision")
    assert cluster.holder == ""
    assert "autoscaler_leader 0.0" in series(beside)
    first = start("one")
    first.leading()
    assert cluster.writes("dry") == []


def test_one_tick_is_the_leaders_and_frees_the_lease(cluster, start):
    once = start("once", "--once")
    assert once.wait() == 0
    assert len(cluster.writes("once")) == 1
    assert cluster.holder == ""
    start("one").leading()
    beside = start("beside", "--once")
    assert beside.wait() == 1
    assert beside.events("standby")[0]["holder"].startswith("one_")
    assert cluster.asked("beside") == []


def test_a_changed_file_is_taken_up_by_a_standby_and_another_lease_is_refused(cluster, pair):
    _, second = pair
    path = cluster.folder / "two.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("ttft_p95_s: 5", "ttft_p95_s: 6"), encoding="utf-8")
    second.await_event("config_taken_up")
    path.write_text(text.replace("identity: two", "identity: three"), encoding="utf-8")
    refused = second.await_event("config_refused")
    assert "leader_election: must stay as it is until a restart" in refused["problems"][0]
    assert cluster.asked("two") == []


def test_outside_a_pod_a_namespace_has_to_be_named(cluster, start):
    election = {"enabled": True, "kubeconfig": str(cluster.folder / "nowhere.kubeconfig")}
    cluster.api.kubeconfig(cluster.folder / "nowhere.kubeconfig")
    nowhere = start("nowhere", leader_election=election)
    assert nowhere.wait() == 2
    message = "leader_election.namespace: must be given outside a Pod; got nothing"
    assert message in nowhere.text
