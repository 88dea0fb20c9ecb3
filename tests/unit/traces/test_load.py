"""Containers, order, several files, slices and speed."""

import gzip
import itertools
import json

import numpy as np
import polars as pl
import pytest
import zstandard

from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces import load

NATIVE = (
    b'{"arrival_s": 1.5, "prompt_tokens": 1, "output_tokens": 10}\n'
    b'{"arrival_s": 2.0, "prompt_tokens": 2, "output_tokens": 20}\n'
    b'{"arrival_s": 4.0, "prompt_tokens": 3, "output_tokens": 30}\n'
)
CSV = b"arrival_s,prompt_tokens,output_tokens\n1.5,1,10\n2.0,2,20\n4.0,3,30\n"
QUOTED = (
    b'"arrival_s","note","prompt_tokens","output_tokens"\n1.5,"a, b",1,10\n2,,"2",20\n4,x,3,30\n'
)


def zstd_frames(data):
    return zstandard.compress(data[:60]) + zstandard.compress(data[60:])


@pytest.mark.parametrize("content", [
    NATIVE, NATIVE.rstrip(), NATIVE.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + NATIVE,
    b"\n \n" + NATIVE + b"\n\n", NATIVE.replace(b"\n", b"\n\n"),
    gzip.compress(NATIVE), gzip.compress(NATIVE[:70]) + gzip.compress(NATIVE[70:]),
    zstandard.compress(NATIVE), zstd_frames(NATIVE), gzip.compress(b"\xef\xbb\xbf" + CSV),
    CSV, CSV.rstrip(), CSV.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + CSV, CSV + b"\n\r\n",
    CSV.replace(b"\n", b"\r\n").rstrip(), gzip.compress(CSV), zstandard.compress(CSV), QUOTED,
], ids=itertools.count())  # fmt: skip
def test_containers_are_recognised_by_content_and_read_alike(tmp_path, content):
    file = tmp_path / "trace.parquet.gz"
    file.write_bytes(content)
    trace = load(file)
    assert trace.format == "jsonl"
    assert trace.arrival_s.tolist() == [0, 0.5, 2.5]
    assert trace.prompt_tokens.tolist() == [1, 2, 3]
    assert trace.output_tokens.tolist() == [10, 20, 30]
    assert (trace.paths, trace.skipped_rows, trace.notices) == ((str(file),), 0, ())


@pytest.mark.parametrize("content", [
    gzip.compress(NATIVE)[:-9], gzip.compress(NATIVE)[:15], zstandard.compress(NATIVE)[:-4],
    zstandard.compress(NATIVE)[:6], gzip.compress(NATIVE)[:-4] + b"junk",
    zstandard.compress(NATIVE) + b"junk", b"\x1f\x8bjunk", b"\x28\xb5\x2f\xfdjunk",
], ids=itertools.count())  # fmt: skip
def test_a_damaged_or_cut_off_stream_is_refused(tmp_path, content):
    file = tmp_path / "t"
    file.write_bytes(content)
    for skip in (False, True):
        with pytest.raises(TraceError, match=rf"^{file}:\d+: cannot be read: "):
            load(file, skip_bad_rows=skip)


def test_parquet_of_native_columns(tmp_path):
    file = tmp_path / "t.csv"
    pl.DataFrame({"output_tokens": [10, 20], "arrival_s": [3, 4], "prompt_tokens": [1.0, 2.0],
                  "more": ["x", "y"]}).write_parquet(file)  # fmt: skip
    trace = load(file)
    assert (trace.format, trace.arrival_s.tolist()) == ("parquet", [0, 1])
    assert trace.prompt_tokens.tolist() == [1, 2]


def test_parquet_of_other_formats_keeps_their_units(tmp_path):
    file = tmp_path / "t"
    pl.DataFrame({"timestamp": [1000, 3500], "input_length": [1, 2], "output_length": [3, 4]}
                 ).write_parquet(file)  # fmt: skip
    assert (load(file).format, load(file).duration_s) == ("mooncake", 2.5)
    times = pl.Series(
        ["2024-05-10 00:00:00.000001", "2024-05-10 00:00:01.000002"]
    ).str.to_datetime()
    pl.DataFrame({"TIMESTAMP": times, "ContextTokens": [1, 2], "GeneratedTokens": [3, 4]}
                 ).write_parquet(file)  # fmt: skip
    assert (load(file).format, load(file).duration_s) == ("azure", 1.000001)
    nested = [[{"Prompt Length": 1, "Output Length": 2, "x": "y"}], []]
    pl.DataFrame({"timestamp": [0, 1], "requests": nested}).write_parquet(file)
    assert (load(file).format, load(file).requests) == ("aibrix", 1)


