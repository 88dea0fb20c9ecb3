"""What a check says, and what the sources refuse to be built from."""

import pytest

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.findings import Level
from autoscaler.model import Metrics, Signal, SignalStatus, Slo
from autoscaler.parameters import from_mapping
from autoscaler.ports import SourceContext
from autoscaler.sources import prometheus, scrape
from autoscaler.sources._findings import (
    counter_in,
    interval_finding,
    label_finding,
    objective_finding,
    range_findings,
    shortest_range_s,
    signal_findings,
    window_finding,
)
from autoscaler.testing import ManualClock


@pytest.mark.parametrize(
    ("window_s", "interval_s", "level"),
    [
        (30, 5, Level.OK),
        (20, 5, Level.OK),
        (15, 5, Level.WARNING),
        (10, 5, Level.WARNING),
        (15, 30, Level.ERROR),
    ],
)
def test_a_window_holds_at_least_two_scrapes_better_four_M25(
    window_s: float, interval_s: float, level: Level
):
    assert window_finding(window_s, interval_s).level is level


@pytest.mark.parametrize(
    ("query", "range_s"),
    [
        ("sum(rate(x_total[15s]))", 15),
        ("rate(x_total{a='[5s]', b=\"c\"}[1m30s])", 90),
        ("sum(rate(x_total[5m])) / sum(increase(y_total [ 500ms ]))", 0.5),
        ("max_over_time(sum(rate(x_total[2m]))[1h:10s])", 120),
        ("last_over_time(gauge[5s])", None),
        ("gauge{a='rate(x[1s])'}", None),
        ("sum(gauge)", None),
    ],
)
def test_the_shortest_range_that_something_changes_over_is_found_M25(
    query: str, range_s: float | None
):
    assert shortest_range_s(query) == range_s


@pytest.mark.parametrize(
    ("scrape_s", "refused", "warned"),
    [(30, True, True), (7.5, False, True), (5, False, True), (3, False, False)],
)
def test_a_rate_over_15_s_with_a_scrape_each_30_s_is_refused_M25(
    scrape_s: float, refused: bool, warned: bool
):
    queries = {"arrival_rps": "sum(rate(requests_total[15s]))"}
    given = {"url": "http://x", "queries": queries, "scrape_interval_s": scrape_s}
    if refused:
        with pytest.raises(ConfigError, match=r"queries: arrival_rps: must look back over .*15 s"):
            from_mapping(prometheus.Params, given, "file.yaml")
    else:
        from_mapping(prometheus.Params, given, "file.yaml")
    found = range_findings(queries, scrape_s)
    assert [f.level for f in found] == [Level.WARNING] * warned


@pytest.mark.parametrize(
    ("limit_s", "level", "said"),
    [
        (5.0, Level.OK, "is a bucket bound"),
        (6.0, Level.WARNING, "5 s is one"),
        (50.0, Level.ERROR, "beyond the highest"),
    ],
)
def test_an_objective_is_best_a_bucket_bound(limit_s: float, level: Level, said: str):
    finding = objective_finding(Slo(ttft_p95_s=limit_s), (1.0, 5.0, 10.0))
    assert finding.level is level
    assert said in finding.detail
    assert objective_finding(Slo(), ()).level is Level.ERROR


@pytest.mark.parametrize(
    ("query", "counter"),
    [
        ("sum(vllm:request_success_total)", "vllm:request_success_total"),
        ("vllm:e2e_request_latency_seconds_sum{a='b'}", "vllm:e2e_request_latency_seconds_sum"),
        ("x_bucket", "x_bucket"),
        ("a_sum / b_count", "a_sum"),
        ("sum(rate(vllm:request_success_total[1m]))", None),
        ("sum by (le) (increase(x_bucket[1m]))", None),
        ("sum(vllm:num_requests_waiting)", None),
        ('gauge{name="a_total"}', None),
        ("rate (x_total[1m])", None),
        ("generator_rate_total", "generator_rate_total"),
    ],
)
def test_a_counter_taken_for_a_gauge_is_found_M27(query: str, counter: str | None):
    assert counter_in(query) == counter


