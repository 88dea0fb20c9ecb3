"""The scrape source over real HTTP: several servers, a router, several models."""

import socket
import threading
from contextlib import ExitStack

import pytest

from autoscaler.errors import ObservationError
from autoscaler.findings import Level
from autoscaler.model import SignalStatus, Slo
from autoscaler.ports import SourceContext
from autoscaler.sources.scrape import Params, ScrapeSource, build
from autoscaler.testing import ManualClock, check_source
from tests.adapters.prometheus.pages import Engine, page
from tests.adapters.prometheus.recorded import whole_page
from tests.adapters.prometheus.servers import Answer, Server, raw_server

SLO = Slo(ttft_p95_s=5.0, window_s=30.0)


def scraper(clock: ManualClock, engines: int | None, *urls: str, **more: object) -> ScrapeSource:
    params = Params(urls=urls, timeout_s=0.5, **more)
    return build(params, SourceContext(SLO, clock, lambda: engines))


def serving(*engines: Engine) -> Answer:
    return Answer(page(engines))


def test_a_whole_real_page_gives_gauges_at_once_and_rates_with_the_second_scrape():
    clock = ManualClock()
    with Server(Answer(whole_page())) as server:
        source = scraper(clock, 2, server.metrics_url)
        first = check_source(source)
        assert first.queue_depth.value == 0
        assert first.arrival_rps.status is SignalStatus.FEW_SAMPLES
        clock.advance(5.0)
        second = check_source(source)
        assert second.completion_rps.value == 0
        assert second.ttft_p95_s.status is SignalStatus.NO_OBSERVATIONS
        assert server.requests[0].path == "/metrics"


def test_one_of_eight_that_times_out_does_not_stop_the_others_M20():
    clock = ManualClock()
    engine = Engine(0, waiting=2, running=1)

    def swallow(_: socket.socket, over: threading.Event) -> None:
        over.wait(4)

    with ExitStack() as stack:
        servers = [stack.enter_context(Server(serving(engine))) for _ in range(7)]
        hung = stack.enter_context(raw_server(swallow))
        source = scraper(clock, 8, *(s.metrics_url for s in servers), f"{hung}/metrics")
        metrics = check_source(source)
        assert metrics.queue_depth.value == pytest.approx(16)
        assert metrics.queue_depth.detail == "7 of 8 engines"


def test_a_page_that_is_cut_off_counts_as_missing_and_the_others_are_read():
    clock = ManualClock()
    with Server(serving(Engine(0, waiting=2))) as good, Server(Answer("vllm:x 1")) as bad:
        metrics = check_source(scraper(clock, 2, good.metrics_url, bad.metrics_url))
        assert metrics.queue_depth.status is SignalStatus.STALE
        assert metrics.queue_depth.lower_bound == 2


def test_a_503_of_one_and_an_error_of_the_other_is_an_error():
    clock = ManualClock()
    with Server(Answer("", 503)) as resizing, Server(Answer("", 500)) as broken:
        source = scraper(clock, 2, resizing.metrics_url, broken.metrics_url)
        with pytest.raises(ObservationError, match="unread"):
            source.read()


def test_only_the_wanted_model_counts():
    clock = ManualClock()
    text = page([Engine(0, waiting=2)]) + page([Engine(0, waiting=5)], model="other")
    with Server(Answer(text)) as server:
        assert scraper(clock, 1, server.metrics_url, model_name="m").read().queue_depth.value == 2
        missing = scraper(clock, 1, server.metrics_url, model_name="x").read()
        assert missing.queue_depth.status is SignalStatus.NO_SERIES


def test_true_arrivals_come_from_the_router_and_survive_a_reset_of_the_engine():
    clock = ManualClock()
    name = "dynamo_frontend_requests_started_total"
    engine = Engine(0, running=1)
    with Server(serving(engine)) as server, Server(Answer("")) as router:
        source = scraper(
            clock, 1, server.metrics_url, router="dynamo", router_url=router.metrics_url
        )
        for i in range(6):
            if i == 4:
                engine = Engine(0, running=1)
            engine.serve(10)
            server.answer = serving(engine)
            router.answer = Answer(f'{name}{{model="m"}} {100.0 * i}\n')
            metrics = check_source(source)
            clock.advance(5.0)
        assert metrics.completion_rps.status is SignalStatus.RESET
        assert metrics.arrival_rps.value == pytest.approx(20.0)
        router.answer = Answer("", 500)
        metrics = check_source(source)
        assert metrics.arrival_rps.status is SignalStatus.STALE
        assert metrics.queue_depth.value is not None


def test_the_label_of_an_engine_can_be_another_one_M12():
    clock = ManualClock()
    lines = [f'vllm:num_requests_waiting{{pod="chat-rank-{rank}"}} {10**rank}' for rank in range(3)]
    with Server(Answer("\n".join(lines) + "\n")) as server:
        source = scraper(clock, 2, server.metrics_url, engine_label="pod")
        assert source.read().queue_depth.value == 11  # rank 2 is beyond the width


def test_findings_after_a_first_read():
    clock = ManualClock()
    with Server(serving(Engine(0, running=1))) as server:
        found = {f.subject: f for f in scraper(clock, 1, server.metrics_url).findings()}
        assert found["window_s"].level is Level.OK
        assert found["ttft_p95_s"].level is Level.OK


def test_a_gap_longer_than_two_scrapes_quarantines_one_window():
    clock = ManualClock()
    engine = Engine(0, running=1)
    with Server(serving(engine)) as server:
        source = scraper(clock, 1, server.metrics_url)
        seen = []
        for i in range(14):
            engine.serve(10)
            server.answer = serving(engine)
            clock.advance(20.0 if i == 5 else 5.0)
            seen.append(check_source(source).completion_rps.status)
        assert seen[4] is SignalStatus.OK
        assert set(seen[5:11]) == {SignalStatus.QUARANTINED}
        assert seen[-1] is SignalStatus.OK