def test_bad_rows_of_parquet_are_named_by_row(tmp_path):
    file = tmp_path / "t"
    columns = {
        "arrival_s": [0.0, 1.0, float("nan"), None],
        "prompt_tokens": ["1", "x", "1", "1"],
        "output_tokens": [1, 2, 3, 4],
    }
    pl.DataFrame(columns).write_parquet(file)
    with pytest.raises(TraceError, match=f"^{file}:2: prompt_tokens: must be a number; got 'x'"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (1, 3)


@pytest.mark.parametrize("column", [[[1], [2]], [{"a": 1}, {"a": 2}], [b"1", b"2"], [True, False]])
def test_parquet_columns_of_a_wrong_type_are_refused(tmp_path, column):
    file = tmp_path / "t"
    pl.DataFrame({"arrival_s": column, "prompt_tokens": [1, 2], "output_tokens": [1, 2]}
                 ).write_parquet(file)  # fmt: skip
    with pytest.raises(TraceError, match=f"^{file}:"):
        load(file)
    pl.DataFrame({"timestamp": [1, 2], "requests": column}).write_parquet(file)
    with pytest.raises(TraceError, match=f"^{file}:"):
        load(file)


@pytest.mark.parametrize("damage", [lambda b: b[:-8], lambda b: b[:30], lambda b: b"PAR1",
                                    lambda b: b[:20] + b"x" * 40 + b[60:]])  # fmt: skip
def test_damaged_parquet_is_refused(tmp_path, damage):
    file = tmp_path / "t"
    pl.DataFrame({"arrival_s": [0.0] * 99, "prompt_tokens": [1] * 99, "output_tokens": [1] * 99}
                 ).write_parquet(file)  # fmt: skip
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(TraceError, match=rf"^{file}:\d+: "):
        load(file)


def test_unsorted_rows_are_sorted_stably_with_a_notice(tmp_path):
    file = tmp_path / "t"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n5,1,1\n3,2,1\n5,3,1\n3,4,1\n9,5,1\n")
    trace = load(file)
    assert trace.arrival_s.tolist() == [0, 0, 2, 2, 6]
    assert trace.prompt_tokens.tolist() == [2, 4, 1, 3, 5]
    assert trace.notices == (f"{file}: sorted by arrival time; the file is not in order",)


def test_several_files_are_superimposed_each_from_its_own_zero(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(NATIVE)
    b.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n100,7,1\n102.5,8,1\n103,9,1\n")
    trace = load([a, b])
    assert trace.arrival_s.tolist() == [0, 0, 0.5, 2.5, 2.5, 3]
    assert trace.prompt_tokens.tolist() == [1, 7, 2, 3, 8, 9]
    assert trace.format == "jsonl,vidur"
    assert trace.paths == (str(a), str(b))
    later = load([a, b], start_s=1)
    assert later.prompt_tokens.tolist() == [3, 8, 9]
    assert later.arrival_s.tolist() == [0, 0, 0.5]


def test_several_files_with_wall_clock_times_keep_their_distance(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    a.write_text(head + "2024-05-11 00:00:00+00:00,2,1\n2024-05-11 00:00:01+00:00,3,1\n")
    b.write_text(head + "2024-05-10 00:00:00.5+00:00,1,1\n")
    trace = load([a, b])
    assert trace.arrival_s.tolist() == [0, 86399.5, 86400.5]
    assert trace.prompt_tokens.tolist() == [1, 2, 3]
    assert "keep their distance" in trace.notices[-1]


def test_slices_are_half_open_start_at_zero_and_are_never_empty_G69(tmp_path):
    file = tmp_path / "t"
    file.write_bytes(NATIVE)
    assert load(file, start_s=0.5).arrival_s.tolist() == [0, 2]
    assert load(file, duration_s=2.5).arrival_s.tolist() == [0, 0.5]
    assert load(file, start_s=0.25, duration_s=2.25).arrival_s.tolist() == [0]
    assert load(file).sliced(0.25, 2.25).arrival_s.tolist() == [0]
    for read in (lambda: load(file, start_s=9), lambda: load(file).sliced(9)):
        with pytest.raises(TraceError, match=f"^{file}:0: no request from start_s 9"):
            read()


def test_unix_seconds_begin_at_zero_and_speed_divides_what_is_left_S04(tmp_path):
    file = tmp_path / "t"
    at_s = 1_764_547_200.25
    lines = [
        {"input_toks": 5, "output_toks": 5, "arrival_time": at_s + after_s}
        for after_s in (0.0, 1.5, 60.0)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = load(file)
    assert (trace.format, trace.arrival_s.tolist()) == ("vllm_requests", [0.0, 1.5, 60.0])
    assert load(file, speed=4).arrival_s.tolist() == [0.0, 0.375, 15.0]


def test_speed_divides_arrival_times_after_the_slice_S04(tmp_path):
    file = tmp_path / "t"
    file.write_bytes(NATIVE)
    assert load(file, speed=2).arrival_s.tolist() == [0, 0.25, 1.25]
    assert load(file, speed=0.5, start_s=0.5).arrival_s.tolist() == [0, 4]


@pytest.mark.parametrize("arguments", [
    {"speed": 0}, {"speed": -1}, {"speed": float("nan")}, {"speed": float("inf")}, {"start_s": -1},
    {"start_s": float("nan")}, {"duration_s": 0}, {"duration_s": float("inf")},
])  # fmt: skip
def test_arguments_out_of_range_are_refused_G69(tmp_path, arguments):
    file = tmp_path / "t"
    file.write_bytes(NATIVE)
    with pytest.raises(ConfigError, match=f"^{next(iter(arguments))}: must be a number"):
        load(file, **arguments)
    with pytest.raises(ConfigError, match="at least one file"):
        load([])


def test_progress_goes_from_part_to_all_of_the_bytes(tmp_path):
    file = tmp_path / "t"
    file.write_bytes(NATIVE)
    seen = []
    load([file, file], on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (2 * len(NATIVE), 2 * len(NATIVE))


CURVE = "start_s,arrival_rps\n0,100\n10,0\n20,200\n"


def test_a_rate_curve_is_sampled_by_seed(tmp_path):
    file = tmp_path / "t"
    file.write_text(CURVE)
    trace = load(file, seed=3)
    assert trace.format == "rate_curve"
    assert 2500 < trace.requests < 3500
    gap = trace.arrival_s[(trace.arrival_s > 10.1) & (trace.arrival_s < 19.9)]
    assert gap.size == 0
    assert trace.duration_s < 30
    assert np.array_equal(trace.arrival_s, load(file, seed=3).arrival_s)
    assert not np.array_equal(trace.arrival_s[:9], load(file, seed=4).arrival_s[:9])
    assert set(trace.prompt_tokens) == {1024}
    assert "drawn from the rate curve with seed 3" in trace.notices[0]


def test_a_slice_of_a_rate_curve_is_exact_in_deterministic_mode(tmp_path):
    file = tmp_path / "t"
    file.write_text(CURVE)
    trace = load(file, arrival_cv=0, start_s=5, duration_s=16, rate_scale=0.5, prompt_tokens=7)
    assert trace.requests == 250 + 100
    assert trace.arrival_s[249] == pytest.approx(4.98)
    assert trace.arrival_s[250] == pytest.approx(15)
    assert set(trace.prompt_tokens) == {7}


@pytest.mark.parametrize(("text", "rule"), [
    ("0,1\n5,-1\n", ":3: arrival_rps: must be a finite number from 0; got -1"),
    ("0,1\n5,\n", ":3: arrival_rps: must be a finite number from 0; got None"),
    ("0,1\n5,inf\n", ":3: arrival_rps: must be a finite number"),
    ("0,1\n5,1\n5,2\n", ":4: start_s: must be above the row before, 5; got 5"),
    ("0,1\n", ":2: must have at least two usable rows; got 1"),
    ("-1,1\n5,1\n", ":2: start_s: must be from 0"),
])  # fmt: skip
def test_a_bad_rate_curve_is_refused(tmp_path, text, rule):
    file = tmp_path / "t"
    file.write_text("start_s,arrival_rps\n" + text)
    with pytest.raises(TraceError, match=f"^{file}{rule}"):
        load(file)


def test_a_bad_row_of_a_rate_curve_is_skipped_and_counted(tmp_path):
    file = tmp_path / "t"
    file.write_text("start_s,arrival_rps\n0,1\n5,x\n10,1\n20,nan\n")
    trace = load(file, skip_bad_rows=True, arrival_cv=0)
    assert (trace.requests, trace.skipped_rows) == (20, 2)


def test_a_rate_curve_of_too_many_requests_is_refused(tmp_path):
    file = tmp_path / "t"
    file.write_text("start_s,arrival_rps\n0,1e9\n1000,1e9\n")
    with pytest.raises(ConfigError, match="must make at most 250,000,000 requests"):
        load(file)
    with pytest.raises(ConfigError, match="start_s: must be before the end"):
        load(file, start_s=1e6)
