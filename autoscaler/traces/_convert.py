"""A trace to a file of the native columns."""

import gzip
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import polars as pl
import zstandard

from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces._trace import Trace

_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
_ROWS_AT_ONCE = 1_000_000


class _Writable(Protocol):
    def write(self, data: bytes, /) -> int: ...


def write(trace: Trace, path: str | Path, on_rows: Callable[[int], None] | None = None) -> None:
    """Writes the native columns; reading the file back gives exactly the same arrays.

    Args:
        trace: what to write.
        path: ends with ``.jsonl``, ``.jsonl.gz``, ``.jsonl.zst`` or ``.parquet``, which decides.
            Equal traces give equal bytes. An existing file is replaced.
        on_rows: called with the rows written so far.

    Raises:
        ConfigError: another suffix.
        TraceError: the file cannot be written.
    """
    suffix = check_suffix(path)
    frame = pl.DataFrame(
        {
            "arrival_s": trace.arrival_s,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    try:
        if suffix == ".parquet":
            frame.write_parquet(path)
        else:
            _write_jsonl(frame, Path(path), suffix, on_rows)
    except OSError as error:
        raise TraceError(f"{path}:0: cannot be written: {error.strerror or error}") from error


def check_suffix(path: str | Path) -> str:
    """The suffix that decides how ``write`` writes.

    Raises:
        ConfigError: it is none of those known.
    """
    for suffix in _SUFFIXES:
        if str(path).endswith(suffix):
            return suffix
    raise ConfigError(f"out: must end with one of {', '.join(_SUFFIXES)}; got {str(path)!r}")


def _write_jsonl(
    frame: pl.DataFrame, path: Path, suffix: str, on_rows: Callable[[int], None] | None
) -> None:
    with path.open("wb") as raw, ExitStack() as stack:
        file: _Writable = raw
        if suffix == ".jsonl.gz":  # no name and no time in the header: equal traces, equal bytes
            file = stack.enter_context(
                gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0, compresslevel=6)
            )
        elif suffix == ".jsonl.zst":
            file = stack.enter_context(zstandard.ZstdCompressor(level=3).stream_writer(raw))
        for row in range(0, frame.height, _ROWS_AT_ONCE):
            rows = frame.slice(row, _ROWS_AT_ONCE)
            file.write(rows.write_ndjson().encode())
            if on_rows is not None:
                on_rows(row + rows.height)
