"""What a monitoring system sees of the fleet, and what it doesn't."""

import pytest

from autoscaler.model import SignalStatus, Slo
from autoscaler.sim.probe import Probe
from tests.sim.worlds import fleet, model, steady

SLO = Slo(ttft_p95_s=5.0, window_s=30.0)


def test_a_steady_load_reads_as_it_is():
    probe = Probe(fleet(steady(1.5, 300)), SLO)
    probe.play(200.0)
    metrics = probe.read()
    assert metrics.arrival_rps.value == pytest.approx(1.5, abs=0.05)
    assert metrics.completion_rps.value == pytest.approx(1.5, abs=0.1)
    assert metrics.queue_depth.value == 0
    assert metrics.queue_wait_s.value == 0
    assert metrics.prompt_tokens_mean.value == 10
    assert metrics.output_tokens_mean.value == pytest.approx(100, rel=0.15)
    assert metrics.slo_attainment_ratio.value == 1.0
    # Up to a step of 40 ms to the boundary, one to prefill, seen through buckets.
    assert 0.06 < metrics.ttft_p95_s.value <= 0.08
    assert metrics.failure_rps.value == 0


def test_an_overload_shows_as_queue_first_and_as_ttft_later():
    probe = Probe(fleet(steady(4.0, 300)), SLO)
    probe.play(30.0)
    early = probe.read()
    assert early.queue_depth.value > 20
    assert early.queue_wait_s.value > 5.0
    assert early.ttft_p95_s.value < early.queue_wait_s.value + 10.0
    assert early.arrival_rps.value == pytest.approx(4.0, rel=0.05)
    probe.play(200.0)
    assert probe.read().ttft_p95_s.value > 40.0


def test_before_the_first_scrape_there_is_no_series():
    probe = Probe(fleet(steady(1.0, 60)), SLO, scrape_interval_s=5.0)
    probe.play(2.0)
    assert probe.read().ttft_p95_s.status is SignalStatus.NO_SERIES
    probe.play(5.0)
    assert probe.read().ttft_p95_s.status is SignalStatus.FEW_SAMPLES


def test_few_or_no_first_tokens_make_no_quantile_M23_M32():
    probe = Probe(fleet(steady(0.1, 100)), SLO)
    probe.play(60.0)
    metrics = probe.read()
    assert metrics.ttft_p95_s.status is SignalStatus.FEW_SAMPLES
    assert metrics.ttft_p95_s.value is None
    probe.play(200.0)
    assert probe.read().ttft_p95_s.status is SignalStatus.NO_OBSERVATIONS


def test_a_growth_leaves_a_hole_then_a_reset_then_values_of_the_new_engine_A36():
    world = fleet(steady(1.5, 300), model(prepare_s=0.0, pause_up_s=20.0))
    probe = Probe(world, SLO)
    probe.play(100.0)
    world.request(4, 2, 100.0)
    probe.play(110.0)
    assert probe.read().queue_depth.status is SignalStatus.STALE
    assert "503" in probe.read().ttft_p95_s.detail
    probe.play(125.0)
    metrics = probe.read()
    assert metrics.ttft_p95_s.status is SignalStatus.RESET
    assert metrics.completion_rps.value is None
    assert metrics.queue_depth.value is not None
    probe.play(160.0)
    assert probe.read().ttft_p95_s.value is not None
    assert probe.read().arrival_rps.value == pytest.approx(1.5, abs=0.1)


def test_nothing_running_and_nothing_waiting_after_a_growth_is_not_idle():
    resize = model(prepare_s=0.0, pause_up_s=40.0, new="reject", reject_up_s=20.0)
    world = fleet(steady(1.5, 300), resize)
    probe = Probe(world, SLO)
    probe.play(100.0)
    world.request(4, 2, 100.0)
    probe.play(130.0)  # the door is open again, and no token was served yet
    metrics = probe.read()
    assert metrics.queue_depth.status is SignalStatus.QUARANTINED
    assert metrics.running.value is None


def test_engines_are_summed_and_frozen_ones_left_out_M15():
    world = fleet(
        steady(3.0, 300), model(leaving="abort", prepare_s=0.0, pause_down_s=0.5), width=4
    )
    probe = Probe(world, SLO)
    probe.play(100.0)
    assert probe.read().running.value > 4
    world.request(1, 4, 100.0)
    probe.play(110.0)
    assert probe.read().running.value == 4  # one rank's slots; three frozen ranks had as many
    assert probe.read().queue_depth.value > 0


def test_reading_in_each_tick_takes_nothing_out_of_the_window_S06():
    slo = Slo(ttft_p95_s=5.0, window_s=180.0)
    often, once = (Probe(fleet(steady(1.5, 400)), slo) for _ in range(2))
    for tick in range(1, 61):
        often.play(5.0 * tick)
        seen = often.read()
    once.play(300.0)
    assert seen == once.read()
    # 180 s of 1.5 a second, and not the 7 of the last 5 s: less one scrape interval at most.
    assert 1.5 * 170 <= seen.ttft_observations.value <= 1.5 * 180


def test_a_shrink_resets_no_counter():
    world = fleet(steady(0.5, 300), model(prepare_s=0.0, pause_down_s=0.5), width=4)
    probe = Probe(world, SLO, min_observations=5)
    probe.play(100.0)
    world.request(2, 4, 100.0)
    probe.play(115.0)
    assert probe.read().ttft_p95_s.value is not None
