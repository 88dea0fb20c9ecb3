"""What a Prometheus may answer, over real HTTP: the strict reading of KEDA's table, and more."""

import json
from collections.abc import Callable

import pytest

from autoscaler.errors import ObservationError
from autoscaler.model import Metrics, SignalStatus, Slo
from autoscaler.ports import SourceContext
from autoscaler.sources.prometheus import Params, PrometheusSource, build
from autoscaler.testing import ManualClock, check_source
from tests.adapters.prometheus.answering import QUERY, FakePrometheus
from tests.adapters.prometheus.servers import Answer, Server


class World:
    def __init__(self, url: str, fake: FakePrometheus) -> None:
        self.fake = fake
        self.clock = ManualClock()
        self.url = url

    def source(self, **more: object) -> PrometheusSource:
        params = Params(url=self.url, **{"queries": {"itl_p95_s": QUERY}, **more})
        return build(params, SourceContext(Slo(), self.clock, lambda: 2))

    def read(self, custom: Answer) -> Metrics:
        self.fake.custom = custom
        return check_source(self.source())


@pytest.fixture
def world():
    fake = FakePrometheus()
    with Server(fake) as server:
        yield World(server.url + "/", fake)


def vector(*values: object) -> Answer:
    result = [{"metric": {"i": str(i)}, "value": value} for i, value in enumerate(values)]
    content = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(content))


def test_one_tick_asks_twice_and_everything_at_one_instant(world: World):
    source = world.source(queries={})
    metrics = check_source(source)
    assert metrics.completion_rps.value == pytest.approx(4.0)
    assert metrics.queue_depth.value == 3
    count, matrix = world.fake.queries
    assert matrix["time"] == f"{world.fake.now_s:.3f}"
    assert count["query"].endswith("or vector(0)")
    assert matrix["query"].endswith("[35000ms]")
    assert source.now_s == world.fake.now_s


STRICT: dict[str, tuple[Answer, SignalStatus]] = {
    "P1 empty object": (Answer("{}"), SignalStatus.STALE),
    "P1 empty result": (vector(), SignalStatus.NO_SERIES),
    "P2 empty value": (vector([]), SignalStatus.STALE),
    "P3 value of one item": (vector([1.0]), SignalStatus.STALE),
    "P5 two elements": (vector([1, "1"], [1, "2"]), SignalStatus.AMBIGUOUS),
    "P6 HTTP 400": (Answer("", 400), SignalStatus.STALE),
    "P7 +Inf": (vector([1, "+Inf"]), SignalStatus.NON_FINITE),
    "P7 -Inf": (vector([1, "-Inf"]), SignalStatus.NON_FINITE),
    "P7 NaN": (vector([1, "NaN"]), SignalStatus.NON_FINITE),
    "login page": (Answer("<html>"), SignalStatus.STALE),
    "number instead of text": (vector([1, 2]), SignalStatus.STALE),
    "no number": (vector([1, "two"]), SignalStatus.STALE),
    "matrix": (
        Answer('{"status":"success","data":{"resultType":"matrix","result":[]}}'),
        SignalStatus.STALE,
    ),
    "status: error in a 200": (
        Answer('{"status":"error","errorType":"timeout","error":"query timed out"}'),
        SignalStatus.STALE,
    ),
}


@pytest.mark.parametrize("case", STRICT)
def test_what_is_not_exactly_one_number_is_none_M02_M04_G01_G02_G05(world: World, case: str):
    answer, status = STRICT[case]
    metrics = world.read(answer)
    assert metrics.itl_p95_s.value is None
    assert metrics.itl_p95_s.status is status
    assert metrics.queue_depth.value == 3  # its neighbours are not touched


@pytest.mark.parametrize(
    "answer",
    [
        vector(["1", "2"]),  # P4
        vector([1, "2.0"]),
        Answer('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'),
    ],
)
def test_P4_one_number_is_a_value(world: World, answer: Answer):
    assert world.read(answer).itl_p95_s.value == 2.0


