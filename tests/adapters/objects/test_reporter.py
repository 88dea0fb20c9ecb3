"""Writing statuses: conditional, rarely, patiently, and never twice what was said."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.cluster.connection import Access, Connection
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.objects.conditions import Condition, Report, refusal
from autoscaler.objects.directory import Directory
from autoscaler.objects.reporter import Reporter
from autoscaler.objects.resource import API_VERSION, PLURAL, parse
from autoscaler.testing import ManualClock
from autoscaler.testing_apiserver import ApiServer, Fault, Rule, User

from .test_watching import CRD, SPEC

REPORT = Report(
    1, (Condition("AbleToScale", "True", "ReadyForNewWidth", "yes"),), 3, 3, 2, 2, "static", "why"
)


class Desk:
    """A server with one object, and who writes its status, on a manual clock."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.clock = server, ManualClock()
        self.said: list[TargetError | None] = []
        self.kind = server.store.resource(API_VERSION, PLURAL)
        self.directory = Directory(["here"])
        server.tokens["role"] = User(
            "role",
            (
                Rule(
                    ("patch",), ("autoscaling.elastic-width.io",), (f"{PLURAL}/status",), ("here",)
                ),
            ),
        )
        self.api = Connection(Access(server.kubeconfig(folder / "kubeconfig", "role")))
        self.reporter = Reporter(
            self.api, self.directory, self.clock, lambda: 1.8e9, self.said.append
        )
        self.create("a")

    def create(self, name: str) -> None:
        self.server.store.create(self.kind, "here", {"metadata": {"name": name}, "spec": SPEC})
        self.look()

    def look(self) -> None:
        objects = map(parse, self.server.store.list(self.kind, "here"))
        self.directory.replace("here", [one for one in objects if one is not None])

    def status(self, name: str = "a") -> dict:
        return self.server.store.get(self.kind, "here", name).get("status", {})

    def writes(self) -> list[dict]:
        patches = [r for r in self.server.requests if r.method == "PATCH"]
        assert {r.headers["content-type"] for r in patches} <= {"application/merge-patch+json"}
        assert all(r.path.endswith("/status") for r in patches)
        return [json.loads(r.body) for r in patches]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with ApiServer() as server:
        server.install(CRD)
        made = Desk(server, tmp_path)
        yield made
        made.api.close()


def again(**changes) -> Report:
    return Report(**{f: getattr(REPORT, f) for f in Report.__slots__} | changes)


def test_R22_a_status_is_written_once_and_not_for_every_tick(desk: Desk) -> None:
    for tick in range(20):
        desk.reporter.ticked("here/a", again(reason=f"after {tick} s"))
        desk.reporter.write_due()
        desk.clock.advance(5.0)
    assert len(desk.writes()) == 1
    status = desk.status()
    assert status["width"] == {"proposed": 3, "desired": 3, "effective": 2, "stable": 2}
    assert status["conditions"][0]["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_a_proposal_that_changes_with_every_tick_is_written_every_15_s(desk: Desk) -> None:
    for tick in range(12):
        desk.reporter.ticked("here/a", again(proposed=3 + tick % 2))
        desk.reporter.write_due()
        desk.clock.advance(5.0)
    assert 2 <= len(desk.writes()) <= 5
    desk.clock.advance(15.0)
    desk.reporter.write_due()
    assert desk.status()["width"]["proposed"] == 4, "late, but not lost"


def test_what_is_real_is_written_at_once(desk: Desk) -> None:
    desk.reporter.ticked("here/a", REPORT)
    desk.reporter.write_due()
    desk.reporter.ticked("here/a", again(effective=None))
    desk.reporter.write_due()
    assert "effective" not in desk.status()["width"]
    assert len(desk.writes()) == 2


def test_a_write_is_on_condition_that_nothing_has_changed(desk: Desk) -> None:
    def edited(found):
        found["spec"]["policy"] = "static:4"
        return found

    desk.server.store.change(desk.kind, "here", "a", edited)
    desk.reporter.ticked("here/a", REPORT)
    desk.reporter.write_due()
    assert desk.status() == {}
    assert desk.said == [], "somebody else's edit is no failure"
    desk.look()
    desk.reporter.write_due()
    assert desk.status()["observedGeneration"] == 1
    assert len(desk.writes()) == 2


def test_an_object_that_is_gone_or_made_anew_is_not_written_to(desk: Desk) -> None:
    store = desk.server.store
    store.delete(desk.kind, "here", "a")
    desk.reporter.ticked("here/a", REPORT)
    desk.reporter.write_due()
    store.create(desk.kind, "here", {"metadata": {"name": "a"}, "spec": SPEC})
    desk.reporter.write_due()
    assert desk.status() == {}
    desk.look()
    desk.reporter.write_due()
    assert desk.status()["observedGeneration"] == 1
    desk.directory.drop("here/a")
    desk.reporter.ticked("here/a", again(effective=3))
    before = len(desk.writes())
    desk.reporter.write_due()
    assert len(desk.writes()) == before


def test_R20_without_permission_it_says_so_once_and_waits_a_minute(desk: Desk) -> None:
    desk.server.tokens["role"] = User("role")
    desk.reporter.ticked("here/a", REPORT)
    for _ in range(6):
        desk.reporter.write_due()
        desk.clock.advance(4.0)
    assert len(desk.writes()) == 1
    assert [type(error) for error in desk.said] == [TargetForbidden]
    desk.server.tokens["role"] = desk.server.tokens["admin"]
    desk.clock.advance(60.0)
    desk.reporter.write_due()
    assert desk.status()["observedGeneration"] == 1
    assert desk.said[-1] is None


def test_an_outage_is_waited_for_longer_and_longer(desk: Desk) -> None:
    desk.server.faults.append(Fault("answer", "PATCH", status=503, times=None))
    desk.reporter.ticked("here/a", REPORT)
    for _ in range(60):
        desk.reporter.write_due()
        desk.clock.advance(1.0)
    assert 4 <= len(desk.writes()) <= 9
    assert len(desk.said) == 1


def test_one_status_that_the_server_refuses_holds_up_no_other(desk: Desk) -> None:
    desk.create("b")
    odd = again(conditions=(Condition("AbleToScale", "Perhaps", "Odd", "no"),))  # type: ignore[arg-type]
    desk.reporter.ticked("here/a", odd)
    desk.reporter.ticked("here/b", REPORT)
    desk.reporter.write_due()
    assert desk.status("b")["observedGeneration"] == 1
    assert "Perhaps" in str(desk.said[0])


def test_a_refusal_goes_with_what_still_steers_and_is_taken_back(desk: Desk) -> None:
    desk.reporter.refused("here/a", refusal(2, "invalid_spec", "no"))
    desk.reporter.write_due()
    assert desk.status()["decision"] == {"code": "invalid_spec", "reason": "no"}
    desk.reporter.ticked("here/a", REPORT)
    desk.reporter.write_due()
    status = desk.status()
    assert status["conditions"][0]["reason"] == "InvalidSpec"
    assert (status["observedGeneration"], status["width"]["desired"]) == (2, 3)
    desk.reporter.refused("here/a", None)
    desk.reporter.write_due()
    assert desk.status()["conditions"][0]["reason"] == "ReadyForNewWidth"
    desk.reporter.forget("here/a")
