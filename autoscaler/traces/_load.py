"""Trace files into one ``Trace``."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces._blocks import blocks, is_parquet, open_trace
from autoscaler.traces._format import Format, Sampling, choose
from autoscaler.traces._rows import CsvLines, JsonLines, Lines, RowReader
from autoscaler.traces._trace import Trace, in_order, slice_bounds

# About 4 GB of columns; a file that claims more is not a trace but an accident.
_MAX_REQUESTS = 250_000_000
_PARQUET_ROWS = 4_000_000
_DETECTION_LINES = 1000

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _File:
    """One file read: arrivals in file order, in the file's own unit."""

    path: str
    format: Format
    arrival: npt.NDArray[np.float64] | npt.NDArray[np.int64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    skipped: int
    notices: tuple[str, ...]


def load(
    paths: str | Path | Sequence[str | Path],
    *,
    format: str = "auto",  # noqa: A002 (the name the command line and the JSON have)
    skip_bad_rows: bool = False,
    speed: float = 1.0,
    start_s: float | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    rate_scale: float = 1.0,
    arrival_cv: float = 1.0,
    prompt_tokens: int = 1024,
    output_tokens: int = 256,
    on_progress: Progress | None = None,
) -> Trace:
    """Reads trace files: JSONL, CSV or Parquet; plain, gzip or zstd; in any known format.

    Compression and container are recognised by the first bytes, the format by the keys or header;
    names and magnitudes decide nothing. Unsorted rows are sorted (stable) with a notice.

    Several files are superimposed: each starts at second 0, as if its users all came at once.
    Files that all carry wall-clock times (Azure's, for one) instead keep their distance, so that
    consecutive days follow one another.

    Args:
        paths: one file or several.
        format: "auto", or a format's name.
        skip_bad_rows: leave bad rows out and count them instead of stopping at the first.
        speed: > 0, divides arrival times; applied after the slice, which is in the trace's seconds.
        start_s: leave out what arrives earlier than this after the first arrival.
        duration_s: leave out what arrives this much later than ``start_s``.
        seed: for formats that are sampled (a rate curve).
        rate_scale: factor on the rates of a rate curve, > 0.
        arrival_cv: of the inter-arrival times sampled from a rate curve: 1 Poisson, 0 even.
        prompt_tokens: of every request sampled from a rate curve.
        output_tokens: of every request sampled from a rate curve.
        on_progress: called with bytes read and bytes in all, over all files.

    Returns:
        A trace of at least one request.

    Raises:
        TraceError: a file or a row is unusable; the message begins with ``file:line`` (line 0 where
            no line is to blame).
        ConfigError: an argument is out of its range, or the format unknown.
    """
    names = [str(p) for p in ([paths] if isinstance(paths, (str, Path)) else paths)]
    if not names:
        raise ConfigError("trace: must name at least one file; got none")
    slice_bounds(np.zeros(0), start_s, duration_s)  # refuse bad arguments before a long read
    sampling = Sampling(
        seed, rate_scale, arrival_cv, prompt_tokens, output_tokens, start_s or 0.0, duration_s
    )
    files = [
        _read_file(path, format, sampling, skip_bad_rows, _share(on_progress, names, i))
        for i, path in enumerate(names)
    ]
    return _merged(files, start_s, duration_s).sped_up(speed)


def _share(
    on_progress: Progress | None, names: list[str], index: int
) -> Callable[[int], None] | None:
    if on_progress is None:
        return None
    sizes = [Path(n).stat().st_size if Path(n).is_file() else 0 for n in names]
    done, total = sum(sizes[:index]), sum(sizes)
    return lambda read: on_progress(done + read, total)


def _read_file(
    path: str, wanted: str, sampling: Sampling, skip: bool, on_bytes: Callable[[int], None] | None
) -> _File:
    with open_trace(path) as file:
        if is_parquet(file, path):
            reader, fmt, frames = _parquet(path, wanted, skip)
        else:
            reader, fmt, frames = _text(file, path, wanted, skip, on_bytes)
        parts: list[pl.DataFrame] = []
        rows = 0
        for part in frames:
            rows += part.height
            if rows > _MAX_REQUESTS:
                raise TraceError(f"{path}:0: must have at most {_MAX_REQUESTS:,} requests")
            if part.height:
                parts.append(part)
    if not parts:
        left_out = reader.skipped + reader.failed
        rest = f"all {left_out:,} rows were left out" if left_out else "got none"
        raise TraceError(f"{path}:1: must have at least one request; {rest}")
    frame = pl.concat(parts)
    parts.clear()
    notices = [f"{path}: {fmt.notice}"] if fmt.notice and wanted == "auto" else []
    if reader.failed:
        notices.append(f"{path}: left out {reader.failed:,} rows: {fmt.failed_rule}")
    if reader.skipped:
        notices.append(f"{path}: skipped {reader.skipped:,} bad rows")
    if fmt.settle is not None:
        settled = fmt.settle(path, frame, sampling)
        frame = settled.frame
        notices += [f"{path}: {notice}" for notice in settled.notices]
    return _File(
        path,
        fmt,
        frame["arrival"].to_numpy(),
        frame["prompt_tokens"].to_numpy(),
        frame["output_tokens"].to_numpy(),
        reader.skipped + reader.failed,
        tuple(notices),
    )


def _parquet(
    path: str, wanted: str, skip: bool
) -> tuple[RowReader, Format, Iterator[pl.DataFrame]]:
    try:
        lazy = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        columns = lazy.collect_schema().names()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise TraceError(f"{path}:0: must be a readable Parquet file ({_brief(error)})") from error
    fmt = choose(columns, "parquet", wanted, f"{path}:0")
    reader = RowReader(path, fmt, skip_bad_rows=skip)
    needed = [name for name in fmt.schema() if name in columns]

    def frames() -> Iterator[pl.DataFrame]:
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


def _text(
    file: BinaryIO,
    path: str,
    wanted: str,
    skip: bool,
    on_bytes: Callable[[int], None] | None,
) -> tuple[RowReader, Format, Iterator[pl.DataFrame]]:
    supply = blocks(file, path, on_bytes)
    line, block = 1, b""
    for line, block in supply:
        body = block.lstrip(b" \t\r\n")
        line += block.count(b"\n", 0, len(block) - len(body))
        block = body
        if block:
            break
    if not block:
        raise TraceError(f"{path}:1: must have at least one request; the file is empty")
    lines: Lines
    if block[:1] in (b"{", b"["):
        fmt = choose(*_json_keys(path, line, block, skip, wanted))
        lines = JsonLines(fmt.schema())
    else:
        header = _csv_header(path, line, block.split(b"\n", 1)[0])
        fmt = choose(header, "csv", wanted, f"{path}:{line}")
        lines = CsvLines(header, fmt.schema())
        line, block = line + 1, block.partition(b"\n")[2]
    reader = RowReader(path, fmt, skip_bad_rows=skip)

    def frames() -> Iterator[pl.DataFrame]:
        if block:
            yield from reader.read_lines(lines, line, block)
        for number, further in supply:
            yield from reader.read_lines(lines, number, further)

    return reader, fmt, frames()


def _json_keys(
    path: str, line: int, block: bytes, skip: bool, wanted: str
) -> tuple[list[str], str, str, str]:
    """Arguments for ``choose``: the keys of the first object, and where it is."""
    complaint = ""
    probe = JsonLines({})
    for number, text in enumerate(block.split(b"\n", _DETECTION_LINES)[:_DETECTION_LINES], line):
        try:
            return list(probe.fields(text)), "jsonl", wanted, f"{path}:{number}"
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


def _merged(files: list[_File], start_s: float | None, duration_s: float | None) -> Trace:
    shared = len(files) > 1 and all(f.format.wall_clock for f in files)
    starts_s = [float(f.arrival.min()) / f.format.units_per_s for f in files]
    notices = [notice for f in files for notice in f.notices]
    if shared:
        notices.append("the files carry wall-clock times and keep their distance in time")
    parts = []
    for file, file_start_s in zip(files, starts_s, strict=True):
        zero = 0 if file.format.samples else file.arrival.min()
        arrival_s = (file.arrival - zero) / file.format.units_per_s
        if shared:
            arrival_s += file_start_s - min(starts_s)
        *columns, was_sorted = in_order(arrival_s, file.prompt_tokens, file.output_tokens)
        if not was_sorted:
            notices.append(f"{file.path}: sorted by arrival time; the file is not in order")
        parts.append(columns)
    if len(parts) > 1:
        columns = list(in_order(*(np.concatenate(c) for c in zip(*parts, strict=True)))[:3])
    arrival_s, prompt_tokens, output_tokens = columns
    trace = Trace(
        arrival_s,
        prompt_tokens,
        output_tokens,
        ",".join(sorted({f.format.name for f in files})),
        tuple(f.path for f in files),
        sum(f.skipped for f in files),
        tuple(notices),
    )
    if not (len(files) == 1 and files[0].format.samples):
        trace = trace.sliced(start_s, duration_s)
    return trace


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:80]