def test_findings_of_signals_and_labels_M27_M10():
    metrics = Metrics(
        30.0,
        queue_depth=Signal(None, SignalStatus.AMBIGUOUS, detail="2 elements"),
        running=Signal(1.0),
    )
    found = {f.subject: f.level for f in signal_findings(metrics)}
    assert found["queue_depth"] is Level.ERROR
    assert found["ttft_p95_s"] is Level.ERROR
    assert found["itl_p95_s"] is Level.WARNING
    assert "running" not in found
    assert label_finding("model_name", "chat", ["chat"]).level is Level.OK
    near = label_finding("model_name", "deepseek", ["deepseek-chat", "llama"])
    assert "is 'deepseek-chat' meant?" in near.detail


@pytest.mark.parametrize(
    ("expected_s", "seen_s", "level"),
    [(5, 5.1, Level.OK), (5, 15, Level.ERROR), (5, 8, Level.WARNING), (15, 5, Level.WARNING)],
)
def test_the_scrape_interval_is_held_against_what_is_seen(
    expected_s: float, seen_s: float, level: Level
):
    assert interval_finding(expected_s, seen_s).level is level


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "tgi"}, "engine: must be one of sglang, vllm; got 'tgi'"),
        ({"router": "nginx"}, "router: must be one of dynamo, llm_d; got 'nginx'"),
        ({"scrape_interval_s": 0}, "scrape_interval_s: must be a finite number > 0"),
        ({"timeout_s": float("nan")}, "timeout_s: must be a finite number"),
        ({"min_coverage_ratio": 1.5}, "min_coverage_ratio"),
        ({"max_bytes": 3}, "max_bytes"),
        ({"colour": "red"}, "colour: unknown key"),
        ({"headers": ["a"]}, "headers: must be Mapping; got"),
    ],
)
@pytest.mark.parametrize("kind", ["prometheus", "scrape"])
def test_parameters_that_cannot_be_are_refused_by_name(
    kind: str, given: dict[str, object], message: str
):
    module = plugins.find("sources", kind)
    address = {"url": "http://x"} if kind == "prometheus" else {"urls": ["http://x/metrics"]}
    with pytest.raises(ConfigError, match=r"file\.yaml") as caught:
        from_mapping(module.Params, {**address, **given}, "file.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": {"a-b": "c"}}, "labels: must match"),
        ({"labels": {"__name__": "x"}}, "not be __name__"),
        ({"labels": {'x="1"} or y{z': "c"}}, "labels: must match"),
        ({"labels": {"a": "\ud800"}}, "must be Unicode text"),
        ({"labels": {"a": 1}}, "labels: a: must be str"),
        ({"target_labels": []}, "target_labels"),
        ({"router_labels": {"a": "b"}}, "router_labels"),
        ({"queries": {"latency": "x"}}, "queries: must be of ttft_p95_s"),
        ({"queries": {"running": " "}}, "queries: running: must be a query"),
        ({"queries": {"running": "x_total"}}, "rate() or increase() of a counter"),
        ({"queries": {"running": "x" * 9000}}, "at most 6000 characters"),
    ],
)
def test_queries_and_labels_that_cannot_work_are_refused_G72_G75_M27(
    given: dict[str, object], message: str
):
    with pytest.raises(ConfigError) as caught:
        from_mapping(prometheus.Params, {"url": "http://x", **given}, "file.yaml")
    assert message in str(caught.value)


def test_labels_too_long_for_an_address_are_refused_at_the_start_G72():
    params = prometheus.Params(url="http://x", labels={"a": "b" * 6000})
    context = SourceContext(Slo(), ManualClock(), lambda: None)
    with pytest.raises(ConfigError, match="labels: must make a query of at most 6000"):
        prometheus.build(params, context)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"urls": []}, "at least one address"),
        ({"urls": ["http://x/m", "http://x/m"]}, "each address once"),
        ({"router": "dynamo"}, "router_url: must be given"),
        ({"router_url": "http://x"}, "router_url: must be given"),
    ],
)
def test_addresses_to_scrape_have_to_make_sense(given: dict[str, object], message: str):
    with pytest.raises(ConfigError) as caught:
        from_mapping(scrape.Params, {"urls": ["http://a/m"], **given}, "file.yaml")
    assert message in str(caught.value)


def test_both_kinds_are_found_by_their_names():
    assert {"prometheus", "scrape"} <= set(plugins.names("sources"))
