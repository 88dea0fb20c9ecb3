"""BurstGPT: ``Timestamp,…,Model,Request tokens,Response tokens,Total tokens,Log Type``, seconds.

A response of 0 tokens is a failed request; it is left out, counted and reported, because nothing
says how long the service worked on it. https://github.com/HPMLL/BurstGPT
"""

import polars as pl

from autoscaler.traces._format import Format


def _extract(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        "line",
        arrival=pl.col("Timestamp"),
        prompt_tokens=pl.col("Request tokens"),
        output_tokens=pl.col("Response tokens"),
        failed=pl.col("Response tokens") == 0,
    )


FORMATS = (
    Format(
        "Timestamp",
        "Request tokens",
        "Response tokens",
        extract=_extract,
        failed_rule="failed requests, which have 0 Response tokens",
    ),
)
