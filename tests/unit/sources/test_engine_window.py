"""Pages to metrics: what counts, what is missing, and what must not be believed."""

import math
from dataclasses import fields

import pytest

from autoscaler.errors import ObservationError
from autoscaler.model import (
    Capabilities,
    Metrics,
    Observation,
    Signal,
    SignalStatus,
    Slo,
    WidthStatus,
)
from autoscaler.sources._engine_window import EngineWindow
from autoscaler.sources._ledger import _index
from tests.adapters.prometheus.pages import Engine, page
from tests.unit.sources.worlds import (
    SGLANG,
    SLO,
    VLLM,
    engines_page,
    samples_page,
    steady,
    text_page,
    window,
)


def statuses(metrics: Metrics) -> set[SignalStatus]:
    signals = [getattr(metrics, f.name) for f in fields(metrics)]
    return {s.status for s in signals if isinstance(s, Signal)}


def idle(metrics: Metrics) -> bool:
    return Observation(0, 0.0, metrics, WidthStatus(2, 2, 2), Capabilities(1, 8), SLO).idle


def test_a_steady_load_gives_every_signal():
    engines = [Engine(0, waiting=2, running=3), Engine(1, waiting=1, running=4, kv=0.5)]
    target = window()
    now_s = steady(target, engines)
    metrics = target.read(now_s, 2)
    assert statuses(metrics) == {SignalStatus.OK}
    assert metrics.completion_rps.value == pytest.approx(4.0)
    assert metrics.arrival_rps.value == pytest.approx(4.0)
    assert metrics.prompt_tokens_mean.value == 100
    assert metrics.output_tokens_mean.value == 10
    assert metrics.queue_depth.value == 3
    assert metrics.running.value == 7
    assert metrics.kv_cache_usage_ratio.value == 0.5
    assert metrics.queue_wait_s.value == pytest.approx(0.75)
    assert 0.25 < metrics.ttft_p95_s.value <= 0.5
    assert metrics.slo_attainment_ratio.value == 1.0


def test_the_queues_of_all_engines_are_added_up_M15():
    target = window()
    target.add(0.0, {"a": engines_page(Engine(0, waiting=12, running=1), Engine(1))})
    assert target.read(0.0, 2).queue_depth.value == 12
    target = window()
    target.add(0.0, {"a": engines_page(Engine(0)), "b": engines_page(Engine(0, waiting=12))})
    assert target.read(0.0, 2).queue_depth.value == 12


def test_a_member_without_engines_of_its_own_adds_none_M16():
    target = window()
    leader = engines_page(Engine(0, waiting=3, running=1), Engine(1, waiting=4))
    target.add(0.0, {"leader": leader, "follower": text_page("python_info 1.0\n")})
    metrics = target.read(0.0, 2)
    assert metrics.queue_depth.value == 7
    assert metrics.queue_depth.status is SignalStatus.OK


def test_a_frozen_engine_beyond_the_width_is_left_out():
    target = window()
    engines = [Engine(0, waiting=1, running=1, kv=0.1), Engine(1, waiting=9, running=4, kv=0.9)]
    target.add(0.0, {"a": engines_page(*engines)})
    metrics = target.read(0.0, 1)
    assert metrics.queue_depth.value == 1
    assert metrics.running.value == 1
    assert metrics.kv_cache_usage_ratio.value == 0.1
    assert target.read(0.0, None).queue_depth.value == 10


def test_first_ticks_have_reasons_and_no_zeros_M07_M30():
    target = window()
    assert statuses(target.read(0.0, 2)) == {SignalStatus.NO_SERIES}
    target.add(0.0, {"a": engines_page(Engine(0, running=1), Engine(1))})
    metrics = target.read(0.0, 2)
    assert metrics.arrival_rps.status is SignalStatus.FEW_SAMPLES
    assert metrics.ttft_p95_s.status is SignalStatus.FEW_SAMPLES
    assert not idle(metrics)


def test_zeros_of_an_engine_that_never_served_are_unknown_for_a_window_M26():
    target = window()
    for at_s in (0.0, 5.0, 10.0, 20.0, 25.0):
        target.add(at_s, {"a": engines_page(Engine(0), Engine(1))})
        metrics = target.read(at_s, 2)
        assert metrics.queue_depth.status is SignalStatus.QUARANTINED
        assert not idle(metrics)
    target.add(30.0, {"a": engines_page(Engine(0), Engine(1))})
    assert target.read(30.0, 2).queue_depth.value == 0  # now it is known


