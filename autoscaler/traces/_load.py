"""Trace files into one ``Trace``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from autoscaler import plugins
from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces._blocks import is_parquet, open_trace
from autoscaler.traces._files import parquet_rows, text_rows
from autoscaler.traces._format import Format, Options
from autoscaler.traces._rows import RowReader
from autoscaler.traces._synth import RateProfile
from autoscaler.traces._trace import Trace, in_order, slice_bounds

# About 4 GB of columns; a file that claims more is not a trace but an accident.
_MAX_REQUESTS = 250_000_000

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
        on_progress: called with bytes read and bytes in all, over all files; from another thread.

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
    options = Options(
        skip_bad_rows,
        seed,
        rate_scale,
        arrival_cv,
        prompt_tokens,
        output_tokens,
        start_s or 0.0,
        duration_s,
    )
    files = [
        _read_file(path, format, options, _share(on_progress, names, i))
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


def load_curve(path: str | Path, *, scale: float = 1.0, skip_bad_rows: bool = False) -> RateProfile:
    """The rate in a rate curve file, for ``synth``; on the curve's own axis.

    Args:
        path: a file of the format ``rate_curve``.
        scale: factor on every rate, > 0.
        skip_bad_rows: leave bad rows out.

    Raises:
        TraceError: not a usable rate curve.
        ConfigError: a scale that is not above 0.
    """
    rate_curve = plugins.find("traces", "rate_curve")
    options = Options(skip_bad_rows=skip_bad_rows, rate_scale=scale)
    _, _, frame = _rows(str(path), "rate_curve", options, None)
    profile: RateProfile = rate_curve.profile(str(path), frame, options)
    return profile


def _rows(
    path: str, wanted: str, options: Options, on_bytes: Callable[[int], None] | None
) -> tuple[RowReader, Format, pl.DataFrame]:
    with open_trace(path) as file:
        if is_parquet(file, path):
            reader, fmt, frames = parquet_rows(path, wanted, options.skip_bad_rows)
        else:
            reader, fmt, frames = text_rows(file, path, wanted, options.skip_bad_rows, on_bytes)
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
    return reader, fmt, pl.concat(parts)


def _read_file(
    path: str, wanted: str, options: Options, on_bytes: Callable[[int], None] | None
) -> _File:
    reader, fmt, frame = _rows(path, wanted, options, on_bytes)
    notices = [fmt.notice] if fmt.notice and wanted == "auto" else []
    skipped = reader.skipped
    if fmt.settle is not None:
        settled = fmt.settle(path, frame, options)
        frame = settled.frame
        notices += settled.notices
        skipped += settled.skipped
    if reader.failed:
        notices.append(f"left out {reader.failed:,} rows: {fmt.failed_rule}")
    if skipped:
        notices.append(f"skipped {skipped:,} bad rows")
    return _File(
        path,
        fmt,
        frame["arrival"].to_numpy(),
        frame["prompt_tokens"].to_numpy(),
        frame["output_tokens"].to_numpy(),
        skipped + reader.failed,
        tuple(f"{path}: {notice}" for notice in notices),
    )


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
        if not file.format.samples:
            low, high = slice_bounds(columns[0], start_s, duration_s)
            columns = [column[low:high] for column in columns]
            if start_s:
                columns[0] = columns[0] - start_s
        parts.append(columns)
    if len(parts) > 1:
        columns = list(in_order(*(np.concatenate(c) for c in zip(*parts, strict=True)))[:3])
    arrival_s, prompt_tokens, output_tokens = columns
    if not len(arrival_s):
        raise TraceError(
            f"{files[0].path}:0: no request from start_s {start_s or 0:g} for duration_s "
            f"{'the rest' if duration_s is None else f'{duration_s:g}'}"
        )
    return Trace(
        arrival_s - arrival_s[0] if arrival_s[0] else arrival_s,
        prompt_tokens,
        output_tokens,
        ",".join(sorted({f.format.name for f in files})),
        tuple(f.path for f in files),
        sum(f.skipped for f in files),
        tuple(notices),
    )
