"""Listing and watching through everything that goes wrong between a client and an API server."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.objects.directory import Directory
from autoscaler.objects.resource import API_VERSION, PLURAL
from autoscaler.objects.watching import Pace, Watcher
from autoscaler.testing_apiserver import ApiServer, Fault, Rule, User

CRD = Path(__file__).parents[3] / "deploy" / "base" / "width-autoscaler-crd.yaml"
SPEC = {
    "source": {"kind": "scrape", "urls": ["http://engine:8000/metrics"]},
    "target": {"kind": "gpustack", "name": "chat"},
    "policy": "hold",
}
EXPIRED = '{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'
STALE = '{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}'


class Watched:
    """A server, a watcher, and what the watcher said."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.said: list[TargetError | None] = []
        self.directory = Directory(["here"])
        self.kind = server.store.resource(API_VERSION, PLURAL)
        self.watchers: list[tuple[Watcher, Connection]] = []

    def create(self, name: str, namespace: str = "here") -> None:
        self.server.store.create(self.kind, namespace, {"metadata": {"name": name}, "spec": SPEC})

    def start(self, pace: Pace | None = None, token: str = "admin") -> Watcher:  # noqa: S107  # a fake's
        access = Access(self.server.kubeconfig(self.folder / "kubeconfig", token), timeout_s=2.0)
        api = Connection(access)
        watcher = Watcher(
            "here",
            api,
            self.directory,
            SystemClock(),
            lambda _namespace, error: self.said.append(error),
            pace or Pace(watch_s=60, silence_s=5.0, first_wait_s=0.1),
            seed=1,
        )
        watcher.start()
        self.watchers.append((watcher, api))
        return watcher

    def names(self) -> list[str]:
        return sorted(one.name for one in self.directory.all().values())

    def sees(self, *names: str) -> None:
        until(lambda: self.names() == sorted(names))

    def lists(self) -> int:
        return len([r for r in self.server.requests if "limit=" in r.target])

    def watches(self) -> list[str]:
        return [r.query["resourceVersion"] for r in self.server.requests if "watch=" in r.target]


def until(true: Callable[[], bool], limit_s: float = 8.0) -> None:
    give_up_s = time.perf_counter() + limit_s
    while not true():
        assert time.perf_counter() < give_up_s, "it never came true"
        threading.Event().wait(0.02)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with ApiServer() as server:
        server.install(CRD)
        made = Watched(server, tmp_path)
        yield made
        for watcher, _ in made.watchers:
            watcher.stop()
    for watcher, api in made.watchers:
        assert watcher.join(10.0)
        api.close()


def test_objects_come_change_and_go_and_only_their_specs_are_news(watched: Watched) -> None:
    watched.create("a")
    watched.create("other", "elsewhere")
    watched.start()
    watched.sees("a")
    watched.create("b")
    watched.sees("a", "b")
    edition = watched.directory.edition

    def told(found):
        return {**found, "status": {"observedGeneration": 1}}

    store = watched.server.store
    store.change(watched.kind, "here", "a", told, subresource="status")
    until(lambda: watched.directory.all()["here/a"].status == {"observedGeneration": 1})
    assert watched.directory.edition == edition, "a status is no news"

    def edited(found):
        found["spec"]["policy"] = "static:4"
        return found

    store.change(watched.kind, "here", "a", edited)
    until(lambda: watched.directory.edition == edition + 1)
    assert watched.directory.all()["here/a"].generation == 2
    store.delete(watched.kind, "here", "b")
    watched.sees("a")
    assert watched.lists() == 1
    assert watched.said == []


def test_an_old_version_in_the_stream_is_answered_with_a_new_list_G56_G57(
    watched: Watched,
) -> None:
    fault = Fault("answer", path="watch=true", status=200, body=EXPIRED, times=1)
    watched.server.faults.append(fault)
    watched.create("a")
    watched.start()
    watched.sees("a")
    until(lambda: watched.lists() == 2)
    watched.create("b")
    watched.sees("a", "b")
    assert "" not in watched.watches(), "never without a version: that ends in silence"
    assert watched.said == []


def test_an_old_version_as_the_answer_itself_is_answered_with_a_new_list(
    watched: Watched,
) -> None:
    watched.server.faults.append(
        Fault("answer", path="watch=true", status=410, body=STALE, times=1)
    )
    watched.start()
    until(lambda: watched.lists() == 2)
    watched.create("a")
    watched.sees("a")


def test_a_watch_that_ends_in_due_time_goes_on_where_it_was(watched: Watched) -> None:
    watched.create("a")
    watched.start(Pace(watch_s=2, silence_s=5.0))
    watched.sees("a")
    until(lambda: len(watched.watches()) >= 3, 10.0)
    watched.create("b")
    watched.sees("a", "b")
    assert watched.lists() == 1
    assert watched.said == []


