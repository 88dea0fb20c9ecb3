"""The prometheus source on a real Prometheus that scrapes real HTTP."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields

import pytest

from autoscaler.clock import SystemClock
from autoscaler.errors import ObservationError
from autoscaler.findings import Finding, Level
from autoscaler.model import Signal, SignalStatus, Slo
from autoscaler.ports import SourceContext
from autoscaler.sources.prometheus import Params, PrometheusSource, build
from autoscaler.testing import check_source
from tests.adapters.prometheus.conftest import Prometheus, Start
from tests.adapters.prometheus.pages import Engine, page
from tests.adapters.prometheus.servers import Answer, Server

SLO = Slo(ttft_p95_s=5.0, window_s=4.0)
INTERVAL_MS = 200
# Twice the real one: a loaded machine scrapes late, and that is not what is tested here.
SCRAPE_INTERVAL_S = 0.4


ODD = 'a"b\\c}\n'


def reader(prometheus: Prometheus, engines: int | None = 2, **more: object) -> PrometheusSource:
    params = Params(url=prometheus.url, scrape_interval_s=SCRAPE_INTERVAL_S, **more)
    return build(params, SourceContext(SLO, SystemClock(), lambda: engines))


class Load:
    """Engines that serve on while they are scraped: 3 + index + 1 requests each time."""

    def __init__(self, count: int = 2) -> None:
        self.engines = [Engine(index) for index in range(count)]
        self.lock = threading.Lock()

    def __call__(self, _: object) -> Answer:
        with self.lock:
            for engine in self.engines:
                engine.serve(3 + engine.index, ttft_s=0.3)
                engine.serve(1, ttft_s=3.0)
            return Answer(page(self.engines))


class Router:
    """A router that five requests arrive at between two scrapes."""

    def __init__(self) -> None:
        self.started = 0.0

    def __call__(self, _: object) -> Answer:
        self.started += 5
        name = "dynamo_frontend_requests_started_total"
        return Answer(f'# TYPE {name} counter\n{name}{{model="m"}} {self.started}\n')


@dataclass
class World:
    """One Prometheus and what it scrapes: bench (by two jobs), three ranks, fading, a router."""

    prometheus: Prometheus
    fading: Server


@pytest.fixture(scope="module")
def world(start_prometheus: Start) -> Iterator[World]:
    bench, ranks = Load(), [Load(1) for _ in range(3)]
    bench.engines[0].waiting, bench.engines[1].waiting = 12.0, 0.0
    bench.engines[0].running, bench.engines[1].running = 3.0, 4.0
    for number, load in enumerate(ranks):
        load.engines[0].waiting = 10.0 * (number + 1)
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(x)) for x in (bench, Router(), Load(), *ranks)]
        targets = [f"127.0.0.1:{server.port}" for server in servers]
        started = start_prometheus(
            {
                "bench": (targets[0], {"namespace": "bench", "team": ODD}),
                # The same engines, scraped by a second job.
                "twin": (targets[0], {"namespace": "bench", "team": ODD}),
                "router": (targets[1], {"namespace": "router"}),
                "fading": (targets[2], {"namespace": "fading"}),
                **{f"rank{i}": (t, {"namespace": "ranks"}) for i, t in enumerate(targets[3:])},
            },
            INTERVAL_MS,
        )
        full = SLO.window_s / INTERVAL_MS * 1000 + 5
        started.wait_for(lambda: all(len(s.requests) > full for s in servers), "a whole window")
        yield World(started, servers[2])


def test_metrics_agree_with_promql_on_the_same_samples(world: World):
    started = world.prometheus
    chosen = {"namespace": "bench", "job": "bench", "team": ODD, "model_name": "m"}
    source = reader(started, labels=chosen)
    metrics = check_source(source)
    at_s = source.now_s
    window = f"{int(SLO.window_s * 1000)}ms"

    def rate(name: str, more: str = "") -> float:
        return started.number(f'sum(rate({name}{{job="bench"{more}}}[{window}]))', at_s)

    # Each of them from the same samples: the first and the last one in the window.
    for signal, series in (
        (metrics.completion_rps, "vllm:request_success_total"),
        (metrics.output_tokens_per_s, "vllm:generation_tokens_total"),
        (metrics.prompt_tokens_per_s, "vllm:prompt_tokens_total"),
    ):
        assert signal.value == pytest.approx(rate(series), rel=1e-6)
    assert metrics.failure_rps.value == 0
    assert metrics.arrival_rps.value == pytest.approx(metrics.completion_rps.value)
    ttft = "vllm:time_to_first_token_seconds_bucket"
    p95 = f'histogram_quantile(0.95, sum by (le) (rate({ttft}{{job="bench"}}[{window}])))'
    assert metrics.ttft_p95_s.value == pytest.approx(started.number(p95, at_s), rel=1e-9)
    share = rate(ttft, ',le="5.0"') / rate(ttft, ',le="+Inf"')
    assert metrics.slo_attainment_ratio.value == pytest.approx(share)
    kv = started.number('max(vllm:kv_cache_usage_perc{namespace="bench"})', at_s)
    assert metrics.kv_cache_usage_ratio.value == kv
    assert metrics.queue_wait_s.value == pytest.approx(12 / metrics.completion_rps.value)


def test_engines_are_added_up_and_those_beyond_the_width_left_out_M15_G18(world: World):
    bench = {"namespace": "bench"}
    metrics = reader(world.prometheus, 2, labels=bench).read()
    assert metrics.queue_depth.value == 12  # the sum: neither the last one nor the mean
    assert metrics.running.value == 7
    assert reader(world.prometheus, 1, labels=bench).read().running.value == 3
    assert reader(world.prometheus, None, labels=bench).read().running.value == 7


def test_two_jobs_that_scrape_the_same_engine_count_it_once_T12(world: World):
    metrics = check_source(reader(world.prometheus, None, labels={"namespace": "bench"}))
    assert metrics.running.value == 7
    # Nine requests are served with each scrape, and there are two in 0.2 s.
    assert metrics.completion_rps.value == pytest.approx(2 * 9 / 0.2, rel=0.2)


def test_findings_name_what_does_not_fit_M09_M10(world: World):
    def found(**labels: str) -> dict[str, Finding]:
        return {f.subject: f for f in reader(world.prometheus, labels=labels).findings()}

    good = found(namespace="bench")
    assert good["namespace"].level is Level.OK
    assert good["ttft_p95_s"].level is Level.OK
    assert good["scrape_interval_s"].level is Level.WARNING  # twice the real one, see above
    # The label is missing, or its value is nearly right.
    wrong = found(namespace="bench", model_name="n")
    assert wrong["model_name"].level is Level.ERROR
    assert "there is 'm'" in wrong["model_name"].detail
    assert wrong["queue_depth"].level is Level.ERROR
    assert "is 'bench' meant?" in found(namespace="benhc")["namespace"].detail
    assert found(pod="x")["pod"].detail == "no series has a label pod"


def test_series_that_do_not_exist_are_no_series_and_no_zero_M04_G05_G06(world: World):
    metrics = check_source(reader(world.prometheus, labels={"model_name": "another"}))
    for field in fields(metrics):
        signal = getattr(metrics, field.name)
        if isinstance(signal, Signal):
            assert signal.status is SignalStatus.NO_SERIES, field.name


def test_queries_replace_single_signals_and_their_mistakes_stay_theirs_G17(world: World):
    queries = {
        "arrival_rps": "vector(7.5)",
        "running": "scalar(vector(3))",
        "queue_depth": 'vllm:num_requests_waiting{job="bench"}',  # two elements
        "queue_wait_s": "vector(0) / 0",
        "itl_p95_s": "absent_series",
        "failure_rps": "sum(",
    }
    source = reader(world.prometheus, queries=queries, labels={"namespace": "bench"})
    metrics = check_source(source)
    assert metrics.arrival_rps.value == 7.5  # G17: each query's answer is its own
    assert metrics.running.value == 3.0
    assert metrics.queue_depth.status is SignalStatus.AMBIGUOUS  # P5
    assert metrics.queue_wait_s.status is SignalStatus.NON_FINITE  # P7, M02
    assert metrics.itl_p95_s.status is SignalStatus.NO_SERIES  # P1
    assert metrics.failure_rps.status is SignalStatus.STALE
    assert "parse error" in metrics.failure_rps.detail
    assert metrics.output_tokens_per_s.value is not None


def test_engines_that_are_targets_of_their_own_are_added_up_M15(world: World):
    """External data parallelism: a target a rank, each with engine 0."""
    metrics = check_source(reader(world.prometheus, 3, labels={"namespace": "ranks"}))
    assert metrics.queue_depth.value == 60
    assert metrics.completion_rps.value == pytest.approx(3 * 4 / 0.2, rel=0.2)


def test_true_arrivals_come_from_the_router(world: World):
    chosen = {"labels": {"namespace": "bench"}, "router": "dynamo"}
    metrics = reader(world.prometheus, router_labels={"model": "m"}, **chosen).read()
    assert metrics.arrival_rps.value == pytest.approx(5 / 0.2, rel=0.2)
    missing = reader(world.prometheus, router_labels={"model": "x"}, **chosen).read()
    assert missing.arrival_rps.status is SignalStatus.NO_SERIES


def test_a_target_that_goes_away_is_stale_at_once(world: World):
    source = reader(world.prometheus, labels={"namespace": "fading"})
    assert source.read().queue_depth.value == 0
    world.fading.answer = Answer("", 503)
    up = 'up{namespace="fading"}'
    world.prometheus.wait_for(lambda: world.prometheus.number(up) == 0, "a failed scrape")
    metrics = source.read()
    assert metrics.queue_depth.status is SignalStatus.STALE
    assert "the last scrape failed" in metrics.queue_depth.detail


def test_an_outage_gives_errors_and_a_return_gives_what_was_missed_M05_G11(start_prometheus: Start):
    with Server(Load()) as engine:
        started = start_prometheus({"vllm": (f"127.0.0.1:{engine.port}", {})})
        source = reader(started)

        def known() -> bool:
            try:
                return source.read().ttft_p95_s.value is not None
            except ObservationError:
                return False

        started.wait_for(known, "a first p95")
        started.stop()
        for _ in range(3):
            with pytest.raises(ObservationError, match="connection refused"):
                source.read()
        started.start()
        after = source.read()
        # It was away and scraped nothing: a hole, and no number from before it.
        assert after.ttft_p95_s.status in (
            SignalStatus.STALE,
            SignalStatus.QUARANTINED,
            SignalStatus.FEW_SAMPLES,
        )
        assert after.arrival_rps.value is None
        started.wait_for(known, "p95 again")