def test_an_empty_queue_is_not_believed_for_18_s_after_a_start_however_short_the_window_M26():
    target = EngineWindow(VLLM, Slo(window_s=10.0), 2.0)
    for i in range(9):
        target.add(2.0 * i, {"a": engines_page(Engine(0), Engine(1))})
        metrics = target.read(2.0 * i, 2)
        assert metrics.queue_depth.status is SignalStatus.QUARANTINED, i
        assert not idle(metrics)
    burst = engines_page(Engine(0, waiting=40, running=16), Engine(1, waiting=38, running=16))
    target.add(18.0, {"a": burst})
    assert target.read(18.0, 2).queue_depth.value == 78


def test_a_service_without_load_is_idle():
    target = window()
    engines = [Engine(0), Engine(1)]
    now_s = steady(target, engines)
    for i in range(1, 9):
        target.add(now_s + 5.0 * i, {"a": engines_page(*engines)})
    metrics = target.read(now_s + 40.0, 2)
    assert idle(metrics)
    assert metrics.ttft_p95_s.status is SignalStatus.NO_OBSERVATIONS  # M23
    assert metrics.arrival_rps.value == 0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3.0"])
def test_a_value_that_is_no_quantity_is_never_one_M02_G01_G02_G04(value: str):
    text = page([Engine(0, waiting=5.0, running=2.0), Engine(1, running=1.0)])
    target = window()
    now_s = steady(target, [Engine(0), Engine(1)])
    for wrong, names in (
        ("vllm:num_requests_waiting", ("queue_depth", "queue_wait_s", "arrival_rps")),
        ("vllm:generation_tokens_total", ("output_tokens_per_s", "output_tokens_mean")),
        ("vllm:kv_cache_usage_perc", ("kv_cache_usage_ratio",)),
        ("vllm:time_to_first_token_seconds_bucket", ("ttft_p95_s", "slo_attainment_ratio")),
    ):
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith(wrong + "{"))
        lines[at] = f"{lines[at].rpartition(' ')[0]} {value}"
        now_s += 5.0
        target.add(now_s, {"a": text_page("\n".join(lines) + "\n")})
        metrics = target.read(now_s, 2)
        for name in names:
            assert getattr(metrics, name).status is SignalStatus.NON_FINITE, name
        assert not idle(metrics)


def test_a_missing_gauge_is_unknown_and_takes_nothing_else_with_it_M18():
    target = window()
    engine = Engine(0, waiting=1, running=1)
    for i in range(4):
        engine.serve(20)
        lines = [line for line in page([engine]).splitlines() if "kv_cache" not in line]
        target.add(5.0 * i, {"a": text_page("\n".join(lines) + "\n")})
    metrics = target.read(15.0, 1)
    assert metrics.kv_cache_usage_ratio.status is SignalStatus.NO_SERIES
    assert "vllm:gpu_cache_usage_perc" in metrics.kv_cache_usage_ratio.detail
    assert metrics.queue_depth.value == 1
    assert metrics.completion_rps.value == pytest.approx(4.0)


def test_one_of_eight_targets_that_misses_a_scrape_is_made_up_for_M20_G20():
    engines = {f"t{i}": Engine(0, waiting=2, running=1) for i in range(8)}
    target = window()
    for i in range(7):
        for engine in engines.values():
            engine.serve(10)
        pages = {name: engines_page(engine) for name, engine in engines.items()}
        if i == 6:
            del pages["t3"]
        target.add(5.0 * i, pages)
    metrics = target.read(30.0, 8)
    assert metrics.queue_depth.value == pytest.approx(16)
    assert metrics.queue_depth.detail == "7 of 8 engines"
    assert metrics.completion_rps.value >= 16.0 * 0.99  # never less than there was
    for engine in engines.values():
        engine.serve(10)
    target.add(35.0, {name: engines_page(engine) for name, engine in engines.items()})
    whole = target.read(35.0, 8)
    assert whole.queue_depth.value == 16
    assert whole.completion_rps.value == pytest.approx(16.0)  # what it missed is counted once


def test_below_the_coverage_limit_the_queue_is_a_lower_bound_M20():
    target = window()
    pages = {f"t{i}": engines_page(Engine(0, waiting=2, running=1)) for i in range(6)}
    target.add(0.0, pages)
    queue = target.read(0.0, 8).queue_depth
    assert queue.status is SignalStatus.STALE
    assert queue.value is None
    assert queue.lower_bound == 12