@pytest.mark.parametrize(
    "wrong",
    [
        Answer("{}"),
        vector(),
        vector([1, "NaN"]),
        Answer('{"status":"error","errorType":"internal","error":"x"}'),
        Answer('{"status":"success","data":{"resultType":"vector"}}'),
        Answer("not json"),
        Answer("", 503),
    ],
)
@pytest.mark.parametrize("where", ["count", "range"])
def test_an_answer_that_is_none_is_an_observation_error(world: World, wrong: Answer, where: str):
    source = world.source()
    setattr(world.fake, where, wrong)
    with pytest.raises(ObservationError):
        source.read()


def test_the_body_of_a_refusal_is_not_repeated_but_prometheus_reason_is_G76(world: World):
    source = world.source()
    world.fake.count = Answer("password=hunter2 " * 100, 401)
    with pytest.raises(ObservationError) as caught:
        source.read()
    assert "hunter2" not in str(caught.value)
    world.fake.count = Answer(
        '{"status":"error","errorType":"bad_data","error":"parse error"}', 400
    )
    with pytest.raises(ObservationError, match="HTTP 400: bad_data: parse error"):
        source.read()


def test_warnings_are_kept(world: World):
    world.fake.warnings = ["a store did not answer"]
    source = world.source(queries={})
    source.read()
    assert set(source.warnings) == {"a store did not answer"}
    assert any("store" in finding.detail for finding in _findings(source))


def _findings(source: PrometheusSource):
    return source.findings()


def test_old_samples_are_stale_however_new_the_answer(world: World):
    source = world.source()
    check_source(source)
    world.fake.now_s += 30.0
    world.clock.advance(30.0)
    metrics = check_source(source)
    assert metrics.queue_depth.status is SignalStatus.STALE
    assert "newest sample 31 s old" in metrics.queue_depth.detail


def test_an_answer_that_does_not_age_is_refused_G14(world: World):
    source = world.source()
    check_source(source)
    world.clock.advance(30.0)
    with pytest.raises(ObservationError, match="repeats an old answer"):
        source.read()


def test_a_clock_of_prometheus_that_goes_back_starts_anew(world: World):
    source = world.source()
    check_source(source)
    world.fake.now_s -= 3600.0
    world.fake.scrapes = [(at_s - 3600.0, text) for at_s, text in world.fake.scrapes]
    assert check_source(source).completion_rps.value == pytest.approx(4.0)


@pytest.mark.parametrize("shift_s", [-1e9, 1e9, 12345.6])
def test_no_time_is_compared_with_a_clock_of_ours(world: World, shift_s: float):
    expected = check_source(world.source())
    world.fake.now_s += shift_s
    world.fake.scrapes = [(at_s + shift_s, text) for at_s, text in world.fake.scrapes]
    world.clock.advance(77.7)
    shifted = check_source(world.source())
    assert shifted.completion_rps.value == pytest.approx(expected.completion_rps.value)
    assert shifted.ttft_p95_s == expected.ttft_p95_s


def test_more_series_than_the_limit_are_an_error_G73(world: World):
    source = world.source(max_series=20)
    with pytest.raises(ObservationError, match="at most 20 series"):
        source.read()


def test_engines_that_are_gone_are_stale_at_once(world: World):
    source = world.source()
    check_source(source)
    world.fake.live = 0
    metrics = check_source(source)
    assert metrics.queue_depth.status is SignalStatus.STALE
    assert metrics.running.value is None


Change = Callable[[list[dict[str, object]]], list[dict[str, object]]]


@pytest.mark.parametrize(
    "change",
    [
        lambda result: [{**one, "values": [[1, "x"]]} for one in result],
        lambda result: [{**one, "values": "x"} for one in result],
        lambda result: [{"metric": 1} for _ in result],
        lambda result: [{**one, "metric": {"a": 1}} for one in result],
        lambda result: [1],
    ],
)
def test_a_matrix_of_another_shape_is_an_observation_error(world: World, change: Change):
    source = world.source()
    world.fake.range = world.fake.success("matrix", change(world.fake.matrix()))
    with pytest.raises(ObservationError, match="must be"):
        source.read()
