"""The exported values, read over real HTTP as a scraper reads them."""

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from autoscaler import __version__
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.decisions import MemoryLog
from autoscaler.endpoint import Endpoint
from autoscaler.errors import ConfigError, ObservationError, TargetError
from autoscaler.guards import Guards, Params
from autoscaler.loop import ControlLoop
from autoscaler.model import SetOutcome, SetResult, Signal, SignalStatus, Slo
from autoscaler.policies import static
from autoscaler.ports import PolicyContext
from autoscaler.telemetry import SERIES, Telemetry
from autoscaler.testing import FakeSource, FakeTarget, ManualClock, observation

FREE = Params(cooldown_down_s=0, scale_down_window_s=0, settle_s=0, max_reversals_per_hour=None)
WINDOW_METRICS = observation(
    ttft_p95_s=1.25,
    slo_attainment_ratio=0.875,
    queue_depth=Signal(None, SignalStatus.STALE),
    itl_p95_s=Signal(None, SignalStatus.TOP_BUCKET, 2.5),
).metrics


class Knowing(static.Static):
    """Wants four, and knows that each unit of width bears ten requests a second."""

    def __init__(self):
        super().__init__(static.Params(4))

    def capacity_rps(self, width):
        return 10.0 * width


class Setup:
    """A loop with fakes, and its series behind a real endpoint."""

    def __init__(self, wish=4, shadows=(), timeout_s=1200.0):
        self.clock = ManualClock()
        self.target = FakeTarget(self.clock, 2, resize_s=20.0)
        self.source = FakeSource(WINDOW_METRICS)
        self.telemetry = Telemetry()
        self.telemetry.begin("chat", 5.0)
        controllers = [self.controller(width, timeout_s) for width in (wish, *shadows)]
        self.loop = ControlLoop(
            self.source,
            self.target,
            controllers[0],
            self.clock,
            MemoryLog(),
            Slo(),
            5.0,
            {f"static:{w}": c for w, c in zip(shadows, controllers[1:], strict=True)},
        )
        self.problems = {"unhealthy": [], "unready": []}
        self.endpoint = Endpoint(
            self.telemetry,
            lambda: self.problems["unhealthy"],
            lambda: self.problems["unready"],
            "127.0.0.1",
            0,
        )
        self.endpoint.start()

    @staticmethod
    def controller(width, timeout_s):
        policy = static.build(static.Params(width), PolicyContext(Slo(), 5.0))
        return Controller(policy, Guards(FREE), Convergence(ConvergenceParams(timeout_s)))

    def ticks(self, count):
        def after():
            self.clock.advance(0.125)  # what a tick takes
            self.telemetry.observe("chat", self.loop)

        self.loop.run(until_s=self.clock.now_s() + 5.0 * count - 1, after_tick=after)
        self.clock.advance(5.0 - 0.125)

    def get(self, path="/metrics"):
        url = f"http://127.0.0.1:{self.endpoint.port}{path}"
        return requests.get(url, timeout=5)

    def samples(self):
        return {
            (s.name, *(v for k, v in sorted(s.labels.items()) if k != "target")): s.value
            for family in text_string_to_metric_families(self.get().text)
            for s in family.samples
        }


@pytest.fixture
def setup():
    made = []

    def build(**options):
        made.append(Setup(**options))
        return made[-1]

    yield build
    for one in made:
        one.endpoint.stop()


def test_exactly_the_series_of_the_table_are_exported(setup):
    one = setup(shadows=(6,))
    one.loop.controller.policy = Knowing()
    one.source.metrics = ObservationError("gone")
    one.ticks(1)
    one.source.metrics = WINDOW_METRICS
    one.ticks(10)
    found = list(text_string_to_metric_families(one.get().text))
    names = {f.name + ("_total" if f.type == "counter" else "") for f in found}
    assert names == set(SERIES)
    for family in found:
        series = SERIES[family.name + ("_total" if family.type == "counter" else "")]
        assert family.samples, family.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(series.labels)
            assert not sample.name.endswith("_created")


def test_R28_the_exported_widths_are_the_real_ones_G39(setup):
    one = setup(shadows=(6,))
    one.ticks(1)
    found = one.samples()
    assert found["autoscaler_width", "proposed"] == 4
    assert found["autoscaler_width", "desired"] == 2  # as read; the write came after
    assert found["autoscaler_shadow_width", "static:6"] == 6
    one.ticks(1)
    found = one.samples()
    widths = {k[1]: v for k, v in found.items() if k[0] == "autoscaler_width"}
    one.target.effective = None
    assert widths == {"proposed": 4, "desired": 4, "effective": 2, "stable": 2}
    one.ticks(1)
    assert ("autoscaler_width", "effective") not in one.samples()  # S12: unknown now


