"""Files of a few kilobytes that unpack to gigabytes (S15)."""

import gzip
import struct

import polars as pl
import pytest
import zstandard

from autoscaler.errors import TraceError
from autoscaler.traces import load

ROW = b'{"arrival_s": 1, "prompt_tokens": 1, "output_tokens": 1}\n'


def gzip_bomb(content: bytes) -> bytes:
    return gzip.compress(ROW + content * 64)


def zstd_bomb(content: bytes) -> bytes:
    return zstandard.compress(ROW + content * 64, 19)


def zstd_run_bomb(content: bytes) -> bytes:
    """The densest there is: blocks that are one byte and how often, 128 KiB in four bytes."""
    head = struct.pack("<I", 0xFD2FB528) + b"\x00\x70"
    first = struct.pack("<I", len(ROW) << 3)[:3] + ROW
    block = struct.pack("<I", ((128 * 1024) << 3) | 2)[:3] + content[:1]
    return head + first + block * 8000 + struct.pack("<I", 1)[:3]


@pytest.mark.parametrize("pack", [gzip_bomb, zstd_bomb, zstd_run_bomb])
@pytest.mark.parametrize("filling", [b"\n", b" ", b"\0"], ids=["lines", "line", "zeros"])
def test_a_bomb_is_refused_after_little_of_it_S15(tmp_path, pack, filling):
    file = tmp_path / "trace"
    file.write_bytes(pack(filling * 2**20))
    read = []
    for skip in (False, True):
        with pytest.raises(
            TraceError, match=r"must (not unpack to more than 200 times|be shorter)"
        ):
            load(file, skip_bad_rows=skip, on_progress=lambda done, total: read.append(done))
    assert max(read, default=0) < 300_000


def test_an_honest_file_of_great_regularity_is_read_S15(tmp_path):
    rows = b"".join(
        b'{"arrival_s": %d, "prompt_tokens": 1024, "output_tokens": 256}\n' % i
        for i in range(200_000)
    )
    for pack in (gzip.compress, zstandard.compress):
        file = tmp_path / "trace"
        file.write_bytes(pack(rows))
        assert len(rows) > 10 * 2**20
        assert len(load(file).arrival_s) == 200_000


def test_a_megabyte_of_blank_lines_costs_next_to_nothing_S15(tmp_path):
    file = tmp_path / "trace"
    file.write_bytes(ROW + b"\n" * 2**25 + ROW.replace(b"1", b"2"))
    assert load(file).arrival_s.tolist() == [0, 1]  # took a minute, line by line


def test_a_parquet_file_that_claims_more_rows_than_it_can_hold_is_refused_S15(tmp_path):
    file = tmp_path / "trace.parquet"
    ones = pl.repeat(1, 20_000_000, dtype=pl.Int32)
    pl.select(arrival_s=ones, prompt_tokens=ones, output_tokens=ones).write_parquet(file)
    assert file.stat().st_size < 1_000_000
    with pytest.raises(TraceError, match=r"at most 10 requests a byte; got 20,000,000"):
        load(file)


def test_an_even_parquet_trace_is_read_S15(tmp_path):
    file = tmp_path / "trace.parquet"
    arrival_s = pl.int_range(0, 2_000_000, eager=False)
    same = pl.repeat(100, 2_000_000, dtype=pl.Int32)
    pl.select(arrival_s=arrival_s, prompt_tokens=same, output_tokens=same).write_parquet(file)
    assert len(load(file).arrival_s) == 2_000_000