def test_a_new_target_counts_from_its_first_scrape_on_G23():
    old, new = Engine(0, running=1), Engine(0, running=1)
    target = window()
    new.serve(1000)  # before anybody looked
    for i in range(7):
        old.serve(10)
        pages = {"old": engines_page(old)}
        if i >= 3:
            new.serve(10)
            pages["new"] = engines_page(new)
        target.add(5.0 * i, pages)
    assert target.read(30.0, None).completion_rps.value < 4.0


def test_a_target_that_returns_counts_what_it_missed_and_not_its_whole_life():
    engines = {"a": Engine(0, running=1), "b": Engine(0, running=1)}
    target = window()
    for i in range(20):
        for engine in engines.values():
            engine.serve(10)
        away = 5 <= i < 9
        target.add(
            5.0 * i, {n: engines_page(e) for n, e in engines.items() if n == "a" or not away}
        )
    assert target.read(95.0, 2).completion_rps.value == pytest.approx(4.0)


def test_a_counter_that_appears_with_its_first_increment_counts_from_zero():
    engine = Engine(0, running=1)
    target = window()
    for i in range(4):
        engine.serve(10)
        text = page([engine])
        if i == 3:
            name = "vllm:admission_rejections_total"
            text += f'{name}{{model_name="m",reason="max_num_queued_reqs"}} 30.0\n'
        target.add(5.0 * i, {"a": text_page(text)})
    metrics = target.read(15.0, 1)
    assert metrics.failure_rps.value == pytest.approx(2.0)
    assert metrics.ttft_p95_penalised_s.value == SLO.failure_penalty_s
    assert metrics.slo_attainment_ratio.value == pytest.approx(0.5)


def test_a_restart_of_one_engine_that_the_others_make_up_for_is_still_a_reset():
    slow, fast = Engine(0, running=1), Engine(0, running=1)
    target = window()
    slow.serve(5)
    for i in range(5):
        fast.serve(1000)
        target.add(5.0 * i, {"slow": engines_page(slow), "fast": engines_page(fast)})
    slow = Engine(0, running=1)
    fast.serve(1000)
    target.add(25.0, {"slow": engines_page(slow), "fast": engines_page(fast)})
    assert target.read(25.0, 2).ttft_p95_s.status is SignalStatus.RESET


def test_other_buckets_are_another_engine_and_start_anew():
    engine = Engine(0, running=1)
    target = window()
    now_s = steady(target, [engine])
    engine.serve(10)
    lines = [line for line in page([engine]).splitlines() if 'le="2.5"' not in line]
    target.add(now_s + 5.0, {"a": text_page("\n".join(lines) + "\n")})
    metrics = target.read(now_s + 5.0, 1)
    assert metrics.ttft_p95_s.status is SignalStatus.FEW_SAMPLES
    assert 2.5 not in target.bounds_s


def test_bounds_that_all_targets_share_are_used_during_a_rolling_upgrade():
    a, b = Engine(0, running=1), Engine(0, running=1)
    target = window()
    for i in range(4):
        a.serve(10, ttft_s=0.3)
        b.serve(10, ttft_s=3.0)
        lines = [line for line in page([b]).splitlines() if 'le="5.0"' not in line]
        target.add(5.0 * i, {"a": engines_page(a), "b": text_page("\n".join(lines) + "\n")})
    assert 5.0 not in target.bounds_s
    assert 2.5 < target.read(15.0, 2).ttft_p95_s.value <= 7.5


def test_old_names_are_read_where_there_are_no_new_ones():
    engine = Engine(0, running=1, kv=0.4)
    target = window()
    for i in range(3):
        engine.serve(20)
        text = page([engine]).replace("inter_token_latency", "time_per_output_token")
        text = text.replace("kv_cache_usage_perc", "gpu_cache_usage_perc")
        target.add(5.0 * i, {"a": text_page(text)})
    metrics = target.read(10.0, 1)
    assert metrics.itl_p95_s.value is not None
    assert metrics.kv_cache_usage_ratio.value == 0.4


def test_bucket_bounds_are_compared_as_numbers():
    engine = Engine(0, running=1)
    target = window()
    for i in range(3):
        engine.serve(20)
        text = page([engine])
        target.add(5.0 * i, {"a": text_page(text.replace('le="5.0"', 'le="5"') if i else text)})
    assert target.read(10.0, 1).slo_attainment_ratio.value == 1.0


def test_few_observations_make_no_quantile_G22_M32():
    target = window()
    engine = Engine(0, running=1)
    for i in range(4):
        engine.serve(1)
        target.add(5.0 * i, {"a": engines_page(engine)})
    metrics = target.read(15.0, 1)
    assert metrics.ttft_p95_s.status is SignalStatus.FEW_SAMPLES
    assert metrics.ttft_observations.value == 3


