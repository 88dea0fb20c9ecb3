"""JSONL and CSV: a block of lines into columns, and one line into its values."""

import csv
import json
from collections.abc import Mapping
from typing import Protocol

import polars as pl


class Lines(Protocol):
    """A text container: how a block becomes a frame, and how one line becomes a dict."""

    def parse(self, block: bytes) -> pl.DataFrame:
        """The columns of the schema, one row a line.

        Raises:
            pl.exceptions.PolarsError: something in the block is not as it should be.
        """

    def fields(self, line: bytes) -> Mapping[str, object]:
        """The values of one line.

        Raises:
            ValueError: the line is malformed; the message is the rule.
        """


class JsonLines:
    """One JSON object a line; keys that nobody asked for are passed over."""

    def __init__(self, schema: Mapping[str, pl.DataType]) -> None:
        self._schema = dict(schema)

    def parse(self, block: bytes) -> pl.DataFrame:
        return pl.read_ndjson(block, schema=self._schema)  # absent keys become null columns

    def fields(self, line: bytes) -> Mapping[str, object]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"must be one JSON object ({first_words(error)})") from error
        if not isinstance(value, dict):
            raise ValueError("must be one JSON object")  # noqa: TRY004 (a rule of the file, not a type of ours)
        return value


class CsvLines:
    """Comma-separated lines under a header; a quoted field may hold commas but no newline."""

    def __init__(self, header: list[str], schema: Mapping[str, pl.DataType]) -> None:
        self._header = header
        self._needed = [i for i, name in enumerate(header) if name in schema]
        self._schema = {name: schema.get(name, pl.String()) for name in header}
        self._absent = [
            pl.lit(None, dtype=wanted).alias(name)
            for name, wanted in schema.items()
            if name not in header
        ]

    def parse(self, block: bytes) -> pl.DataFrame:
        frame = pl.read_csv(
            block, has_header=False, schema=self._schema, columns=self._needed, raise_if_empty=False
        )
        # Polars fills short rows with nulls, also in columns that nobody reads, and lets an open
        # quote pass at the end: so commas and quotes are counted.
        separators = frame.height * (len(self._header) - 1)
        if b"\0" in block or block.count(b'"') % 2:
            raise pl.exceptions.ComputeError("a NUL byte or an open quote")
        if block.count(b",") != separators and not (b'"' in block and self._all_full(block)):
            raise pl.exceptions.ComputeError("a row has a wrong number of fields")
        return frame.with_columns(self._absent)

    def _all_full(self, block: bytes) -> bool:
        """Whether every line has all its fields, where quoted commas mislead a count."""
        try:
            return all(len(self.fields(line)) for line in block.removesuffix(b"\n").split(b"\n"))
        except ValueError:
            return False

    def fields(self, line: bytes) -> Mapping[str, object]:
        if b"\0" in line:
            raise ValueError("must not contain NUL bytes")
        try:
            rows = list(csv.reader([line.decode().rstrip("\r\n")], strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"must be comma-separated text ({first_words(error)})") from error
        row = rows[0] if rows else []
        if len(row) != len(self._header):
            raise ValueError(f"must have {len(self._header)} fields, has {len(row)}")
        return dict(zip(self._header, row, strict=True))


def first_words(error: Exception) -> str:
    """The beginning of a library's message, on one line."""
    return " ".join(str(error).split())[:60]
