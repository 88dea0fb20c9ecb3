"""AIBrix workloads: ``timestamp`` in milliseconds with a list of ``requests``, or flattened.

Nested: ``{"timestamp": 6011, "requests": [{"Prompt Length": 178, "Output Length": 8, …}, …]}``;
an empty list is a moment without requests. Flattened: ``timestamp_ms,Prompt Length,Output Length``.
An output of 0 is kept (a request that only prefills); a null one is a bad row, because a length
that nobody knows is not 0. https://github.com/vllm-project/aibrix (Apache-2.0).
"""

import polars as pl

from autoscaler.traces._format import Format


def _extract(frame: pl.DataFrame) -> pl.DataFrame:
    requests = pl.col("requests")
    rows = frame.filter((requests.list.len() > 0).fill_null(value=True)).explode("requests")
    return rows.select(
        "line",
        arrival=pl.col("timestamp"),
        prompt_tokens=requests.struct.field("Prompt Length").cast(pl.Float64, strict=False),
        output_tokens=requests.struct.field("Output Length").cast(pl.Float64, strict=False),
    )


_LENGTHS = pl.Struct({"Prompt Length": pl.Float64(), "Output Length": pl.Float64()})

FORMATS = (
    Format("timestamp_ms", "Prompt Length", "Output Length", units_per_s=1000),
    Format(
        "timestamp",
        "Prompt Length",
        "Output Length",
        nested="requests",
        units_per_s=1000,
        types={"requests": pl.List(_LENGTHS)},
        extract=_extract,
        containers=frozenset({"jsonl", "parquet"}),
    ),
)
