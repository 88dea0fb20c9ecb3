"""Lines into columns: fast where all is well, and line by line only around a bad one."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from autoscaler.errors import TraceError
from autoscaler.traces._format import Format
from autoscaler.traces._lines import CsvLines, Lines, first_words
from autoscaler.traces._trace import MAX_TOKENS

# A block that does not parse is halved down to this many lines, which are then looked at one by
# one: small enough to find one bad line among millions quickly, large enough for a file of them.
_LEAF_LINES = 512
# Later than any clock (year 5138), so that a mistaken unit fails here and not in a simulation.
_MAX_ARRIVAL_S = 1e11

_Line = tuple[int, bytes]


class RowReader:
    """Turns blocks of one file into canonical frames, and counts what it leaves out.

    The frames have ``line``, ``arrival``, ``prompt_tokens`` and ``output_tokens`` (Int32), and
    what else the format's ``settle`` wants.
    """

    def __init__(self, path: str, fmt: Format, *, skip_bad_rows: bool) -> None:
        self._path = path
        self._format = fmt
        self._schema = fmt.schema()
        self._skip = skip_bad_rows
        self.skipped = 0
        self.failed = 0

    def read_lines(self, lines: Lines, first_line: int, block: bytes) -> Iterator[pl.DataFrame]:
        """The frames of one block of text.

        Raises:
            TraceError: a bad row, unless they are skipped.
        """
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        frame = _parsed(lines, block, count)
        if frame is not None:
            numbers = pl.int_range(first_line, first_line + count, dtype=pl.Int64, eager=True)
            yield self._checked(
                frame.with_columns(line=numbers),
                lambda line: lines.fields(
                    block.split(b"\n", line - first_line + 1)[line - first_line]
                ),
            )
        elif block.isspace():
            return  # a megabyte of blank lines, one by one, takes two seconds
        elif count > _LEAF_LINES:
            middle = len(block) // 2
            cut = (block.rfind(b"\n", 0, middle) + 1) or (block.index(b"\n", middle) + 1)
            yield from self.read_lines(lines, first_line, block[:cut])
            yield from self.read_lines(lines, first_line + block.count(b"\n", 0, cut), block[cut:])
        else:
            kept = list(self._well_formed(lines, first_line, block))
            yield from self._read_few(lines, kept)

    def read_frame(self, frame: pl.DataFrame, first_row: int) -> pl.DataFrame:
        """The frame of some rows of a Parquet file; ``line`` counts rows from ``first_row``.

        Raises:
            TraceError: a bad row, unless they are skipped.
        """
        numbers = pl.int_range(first_row, first_row + frame.height, dtype=pl.Int64, eager=True)
        columns = [self._cast(frame, name, wanted) for name, wanted in self._schema.items()]
        return self._checked(
            frame.select(columns).with_columns(line=numbers),
            lambda line: frame.row(line - first_row, named=True),
        )

    def _cast(self, frame: pl.DataFrame, name: str, wanted: pl.DataType) -> pl.Expr:
        """A column of a Parquet file as the format wants it; null where a value is unreadable."""
        if name not in frame.columns:
            return pl.lit(None, dtype=wanted).alias(name)
        found = frame.schema[name]
        if wanted.is_numeric():
            if not (found.is_numeric() or found == pl.String):
                raise TraceError(f"{self._path}:0: {name}: must be numbers; got {found}")
            return pl.col(name).cast(wanted, strict=False)
        if wanted == pl.String and found.is_numeric():
            return pl.col(name).cast(pl.String)
        return pl.col(name)

    def _well_formed(self, lines: Lines, first_line: int, block: bytes) -> Iterator[_Line]:
        for number, line in enumerate(block.split(b"\n"), first_line):
            if not line.strip(b" \t\r"):
                continue  # a blank line is no row, in JSONL and CSV alike
            rule = _complaint(lines, line, self._schema)
            if rule is None:
                yield number, line
            else:
                self._bad(number, rule, line)

    def _read_few(self, lines: Lines, kept: list[_Line]) -> Iterator[pl.DataFrame]:
        if not kept:
            return
        frame = _parsed(lines, b"\n".join(line for _, line in kept) + b"\n", len(kept))
        if frame is not None:
            raw = dict(kept)
            numbers = pl.Series("line", list(raw), dtype=pl.Int64)
            yield self._checked(
                frame.with_columns(line=numbers), lambda line: lines.fields(raw[line])
            )
        elif len(kept) == 1:
            number, line = kept[0]
            self._bad(number, "must be readable as the format's columns", line)
        else:
            middle = len(kept) // 2
            yield from self._read_few(lines, kept[:middle])
            yield from self._read_few(lines, kept[middle:])

    def _checked(
        self, frame: pl.DataFrame, raw: Callable[[int], Mapping[str, object]]
    ) -> pl.DataFrame:
        fmt = self._format
        try:
            frame = fmt.canonical(frame)
        except pl.exceptions.PolarsError as error:  # Parquet columns of a type nobody expects
            rule = f"must have columns of the types of format {fmt.name} ({first_words(error)})"
            raise TraceError(f"{self._path}:0: {rule}") from error
        if "failed" in frame.columns:
            before = frame.height
            frame = frame.filter(~pl.col("failed").fill_null(value=False)).drop("failed")
            self.failed += before - frame.height
        good = frame.select(good=_good(fmt)).to_series()
        if not good.all():
            if not self._skip:
                row = frame.row(int((~good).arg_max() or 0), named=True)
                line = int(row["line"])
                raise TraceError(f"{self._path}:{line}: {_broken_rule(fmt, row, raw(line))}")
            self.skipped += good.len() - int(good.sum())
            frame = frame.filter(good)
        frame = frame.with_columns(pl.col("prompt_tokens", "output_tokens").cast(pl.Int32))
        if fmt.settle is None:
            return frame.select("arrival", "prompt_tokens", "output_tokens")
        return frame

    def _bad(self, number: int, rule: str, line: bytes) -> None:
        if not self._skip:
            raise TraceError(f"{self._path}:{number}: {rule}; got {_shown(line)}")
        self.skipped += 1


def _parsed(lines: Lines, block: bytes, count: int) -> pl.DataFrame | None:
    """The block's frame, or None if it has not exactly one row a line."""
    try:
        frame = lines.parse(block)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    return frame if frame.height == count else None