def test_a_p95_in_the_top_bucket_is_a_lower_bound():
    target = window()
    engine = Engine(0, running=1)
    for i in range(4):
        engine.serve(20, ttft_s=100.0)
        target.add(5.0 * i, {"a": engines_page(engine)})
    p95 = target.read(15.0, 1).ttft_p95_s
    assert p95.status is SignalStatus.TOP_BUCKET
    assert p95.lower_bound == 10.0


def test_a_page_without_the_engines_series_says_what_was_looked_for():
    target = window()
    target.add(0.0, {"a": text_page("python_info 1.0\n")})
    signal = target.read(0.0, 2).queue_depth
    assert signal.status is SignalStatus.NO_SERIES
    assert "vllm:num_requests_waiting" in signal.detail
    now_s = steady(target, [Engine(0), Engine(1)], start_s=5.0)
    target.add(now_s + 5.0, {"a": text_page("python_info 1.0\n")})
    assert target.read(now_s + 5.0, 2).queue_depth.status is SignalStatus.STALE


def test_a_histogram_without_its_last_bucket_was_cut_off():
    text = "".join(
        line + "\n" for line in page([Engine(0)]).splitlines() if 'le="+Inf"' not in line
    )
    with pytest.raises(ObservationError, match="cut off"):
        text_page(text)


@pytest.mark.parametrize("le", [None, "five", "nan"])
def test_a_bucket_without_a_bound_is_malformed(le: str | None):
    labels = {"engine": "0"} if le is None else {"engine": "0", "le": le}
    with pytest.raises(ObservationError, match="number as le"):
        samples_page([("vllm:time_to_first_token_seconds_bucket", labels, 1.0)], VLLM)


def _sglang(rank: str, tp: str, waiting: float, **more: str):
    labels = {"model_name": "m", "engine_type": "unified", "dp_rank": rank, "tp_rank": tp, **more}
    return [
        ("sglang:num_queue_reqs", labels, waiting),
        ("sglang:num_running_reqs", labels, 1.0),
        ("sglang:token_usage", labels, 0.25),
    ]


@pytest.mark.parametrize("tp_ranks", [1, 4])
def test_sglang_tensor_parallel_duplicates_count_once(tp_ranks: int):
    target = window(SGLANG)
    samples = [
        sample
        for dp in range(3)
        for tp in range(tp_ranks)
        for sample in _sglang(str(dp), str(tp), 2.0 * (dp + 1))
    ]
    target.add(0.0, {"a": samples_page(samples, SGLANG)})
    metrics = target.read(0.0, 3)
    assert metrics.queue_depth.value == 12
    assert metrics.running.value == 3
    assert metrics.kv_cache_usage_ratio.value == 0.25


@pytest.mark.parametrize("with_sum", [True, False])
def test_sglang_priorities_are_added_up_unless_their_sum_is_there(with_sum: bool):
    target = window(SGLANG)
    samples = _sglang("0", "0", 3.0, priority="1") + _sglang("0", "0", 4.0, priority="2")
    if with_sum:
        samples += _sglang("0", "0", 7.0)
    target.add(0.0, {"a": samples_page(samples, SGLANG)})
    assert target.read(0.0, 1).queue_depth.value == 7


def test_sglang_counters_and_histograms_are_read():
    target = window(SGLANG)
    for i in range(4):
        n = 20.0 * (i + 1)
        common = {"model_name": "m", "engine_type": "unified"}
        samples = _sglang("0", "0", 1.0)
        for streaming, part in (("true", 0.75), ("false", 0.25)):
            labels = {**common, "is_streaming": streaming}
            for le in ("4", "6", "+Inf"):
                name = "sglang:time_to_first_token_seconds_bucket"
                samples.append((name, {**labels, "le": le}, n * part))
            samples.append(("sglang:prompt_tokens_total", labels, 100 * n * part))
            samples.append(("sglang:num_requests_total", labels, n * part))
            samples.append(("sglang:generation_tokens_total", labels, 10 * n * part))
        target.add(5.0 * i, {"a": samples_page(samples, SGLANG)})
    metrics = target.read(15.0, 1)
    assert metrics.completion_rps.value == pytest.approx(4.0)
    assert metrics.prompt_tokens_mean.value == pytest.approx(100)
    assert metrics.ttft_observations.value == 60
    assert metrics.itl_p95_s.status is SignalStatus.NO_SERIES
    # 5 s is no bound of SGLang's: interpolated, and said so.
    assert "interpolated in (4, 6]" in metrics.slo_attainment_ratio.detail


