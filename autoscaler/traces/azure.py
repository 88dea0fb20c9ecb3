"""Azure's LLM inference traces of 2023 and 2024: ``TIMESTAMP,ContextTokens,GeneratedTokens``.

Instants in UTC: 2023 with seven fraction digits and no zone, 2024 with six or none and ``+00:00``.
Read exactly, in units of 100 ns. https://github.com/Azure/AzurePublicDataset (CC-BY 4.0).
"""

import polars as pl

from autoscaler.traces._format import Format

_TICKS_PER_S = 10_000_000


def _extract(frame: pl.DataFrame) -> pl.DataFrame:
    at = pl.col("TIMESTAMP")
    if frame.schema["TIMESTAMP"].is_temporal():  # in Parquet
        ticks = at.cast(pl.Datetime("ns")).cast(pl.Int64) // 100
    else:
        # Whole seconds and fraction apart: five times as fast as one pattern with a fraction, and
        # strptime's own fraction takes no seventh digit.
        seconds = at.str.head(19).str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
        rest = at.str.slice(19).str.strip_suffix("+00:00").str.strip_suffix("Z")
        fraction = (
            pl.when(rest.str.contains(r"^\.[0-9]{1,9}$"))
            .then(rest.str.slice(1, 7).str.pad_end(7, "0").cast(pl.Int64, strict=False))
            .when(rest == "")
            .then(pl.lit(0, pl.Int64))
        )
        ticks = seconds.cast(pl.Int64) * 10 + fraction
    return frame.select(
        "line",
        arrival=ticks,
        prompt_tokens=pl.col("ContextTokens"),
        output_tokens=pl.col("GeneratedTokens"),
    )


FORMATS = (
    Format(
        "TIMESTAMP",
        "ContextTokens",
        "GeneratedTokens",
        units_per_s=_TICKS_PER_S,
        types={"TIMESTAMP": pl.String()},
        extract=_extract,
        wall_clock=True,
        time_rule="a UTC time like 2023-11-16 18:15:46.6805900, or with +00:00",
    ),
)