def _good(fmt: Format) -> pl.Expr:
    arrival = pl.col("arrival")
    most = _MAX_ARRIVAL_S * fmt.units_per_s
    # A comparison with null is null and one with NaN is decided by the upper bound (Polars orders
    # NaN above every number), so two comparisons also catch missing and non-finite values.
    good = (arrival >= 0) & (arrival <= most)
    for name in ("prompt_tokens", "output_tokens"):
        tokens = pl.col(name)
        good &= (tokens >= 0) & (tokens <= MAX_TOKENS) & (tokens == tokens.floor())
    return good.fill_null(value=False)


def _broken_rule(fmt: Format, row: Mapping[str, Any], raw: Mapping[str, object]) -> str:
    """Which rule a canonical row breaks, in the words of the file."""
    for role in ("arrival", "prompt_tokens", "output_tokens"):
        key = getattr(fmt, role)
        value, written = row[role], raw.get(key)
        got = _shown(value if key not in raw else written)
        if value is None:
            if written is None or written == "":
                return f"{key}: missing"
            rule = fmt.time_rule if role == "arrival" else "a number"
            return f"{key}: must be {rule}; got {got}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{key}: must be finite; got {got}"
        if value < 0:
            return f"{key}: must be from 0; got {got}"
        if role == "arrival":
            if value > _MAX_ARRIVAL_S * fmt.units_per_s:
                return f"{key}: must be at most {_MAX_ARRIVAL_S:g} s; got {got}"
        elif value > MAX_TOKENS:
            return f"{key}: must be at most {MAX_TOKENS:,} tokens; got {got}"
        elif value != math.floor(value):
            return f"{key}: must be a whole number; got {got}"
    return "must be a request"  # not reached: the row broke one of the rules above


def _complaint(lines: Lines, line: bytes, schema: Mapping[str, pl.DataType]) -> str | None:
    """Why a line cannot be read, or None; values out of range are not this function's business."""
    try:
        fields = lines.fields(line)
    except ValueError as error:
        return str(error)
    for key, wanted in schema.items():
        value = fields.get(key)
        if value is None or value == "" or not wanted.is_numeric():
            continue
        if isinstance(value, str) and isinstance(lines, CsvLines):
            try:
                number = float("nan" if "_" in value else value)
            except ValueError:
                return f"{key}: must be a number"
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value) if abs(value) < 1e300 else math.inf
        else:
            return f"{key}: must be a number"
        if not math.isfinite(number):
            return f"{key}: must be finite"
        if wanted.is_integer() and number != math.floor(number):
            return f"{key}: must be a whole number"
    return None


def _shown(value: object) -> str:
    """A value from the file for a message: one printable line of bounded length."""
    text = value.decode(errors="backslashreplace").strip() if isinstance(value, bytes) else value
    shown = repr(text) if isinstance(text, str) else str(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."