def test_unknown_signals_are_absent_and_say_why_S12(setup):
    one = setup()
    one.ticks(1)
    found = one.samples()
    assert found["autoscaler_signal", "ttft_p95_s"] == 1.25
    assert found["autoscaler_slo_attainment_ratio",] == 0.875
    assert ("autoscaler_signal", "queue_depth") not in found
    assert found["autoscaler_signal_status", "queue_depth", "stale"] == 1
    assert ("autoscaler_signal", "itl_p95_s") not in found
    assert found["autoscaler_signal_status", "itl_p95_s", "top_bucket"] == 1
    one.source.metrics = ObservationError("gone")
    one.ticks(1)
    found = one.samples()
    assert ("autoscaler_slo_attainment_ratio",) not in found
    assert ("autoscaler_signal", "ttft_p95_s") not in found
    assert found["autoscaler_errors_total", "ObservationError", "source"] == 1
    one.target.unreadable = TargetError("gone too")
    one.ticks(2)
    found = one.samples()
    assert not [k for k in found if k[0] == "autoscaler_width"]
    assert found["autoscaler_errors_total", "TargetError", "target"] == 2
    assert found["autoscaler_decisions_total", "hold", "target_unreadable"] == 2


def test_what_is_no_number_is_held_and_counted_though_a_scrape_may_miss_it_M02(setup):
    one = setup(wish=2)
    nan = Signal(None, SignalStatus.NON_FINITE, detail="is nan")
    two = Signal(None, SignalStatus.AMBIGUOUS, detail="2 elements where one is meant")
    for ttft in (nan, nan, two, Signal(1.0)):
        one.source.metrics = observation(ttft_p95_s=ttft).metrics
        one.ticks(1)
    found = one.samples()
    assert found["autoscaler_errors_total", "non_finite", "signal"] == 2
    assert found["autoscaler_errors_total", "ambiguous", "signal"] == 1
    assert one.target.writes == []
    assert found["autoscaler_signal", "ttft_p95_s"] == 1.0  # and no -9.2e15 ever


def test_a_resize_is_counted_once_and_timed_from_the_patch(setup):
    one = setup()
    one.ticks(10)
    found = one.samples()
    assert found["autoscaler_resizes_total", "up", "converged"] == 1
    assert found["autoscaler_resize_duration_seconds_count", "up"] == 1
    assert found["autoscaler_resize_duration_seconds_sum", "up"] == 20.0
    assert found["autoscaler_resize_duration_seconds_bucket", "up", "20.0"] == 1
    assert found["autoscaler_resize_duration_seconds_bucket", "up", "10.0"] == 0
    assert found["autoscaler_decisions_total", "applied", "static"] == 1
    states = {k[1]: v for k, v in found.items() if k[0] == "autoscaler_convergence_state"}
    assert sum(states.values()) == 1
    assert states["converged"] == 1


def test_a_time_out_and_the_late_success_are_one_resize(setup):
    one = setup(timeout_s=10.0)
    one.ticks(10)
    found = one.samples()
    resizes = {k[1:]: v for k, v in found.items() if k[0] == "autoscaler_resizes_total" and v}
    assert resizes == {("up", "timed_out"): 1}


def test_only_real_resizes_count_and_answers_are_told_apart_G28(setup):
    one = setup()
    one.target.answers = [SetOutcome(SetResult.CONFLICT), SetOutcome(SetResult.REFUSED)]
    one.ticks(4)
    found = one.samples()
    assert found["autoscaler_decisions_total", "conflict", "static"] == 1
    assert found["autoscaler_decisions_total", "refused", "static"] == 1
    assert found["autoscaler_decisions_total", "hold", "refused"] == 2
    assert not [k for k, v in found.items() if k[0] == "autoscaler_resizes_total" and v]
    assert found["autoscaler_errors_total", "refused", "write"] == 1


def test_before_its_first_tick_a_target_has_counters_at_zero(setup):
    found = setup().samples()
    assert found["autoscaler_tick_interval_seconds",] == 5
    assert found["autoscaler_tick_duration_seconds_count",] == 0
    assert found["autoscaler_resizes_total", "up", "failed"] == 0
    assert found["autoscaler_resize_duration_seconds_count", "down"] == 0
    windows = {k[1]: v for k, v in found.items() if k[0] == "autoscaler_slo_windows_total"}
    assert windows == {"met": 0, "missed": 0, "unknown": 0}