@pytest.mark.parametrize(
    ("label", "index"),
    [
        ("0", 0),
        ("3", 3),
        ("pod-rank-12", 12),
        ("", 0),
        ("abc", 0),
        ("9" * 40, 999_999_999),
        ("٣", 0),
    ],
)
def test_an_engines_index_is_the_number_at_the_end_of_its_label_M12(label: str, index: int):
    assert _index(label) == index


@pytest.mark.parametrize("labels", [("pod-prefill", "pod-decode"), ("a-0", "b-0"), ("", "")])
def test_engines_that_a_label_does_not_tell_apart_are_unknown_M12(labels: tuple[str, str]):
    target = window()
    samples = [
        sample
        for label, other, waiting in zip(labels, ("x", "y"), (12.0, 5.0), strict=True)
        for sample in (
            ("vllm:num_requests_waiting", {"engine": label, "shard": other}, waiting),
            ("vllm:num_requests_running", {"engine": label, "shard": other}, 1.0),
        )
    ]
    target.add(0.0, {"a": samples_page(samples, VLLM)})
    metrics = target.read(0.0, 1)
    assert metrics.queue_depth.value is None
    assert metrics.queue_depth.status is SignalStatus.AMBIGUOUS
    assert "several series of one engine" in metrics.queue_depth.detail
    assert metrics.running.status is SignalStatus.AMBIGUOUS


def test_a_failed_reading_is_stale_with_its_reason():
    target = window()
    now_s = steady(target, [Engine(0, running=1)])
    target.miss("HTTP 503")
    metrics = target.read(now_s, 1)
    assert statuses(metrics) == {SignalStatus.STALE}
    assert "HTTP 503" in metrics.kv_cache_usage_ratio.detail


def test_huge_counters_stay_finite_G27():
    target = window()
    for i in range(3):
        engine = Engine(0, running=1, waiting=1e300)
        engine.serve(10**15 * (i + 1))
        target.add(5.0 * i, {"a": engines_page(engine)})
    metrics = target.read(10.0, 1)
    for field in fields(metrics):
        signal = getattr(metrics, field.name)
        if isinstance(signal, Signal) and signal.value is not None:
            assert math.isfinite(signal.value), field.name


def test_a_round_that_is_not_newer_moves_no_rate():
    target = window()
    engine = Engine(0, running=1)
    now_s = steady(target, [engine])
    before = target.read(now_s, 1).completion_rps.value
    engine.serve(50)
    target.add(now_s, {"a": engines_page(engine)})
    assert target.read(now_s, 1).completion_rps.value == before
    target.add(now_s + 5.0, {"a": engines_page(engine)})
    assert target.read(now_s + 5.0, 1).completion_rps.value == pytest.approx((4 * 10 + 50) / 25)


def test_targets_long_gone_are_forgotten():
    target = window()
    for i in range(100):
        target.add(5.0 * i, {f"pod-{i}": engines_page(Engine(0, running=1))})
    assert len(target._ledger._last) < 15


def test_one_of_ten_scrapes_in_time_that_is_missing_is_a_gap_and_no_zero_G20():
    target, engine = window(), Engine(0, waiting=3, running=2)
    for i in range(11):
        engine.serve(10)
        if i != 9:
            target.add(5.0 * i, {"a": engines_page(engine)})
        else:
            target.miss("timed out")
            held = target.read(5.0 * i, 1)
            assert statuses(held) == {SignalStatus.STALE}
            assert not idle(held)
    metrics = target.read(50.0, 1)
    assert metrics.completion_rps.value == pytest.approx(2.0)  # nothing is lost by it
    assert metrics.queue_depth.value == 3
    assert metrics.ttft_p95_s.value is not None


def test_three_requests_in_five_minutes_make_no_quantile_and_no_gap_G22():
    slow = Slo(ttft_p95_s=5.0, window_s=300.0)
    target = EngineWindow(VLLM, slow, 15.0)
    engine = Engine(0)
    engine.serve(50)
    seen = set()
    for i in range(60):
        if i in (25, 31, 38):
            engine.serve(1, ttft_s=9.0)
        target.add(15.0 * i, {"a": engines_page(engine)})
        metrics = target.read(15.0 * i, 1)
        if i >= 20:
            seen.add(metrics.ttft_p95_s.status)
            assert metrics.ttft_p95_s.value is None  # never 9 s by one request of three
            assert metrics.queue_depth.value == 0
            assert metrics.arrival_rps.value is not None
    assert seen == {SignalStatus.FEW_SAMPLES, SignalStatus.NO_OBSERVATIONS}
