"""Events on a fake API server: accepted, bounded, and in nobody's way."""

import threading

import pytest

from autoscaler.clock import SystemClock
from autoscaler.cluster.connection import Access
from autoscaler.cluster.events import EventWriter, Note
from autoscaler.model import ObjectReference
from autoscaler.testing_apiserver import ApiError, Fault, Rule, User

from .worlds import NAME, NAMESPACE

ABOUT = ObjectReference("worker.gpustack.ai/v1", "ModelDeployment", NAMESPACE, NAME, "uid-1")
AT_S = 1_796_000_000.25


def note(message="2 -> 4", about=ABOUT, warning=False):
    return Note(about, "ResizeRequested", warning, message, AT_S)


class Writer:
    """A writer, what it lost, and what it said of that."""

    def __init__(self, access):
        self.lost, self.states = [], []
        self.writer = EventWriter(access, self.lost.append, self.states.append)

    def send(self, *notes):
        for each in notes:
            self.writer.submit(each)
        assert self.writer.close(10.0)


@pytest.fixture
def make_writer(api, tmp_path):
    def build(token="admin", timeout_s=2.0):  # noqa: S107  # opens nothing but the fake server
        kubeconfig = api.kubeconfig(tmp_path / "of-events", token)
        return Writer(Access(kubeconfig, timeout_s=timeout_s))

    return build


def stored(api, namespace=NAMESPACE):
    kind = api.store.resource("events.k8s.io/v1", "events")
    return api.store.list(kind, namespace)


def test_an_event_is_about_its_object_and_says_who_tells(api, make_writer):
    made = make_writer()
    made.send(note(warning=True))
    (event,) = stored(api)
    assert event["metadata"]["name"].startswith(f"{NAME}.")
    assert event["regarding"] == {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "ModelDeployment",
        "namespace": NAMESPACE,
        "name": NAME,
        "uid": "uid-1",
    }
    assert event["reportingController"] == "elastic-width.io/autoscaler"
    assert event["reportingInstance"]
    assert event["eventTime"] == "2026-11-30T00:53:20.250000Z"
    assert (event["reason"], event["type"], event["note"]) == (
        "ResizeRequested",
        "Warning",
        "2 -> 4",
    )
    assert (made.lost, made.states) == ([], [])


def test_an_object_of_no_namespace_and_a_very_long_name_and_message_are_accepted(api, make_writer):
    about = ObjectReference("example.com/v1", "Thing", "", "a" * 219 + "-b")
    made = make_writer()
    made.send(note("ü" * 2000, about), note("second", about))
    first, _ = stored(api, "default")
    assert len(stored(api, "default")) == 2
    assert {len(e["note"].encode()) for e in stored(api, "default")} == {1024, 6}
    assert "uid" not in first["regarding"]
    assert made.lost == []


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("reportingController", "", "reportingController: Required value"),
        ("action", "", "action: Required value"),
        ("type", "Info", "type: Invalid value"),
        ("note", "x" * 1025, "note: Invalid value"),
        ("eventTime", "2026-11-30T15:00:00Z", "eventTime"),
        ("regarding", {"name": NAME}, "does not match event.namespace"),
    ],
)
def test_the_fake_server_refuses_what_a_real_one_refuses(api, make_writer, field, value, rule):
    make_writer().send(note())
    (event,) = stored(api)
    event["metadata"] = {"name": "another", "namespace": NAMESPACE}
    kind = api.store.resource("events.k8s.io/v1", "events")
    with pytest.raises(ApiError, match=rule):
        api.store.create(kind, NAMESPACE, {**event, field: value})


def test_403_is_said_once_and_counted_each_time(api, make_writer):
    api.tokens["limited"] = User("limited", (Rule(("get",), ("*",), ("*",)),))
    made = make_writer("limited")
    made.send(note(), note(), note())
    assert made.lost == ["TargetForbidden"] * 3
    (problem,) = made.states
    assert 'cannot create resource "events" in API group "events.k8s.io"' in problem


def test_an_outage_and_its_end_are_said_once_each_and_nothing_is_sent_twice(api, make_writer):
    api.faults.append(Fault("answer", "POST", "/events", times=2, status=503))
    made = make_writer()
    made.send(note("1"), note("2"), note("3"), note("4"))
    assert [event["note"] for event in sorted(stored(api), key=lambda e: e["note"])] == ["3", "4"]
    assert len(made.lost) == 2
    assert [state is None for state in made.states] == [False, True]
    assert len([r for r in api.requests if r.method == "POST"]) == 4


def test_an_api_server_that_hangs_delays_nobody_and_what_has_no_room_is_counted(api, make_writer):
    api.faults.append(Fault("hang", "POST", "/events", times=None))
    made, clock = make_writer(timeout_s=0.5), SystemClock()
    began_s = clock.now_s()
    for _ in range(150):
        made.writer.submit(note())
    assert clock.now_s() - began_s < 0.5
    # One is on its way, or none yet; a hundred wait.
    assert made.lost.count("Dropped") in (49, 50)
    began_s = clock.now_s()
    assert not made.writer.close(0.2)
    assert clock.now_s() - began_s < 1.0


def test_an_unusable_kubeconfig_loses_events_and_no_thread(tmp_path):
    made = Writer(Access(str(tmp_path / "missing")))
    made.send(note(), note())
    assert made.lost == ["ConfigError"] * 2
    assert len(made.states) == 1


def test_without_events_there_is_no_thread_and_no_connection(api, make_writer):
    before = threading.active_count()
    made = make_writer()
    assert made.writer.close(0.0)
    assert threading.active_count() == before
    assert api.requests == []