def test_a_watch_that_ends_at_once_in_silence_is_no_storm(watched: Watched) -> None:
    watched.server.faults.append(
        Fault("answer", path="watch=true", status=200, body="", times=None)
    )
    watched.start(Pace(first_wait_s=0.4))
    until(lambda: len(watched.said) == 1)
    threading.Event().wait(1.5)
    assert 2 <= len(watched.watches()) <= 6  # 0, 0.2..0.4, 0.4..0.8, 0.8..1.6 s between them
    assert watched.lists() == len(watched.watches())
    assert "in silence" in str(watched.said[0])


def test_R17_a_connection_that_says_nothing_is_left(watched: Watched) -> None:
    watched.server.faults.append(Fault("stall", path="watch=true", times=1))
    watched.create("a")
    watched.start(Pace(watch_s=60, silence_s=0.5))
    watched.sees("a")
    watched.create("b")
    watched.sees("a", "b")
    assert watched.lists() == 2


def test_a_bookmark_a_minute_keeps_a_quiet_watch_alive(watched: Watched) -> None:
    watched.server.watch_second_s = 0.005  # a minute is 0.3 s
    watched.create("a")
    watched.start(Pace(watch_s=600, silence_s=1.5))
    watched.sees("a")
    threading.Event().wait(2.5)
    assert watched.lists() == 1
    assert len(watched.watches()) == 1


def test_a_restarted_server_is_followed_again_and_what_was_known_stays_G58(
    watched: Watched, tmp_path: Path
) -> None:
    watched.create("a")
    watched.start()
    watched.sees("a")
    server = watched.server
    server.close()
    until(lambda: len(watched.said) == 1)
    assert watched.names() == ["a"], "an outage takes nothing away"
    with ApiServer(port=server.port, store=server.store) as again:
        watched.create("b")
        watched.sees("a", "b")
        until(lambda: any("watch=" in request.target for request in again.requests))
        watched.create("c")
        until(lambda: watched.said[-1] is None)
        watched.watchers[0][0].stop()
    assert watched.watchers[0][0].join(10.0)


def test_what_was_deleted_out_of_sight_is_gone_after_the_next_list(watched: Watched) -> None:
    watched.create("a")
    watched.create("b")
    outage = Fault("close", path=PLURAL, times=None)
    watched.start(Pace(silence_s=0.5, first_wait_s=0.1))
    watched.sees("a", "b")
    watched.server.faults.append(outage)
    until(lambda: len(watched.said) == 1)
    watched.server.store.delete(watched.kind, "here", "a")
    watched.server.store.compact()
    assert watched.names() == ["a", "b"]
    watched.server.faults.remove(outage)
    watched.sees("b")


def test_a_server_that_asks_to_wait_is_obeyed_and_the_watch_goes_on_G60(
    watched: Watched,
) -> None:
    busy = Fault("answer", path=PLURAL, status=429, headers={"Retry-After": "2"}, times=1)
    watched.server.faults.append(busy)
    watched.create("a")
    began_s = time.perf_counter()
    watched.start()
    watched.sees("a")
    assert 1.9 < time.perf_counter() - began_s < 6.0


def test_R20_what_is_not_permitted_is_said_once_and_not_stormed(watched: Watched) -> None:
    watched.server.tokens["weak"] = User("weak", (Rule(("get",), ("*",), ("*",)),))
    watched.start(token="weak")  # noqa: S106  # a fake's
    until(lambda: len(watched.said) == 1)
    assert isinstance(watched.said[0], TargetForbidden)
    assert "cannot list" in str(watched.said[0])
    threading.Event().wait(0.5)
    assert watched.lists() == 1
    assert watched.directory.unlisted == ["here"]


def test_a_list_of_more_than_one_page_is_seen_whole(watched: Watched) -> None:
    names = [f"a{n:03}" for n in range(251)]
    for name in names:
        watched.create(name)
    watched.start()
    watched.sees(*names)


def test_an_object_that_is_about_to_be_deleted_is_gone(watched: Watched) -> None:
    watched.create("a")
    watched.start()
    watched.sees("a")

    def doomed(found):
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return found

    watched.server.store.change(watched.kind, "here", "a", doomed)
    watched.sees()


@pytest.mark.parametrize(
    ("failures", "low_s", "high_s"), [(1, 0, 0), (2, 0.5, 1), (3, 1, 2), (4, 2, 4), (90, 15, 30)]
)
def test_pauses_grow_with_jitter_and_end_at_half_a_minute(failures, low_s, high_s) -> None:
    assert Pace().wait_s(failures, 1.0) == low_s
    assert Pace().wait_s(failures, 0.0) == high_s
