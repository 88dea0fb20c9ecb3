import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces import MAX_TOKENS, Trace, _convert, load, write

SUFFIXES = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"]
TOKENS = st.integers(0, MAX_TOKENS)
REQUESTS = st.lists(st.tuples(st.floats(0, 1e9), TOKENS, TOKENS), min_size=1, max_size=30)


def trace_of(requests):
    at_s, prompt_tokens, output_tokens = zip(*sorted(requests), strict=True)
    arrival_s = np.array(at_s) - at_s[0]
    return Trace(arrival_s, np.array(prompt_tokens, np.int32), np.array(output_tokens, np.int32))


@given(requests=REQUESTS, suffix=st.sampled_from(SUFFIXES))
@settings(deadline=None)
def test_what_is_written_is_read_back_bit_for_bit(tmp_path_factory, requests, suffix):
    file = tmp_path_factory.getbasetemp() / f"round-trip{suffix}"
    trace = trace_of(requests)
    write(trace, file)
    back = load(file)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        written, read = getattr(trace, name), getattr(back, name)
        assert read.dtype == written.dtype
        assert np.array_equal(read, written)
    assert back.format == ("parquet" if suffix == ".parquet" else "jsonl")
    assert (back.skipped_rows, back.notices) == (0, ())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_traces_give_equal_bytes_also_in_parts(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(_convert, "_ROWS_AT_ONCE", 3)
    trace = trace_of([(float(i), i, 2 * i) for i in range(10)])
    seen = []
    write(trace, tmp_path / f"a{suffix}", seen.append)
    write(trace, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert load(tmp_path / f"a{suffix}").prompt_tokens.tolist() == list(range(10))
    assert seen == ([] if suffix == ".parquet" else [3, 6, 9, 10])


def test_the_native_lines_are_as_documented(tmp_path):
    write(trace_of([(0, 1024, 256), (12.5, 1, 0)]), tmp_path / "t.jsonl.gz")
    assert gzip.decompress((tmp_path / "t.jsonl.gz").read_bytes()) == (
        b'{"arrival_s":0.0,"prompt_tokens":1024,"output_tokens":256}\n'
        b'{"arrival_s":12.5,"prompt_tokens":1,"output_tokens":0}\n'
    )


def test_unknown_suffixes_and_unwritable_paths_are_refused(tmp_path):
    trace = trace_of([(0, 1, 1)])
    with pytest.raises(ConfigError, match=r"out: must end with one of \.jsonl, .*; got 't\.csv'"):
        write(trace, "t.csv")
    for suffix in SUFFIXES:
        with pytest.raises(TraceError, match=r":0: cannot be written: No such file"):
            write(trace, tmp_path / "missing" / f"t{suffix}")
