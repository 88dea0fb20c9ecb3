"""A whole loop on a Prometheus that fails: what is written, what is told, what is counted."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.clock import SystemClock
from autoscaler.controller import Controller
from autoscaler.decisions import MemoryLog
from autoscaler.events import Events
from autoscaler.guards import Guards, Params
from autoscaler.loop import ControlLoop
from autoscaler.model import Slo
from autoscaler.policies import queue_threshold, static
from autoscaler.ports import Clock, MetricsSource, Policy, PolicyContext, SourceContext
from autoscaler.sources import prometheus, scrape
from autoscaler.testing import FakeTarget, ManualClock
from tests.adapters.prometheus.answering import FakePrometheus
from tests.adapters.prometheus.pages import Engine, page
from tests.adapters.prometheus.servers import Answer, Server

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0)
CONTEXT = PolicyContext(Slo(), 5.0)


class Play:
    """A loop that would shrink from 4 to 2 at once, and the Prometheus that it reads."""

    def __init__(self, url: str, fake: FakePrometheus) -> None:
        self.url, self.fake, self.clock = url, fake, ManualClock()
        self.target = FakeTarget(self.clock, 4, resize_s=10.0)
        self.log, self.events = MemoryLog(), Events()
        self.told: list[str] = []
        self.engines = [Engine(0, running=2), Engine(1, running=2)]
        self.steer(static.build(static.Params(2), CONTEXT))

    def steer(self, policy: Policy) -> None:
        params = prometheus.Params(url=self.url)
        source = prometheus.build(params, SourceContext(Slo(), self.clock, lambda: 2))
        self.loop = looped(source, self.target, policy, self.clock, self.log)

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            for engine in self.engines:
                engine.serve(10)
            self.fake.scrapes.append((self.fake.now_s, page(self.engines)))
            self.loop.tick()
            entry = self.log.entries[-1]
            self.told += [e.reason for e in self.events.tell(entry.decision, entry.obs, None)]
            self.fake.now_s += 5.0
            self.clock.advance(5.0)


def looped(
    source: MetricsSource,
    target: FakeTarget,
    policy: Policy,
    clock: Clock,
    log: MemoryLog,
    tick_s: float = 5.0,
) -> ControlLoop:
    return ControlLoop(source, target, Controller(policy, Guards(FREE)), clock, log, Slo(), tick_s)


@pytest.fixture
def play() -> Iterator[Play]:
    fake = FakePrometheus()
    fake.scrapes.clear()
    with Server(fake) as server:
        yield Play(server.url, fake)


def success(kind: str, result: object) -> Answer:
    data = {"resultType": kind, "result": result}
    return Answer(json.dumps({"status": "success", "data": data}))


EMPTY = (success("vector", []), success("matrix", []))
OTHER = Answer('{"kind":"ExternalMetricValueList","apiVersion":"v1beta1","items":[]}')
WRONG: dict[str, tuple[Answer | None, Answer]] = {
    "every result is empty": EMPTY,
    "only the series are gone": (None, EMPTY[1]),
    "another service's JSON": (OTHER, OTHER),
    "a login page": (Answer("<html><form>"), Answer("<html><form>")),
}


@pytest.mark.parametrize("case", WRONG)
def test_minutes_without_a_true_answer_are_held_told_and_let_go_afterwards_G05_G06_G14(
    play: Play, case: str
) -> None:
    play.fake.count, play.fake.range = WRONG[case]
    play.fake.live = 0
    play.run(60)
    assert play.target.writes == []
    assert {entry.decision.code for entry in play.log.entries[1:]} == {"missing_data"}
    assert play.told == ["SignalLost"]
    if play.fake.count is not None:  # a Prometheus that is well has no error to count
        assert play.loop.errors == {("source", "ObservationError"): 60}
        assert not play.loop.ready
    play.fake.count, play.fake.range, play.fake.live = None, None, 2
    play.run(30)
    assert play.target.writes == [2]
    assert "SignalRecovered" in play.told


def test_a_query_that_is_refused_at_each_poll_makes_one_fallback_and_stays_there_G09(
    play: Play,
) -> None:
    params = queue_threshold.Params(fallback_width=6, fallback_after=3)
    play.steer(queue_threshold.build(params, CONTEXT))
    play.fake.count = Answer('{"status":"error","errorType":"bad_data","error":"parse"}', 400)
    play.run(150)
    assert play.target.writes == [6]
    last = play.log.entries[20:]
    assert {(e.decision.code, e.decision.width) for e in last} == {("unknown", None)}


def _missing(folder: Path) -> dict[str, Any]:
    return {"bearer_token_file": str(folder / "no-token")}


def _no_authority(folder: Path) -> dict[str, Any]:
    return {"ca_file": str(folder / "no-ca.pem")}


def _bad_authority(folder: Path) -> dict[str, Any]:
    (folder / "ca.pem").write_text("not a certificate")
    return {"ca_file": str(folder / "ca.pem")}


@pytest.mark.parametrize("prepared", [_missing, _no_authority, _bad_authority])
@pytest.mark.parametrize("kind", ["prometheus", "scrape"])
def test_what_fails_before_there_is_a_query_is_counted_each_time_G13(
    tmp_path: Path, kind: str, prepared: Any
) -> None:
    given, clock = prepared(tmp_path), ManualClock()
    context = SourceContext(Slo(), clock, lambda: 2)
    url = "https://127.0.0.1:9"
    source: MetricsSource
    if kind == "prometheus":
        source = prometheus.build(prometheus.Params(url=url, **given), context)
    else:
        source = scrape.build(scrape.Params(urls=(url,), **given), context)
    target = FakeTarget(clock, 4)
    loop = looped(source, target, static.build(static.Params(2), CONTEXT), clock, MemoryLog())
    for tick in range(1, 13):
        loop.tick()
        assert loop.errors == {("source", "ObservationError"): tick}
        assert not loop.ready
        clock.advance(5.0)
    assert target.writes == []


def test_answers_after_1_2_deadlines_are_counted_and_the_loop_keeps_its_period_G16() -> None:
    fake, clock, log = FakePrometheus(), SystemClock(), MemoryLog()

    def late(request: Any) -> Answer:
        threading.Event().wait(1.2 * 0.4)
        return fake(request)

    with Server(late) as server:
        params = prometheus.Params(url=server.url, timeout_s=0.4)
        source = prometheus.build(params, SourceContext(Slo(), clock, lambda: 2))
        target = FakeTarget(ManualClock(), 4)
        policy = static.build(static.Params(2), CONTEXT)
        loop = looped(source, target, policy, clock, log, tick_s=1.0)
        began_s = clock.now_s()
        loop.run(until_s=began_s + 5.0)
    assert loop.errors == {("source", "ObservationError"): loop.ticks}
    assert target.writes == []
    # On the grid of whole seconds, with whatever a loaded machine made it miss accounted for.
    assert loop.ticks + loop.missed_ticks == 5
    late_s = [entry.decision.at_s - began_s - i for i, entry in enumerate(log.entries)]
    assert loop.missed_ticks or max(late_s) < 0.5
