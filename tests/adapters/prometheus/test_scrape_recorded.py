"""The scrape source reads a real engine's recorded resizes, second by second, over real HTTP."""

from collections.abc import Callable

import pytest

from autoscaler.controller import Controller
from autoscaler.model import Capabilities, Metrics, Observation, SignalStatus, Slo, WidthStatus
from autoscaler.policies.threshold import Params as ThresholdParams
from autoscaler.policies.threshold import Threshold
from autoscaler.ports import PolicyContext, SourceContext
from autoscaler.sources.scrape import Params, build
from autoscaler.testing import ManualClock
from tests.adapters.prometheus.recorded import Reading, readings, refused_growth
from tests.adapters.prometheus.servers import Answer, Server

SLO = Slo(ttft_p95_s=5.0, window_s=30.0)


def play(
    recorded: list[Reading], engines: Callable[[float], int], step: int = 1
) -> dict[float, tuple[Metrics, bool]]:
    """Metrics by instant, and whether the controller wanted to write a width.

    The width is shown to the controller as steady all along, so that nothing but the metrics
    keeps it from writing.
    """
    clock = ManualClock()
    start_s = clock.now_s() - recorded[0].at_s
    policy = Threshold(ThresholdParams(idle_for_s=5.0), PolicyContext(SLO, float(step)))
    controller = Controller(policy)
    found: dict[float, tuple[Metrics, bool]] = {}
    with Server(Answer()) as server:
        width = engines(recorded[0].at_s)
        params = Params(urls=(server.metrics_url,), scrape_interval_s=float(step))
        source = build(params, SourceContext(SLO, clock, lambda: width))
        for tick, one in enumerate(recorded[::step]):
            clock.advance(start_s + one.at_s - clock.now_s())
            server.answer = one.answer
            width = engines(one.at_s)
            metrics = source.read()
            obs = Observation(
                tick, clock.now_s(), metrics, WidthStatus(2, 2, 2), Capabilities(1, 8), SLO
            )
            assert not obs.idle, f"idle at {one.at_s}"
            found[one.at_s] = metrics, controller.step(obs).width is not None
    return found


def between(found: dict[float, tuple[Metrics, bool]], start_s: float, end_s: float):
    rows = [row for at_s, row in found.items() if start_s <= at_s <= end_s]
    assert rows
    return rows


@pytest.mark.parametrize("step", [1, 5])
def test_shrinking_shows_as_a_hole_and_the_frozen_engine_is_left_out(step):
    found = play(readings("down-2to1-A"), lambda at_s: 2 if at_s < 57.5 else 1, step)
    assert not any(wrote for _, wrote in found.values())
    before = between(found, 27.8, 29.0)[-1][0]
    assert before.queue_depth.value == 0
    assert before.running.value == 8
    for metrics, _ in between(found, 29.9, 57.0):
        assert metrics.queue_depth.status is SignalStatus.STALE
        assert "503" in metrics.queue_depth.detail
        assert (
            metrics.running.value is metrics.ttft_p95_s.value is metrics.arrival_rps.value is None
        )
        assert metrics.kv_cache_usage_ratio.value is None
    for metrics, _ in between(found, 57.5, 85.0):
        assert metrics.ttft_p95_s.status is SignalStatus.QUARANTINED
        # Engine 1 stands at 4 running for ever; engine 0 never has more than 8.
        assert metrics.running.value in (1, 4, 8)
    last = between(found, 115.0, 122.0)[-1][0]
    assert last.running.value == 8
    assert last.output_tokens_per_s.value == pytest.approx(1750, rel=0.1)
    assert last.completion_rps.value == pytest.approx(1750 / 256, rel=0.2)
    assert last.ttft_p95_s.value < 1.0
    assert last.slo_attainment_ratio.value == 1.0
    assert last.prompt_tokens_mean.value == pytest.approx(1024, rel=0.05)
    assert last.output_tokens_mean.value == pytest.approx(256, rel=0.15)


@pytest.mark.parametrize("step", [1, 5])
def test_growing_shows_as_a_hole_a_reset_and_zeros_that_are_unknown_not_idle_M26(step):
    found = play(readings("up-1to2-A"), lambda at_s: 1 if at_s < 345.2 else 2, step)
    assert not any(wrote for _, wrote in found.values())
    for metrics, _ in between(found, 278.1, 345.3):
        assert metrics.queue_depth.status is SignalStatus.STALE
    for metrics, _ in between(found, 346.0, 354.5):
        # 0 running and 0 waiting for 9 s while clients wait.
        assert metrics.queue_depth.status is SignalStatus.QUARANTINED
        assert metrics.running.status is SignalStatus.QUARANTINED
        assert metrics.kv_cache_usage_ratio.status is SignalStatus.QUARANTINED
    for metrics, _ in between(found, 346.0, 374.0):
        assert metrics.ttft_p95_s.status is SignalStatus.RESET
        assert metrics.arrival_rps.status is SignalStatus.RESET
    burst = between(found, 355.0, 360.0)[0][0]
    assert burst.queue_depth.value is not None
    last = between(found, 380.0, 386.0)[-1][0]
    assert last.completion_rps.value > 1
    assert last.ttft_p95_s.value is not None


@pytest.mark.parametrize("step", [1, 5])
def test_a_refused_growth_shows_as_a_reset_and_its_phantom_engine_does_not_count(step):
    recorded = refused_growth()
    restart_s = recorded[20].at_s
    found = play(recorded, lambda at_s: 1, step)
    assert not any(wrote for _, wrote in found.values())
    for metrics, _ in between(found, restart_s, restart_s + 28.0):
        assert metrics.ttft_p95_s.status is SignalStatus.RESET
        assert metrics.arrival_rps.value is None
        assert metrics.running.value in (1, 4, 8)
        assert metrics.queue_depth.value == 0


def test_without_a_known_width_every_engine_that_shows_itself_counts():
    clock = ManualClock()
    with Server(readings("down-2to1-A")[5].answer) as server:
        params = Params(urls=(server.metrics_url,))
        source = build(params, SourceContext(SLO, clock, lambda: None))
        assert source.read().running.value == 8