def test_each_tick_counts_a_window_that_is_met_missed_or_unknown(setup):
    one = setup(wish=2)
    nothing = Signal(None, SignalStatus.NO_OBSERVATIONS)
    for metrics in (
        observation(ttft_p95_s=5.0).metrics,
        observation(ttft_p95_s=nothing, queue_depth=0.0).metrics,
        observation(ttft_p95_s=5.01).metrics,
        observation(ttft_p95_s=1.0, ttft_p95_penalised_s=30.0).metrics,
        observation(ttft_p95_s=Signal(None, SignalStatus.TOP_BUCKET, 2560.0)).metrics,
        observation(ttft_p95_s=nothing, queue_depth=1.0).metrics,
        observation(ttft_p95_s=nothing, queue_depth=None).metrics,
        observation(ttft_p95_s=Signal(None, SignalStatus.STALE)).metrics,
        observation(ttft_p95_s=Signal(None, SignalStatus.TOP_BUCKET, 2.5)).metrics,
    ):
        one.source.metrics = metrics
        one.ticks(1)
    one.target.unreadable = TargetError("gone")
    one.ticks(1)
    found = one.samples()
    windows = {k[1]: v for k, v in found.items() if k[0] == "autoscaler_slo_windows_total"}
    assert windows == {"met": 2, "missed": 4, "unknown": 4}
    assert found["autoscaler_slo_ttft_p95_seconds",] == 5


def test_what_the_effective_width_bears_is_exported_where_a_policy_or_a_shadow_knows(setup):
    one = setup(shadows=(2,))
    one.ticks(1)
    name = ("autoscaler_capacity_requests_per_second",)
    assert name not in one.samples()
    one.loop.shadows["static:2"].policy = Knowing()
    one.ticks(1)
    assert one.samples()[name] == 20
    one.target.effective = None
    one.ticks(1)
    assert name not in one.samples()


def test_gpu_seconds_count_from_the_request_on(setup):
    one = setup()
    one.ticks(3)  # asked for 4 in the first tick: from there on both are allocated
    assert one.samples()["autoscaler_gpu_seconds_total",] == 4 * 10.0
    assert one.samples()["autoscaler_gpus",] == 4


def test_ticks_are_timed(setup):
    one = setup()
    one.ticks(4)
    found = one.samples()
    assert found["autoscaler_tick_duration_seconds_count",] == 4
    assert found["autoscaler_tick_duration_seconds_sum",] == pytest.approx(0.5)
    assert found["autoscaler_tick_duration_seconds_bucket", "0.1"] == 0
    assert found["autoscaler_tick_duration_seconds_bucket", "0.25"] == 4
    assert found["autoscaler_tick_lateness_seconds",] == 0
    assert found["autoscaler_build_info", __version__] == 1
    assert found["autoscaler_leader",] == 1


def test_counters_survive_a_new_loop_and_gauges_of_a_forgotten_target_go(setup):
    one = setup()
    one.source.metrics = ObservationError("gone")
    one.ticks(2)
    one.telemetry.restart("chat")
    one.loop.errors.clear()
    one.ticks(1)
    name = "autoscaler_errors_total", "ObservationError", "source"
    assert one.samples()[name] == 3
    one.telemetry.forget("chat")
    found = one.samples()
    assert found[name] == 3
    assert not [k for k in found if k[0] in ("autoscaler_width", "autoscaler_signal_status")]


def test_health_and_readiness_name_what_is_wrong(setup):
    one = setup()
    assert (one.get("/healthz").status_code, one.get("/readyz").text) == (200, "ok\n")
    one.problems["unhealthy"].append("chat: stuck")
    one.problems["unready"].append("chat: cannot read")
    assert (one.get("/healthz").status_code, one.get("/healthz").text) == (503, "chat: stuck\n")
    assert (one.get("/readyz").status_code, one.get("/readyz").text) == (503, "chat: cannot read\n")
    assert one.get("/metrics").status_code == 200
    assert one.get("/other").status_code == 404
    url = f"http://127.0.0.1:{one.endpoint.port}/metrics"
    assert requests.post(url, timeout=5).status_code == 501
    assert requests.head(url, timeout=5).text == ""


def test_a_taken_port_is_a_configuration_error_and_the_default_is_loopback_G79(setup):
    one = setup()
    with pytest.raises(ConfigError, match="must be an address to listen on; Address already"):
        Endpoint(one.telemetry, list, list, "127.0.0.1", one.endpoint.port)
    with pytest.raises(ConfigError, match="must be an address to listen on"):
        Endpoint(one.telemetry, list, list, "no.such.host.invalid", 0)
