"""What a file is (JSONL, CSV or Parquet), which format its keys are of, and its rows."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from autoscaler.errors import TraceError
from autoscaler.traces._blocks import blocks, read_ahead
from autoscaler.traces._format import Format, choose
from autoscaler.traces._lines import CsvLines, JsonLines, Lines
from autoscaler.traces._rows import RowReader

_PARQUET_ROWS = 4_000_000
# Equal values take next to nothing in Parquet; an even trace of constant lengths has 4 a byte.
_MOST_ROWS_A_BYTE, _FEW_ROWS = 10, 1_000_000
_DETECTION_LINES = 1000
_DETECTION_BYTES = 2**20


def parquet_rows(
    path: str, wanted: str, skip: bool
) -> tuple[RowReader, Format, Iterator[pl.DataFrame]]:
    """As ``text_rows``, of a Parquet file; ``line`` is the number of the row, from 1."""
    try:
        lazy = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        columns = lazy.collect_schema().names()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(f"{path}:0: must be a readable Parquet file ({_brief(error)})") from error
    fmt = choose(columns, "parquet", wanted, f"{path}:0")
    reader = RowReader(path, fmt, skip_bad_rows=skip)
    needed = [name for name in fmt.schema() if name in columns]

    def frames() -> Iterator[pl.DataFrame]:
        _refuse_bomb(path, lazy)
        row = 0
        while True:
            try:
                frame = lazy.select(needed).slice(row, _PARQUET_ROWS).collect()
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
                raise TraceError(
                    f"{path}:{row + 1}: must be a readable Parquet file ({_brief(error)})"
                ) from error
            if not frame.height:
                return
            yield reader.read_frame(frame, row + 1)
            row += frame.height

    return reader, fmt, frames()


def text_rows(
    file: BinaryIO,
    path: str,
    wanted: str,
    skip: bool,
    on_bytes: Callable[[int], None] | None,
) -> tuple[RowReader, Format, Iterator[pl.DataFrame]]:
    """The rows of a JSONL or CSV file, frame by frame.

    Args:
        file: opened, at its beginning.
        path: for messages.
        wanted: "auto" or a format's name.
        skip: bad rows are counted, not refused.
        on_bytes: see ``blocks``.

    Returns:
        The reader, whose counts are complete once the frames are; the format; the frames.

    Raises:
        TraceError: empty, or of no known format; while iterating, a bad row.
    """
    supply = read_ahead(blocks(file, path, on_bytes))
    line, block = 1, b""
    for number, raw in supply:
        block = raw.lstrip(b" \t\r\n")
        line = number + raw.count(b"\n", 0, len(raw) - len(block))
        if block:
            break
    if not block:
        raise TraceError(f"{path}:1: must have at least one request; the file is empty")
    lines: Lines
    if block[:1] in (b"{", b"["):
        keys, at = _json_keys(path, line, block[:_DETECTION_BYTES], skip)
        fmt = choose(keys, "jsonl", wanted, at)
        lines = JsonLines(fmt.schema())
    else:
        end = block.find(b"\n") + 1 or len(block)
        header = _csv_header(path, line, block[:end])
        fmt = choose(header, "csv", wanted, f"{path}:{line}")
        lines = CsvLines(header, fmt.schema())
        line, block = line + 1, block[end:]
    reader = RowReader(path, fmt, skip_bad_rows=skip)

    def frames() -> Iterator[pl.DataFrame]:
        if block:
            yield from reader.read_lines(lines, line, block)
        for number, further in supply:
            yield from reader.read_lines(lines, number, further)

    return reader, fmt, frames()


def _refuse_bomb(path: str, lazy: pl.LazyFrame) -> None:
    try:
        rows = int(lazy.select(pl.len()).collect().item())
        most = max(_FEW_ROWS, _MOST_ROWS_A_BYTE * Path(path).stat().st_size)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(f"{path}:1: must be a readable Parquet file ({_brief(error)})") from error
    if rows > most:
        rule = f"must have at most {_MOST_ROWS_A_BYTE} requests a byte"
        raise TraceError(f"{path}:0: {rule}; got {rows:,} in so small a file")


def _json_keys(path: str, line: int, block: bytes, skip: bool) -> tuple[list[str], str]:
    """The keys of the first object, and ``file:line`` where it is."""
    complaint = ""
    probe = JsonLines({})
    for number, text in enumerate(block.split(b"\n", _DETECTION_LINES)[:_DETECTION_LINES], line):
        try:
            return list(probe.fields(text)), f"{path}:{number}"
        except ValueError as error:
            complaint = complaint or f"{path}:{number}: {error}"
        if not skip:
            break
    raise TraceError(f"{complaint}; got {json.dumps(block[:60].decode(errors='replace'))}")


def _csv_header(path: str, line: int, text: bytes) -> list[str]:
    try:
        rows = list(csv.reader([text.decode().strip()], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(
            f"{path}:{line}: must be a CSV header or a JSON object; "
            f"got {json.dumps(text[:60].decode(errors='replace'))}"
        ) from error
    header = [name.strip() for name in rows[0]] if rows else []
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise TraceError(f"{path}:{line}: must name each column once; got {twice[0][:40]!r} twice")
    return header


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:80]
