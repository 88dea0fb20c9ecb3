"""Mooncake's traces and AIPerf's: ``timestamp,input_length,output_length``, milliseconds.

A later turn of an AIPerf session may carry ``delay`` (milliseconds after the end of the turn
before) in place of ``timestamp``. How long that turn is served is not in the file, so it counts
from the turn's arrival, and a notice says so: such turns come earlier than they would have.
https://github.com/kvcache-ai/Mooncake (Apache-2.0).
"""

import polars as pl

from autoscaler.errors import TraceError
from autoscaler.traces._format import Format, Options, Settled


def _extract(frame: pl.DataFrame) -> pl.DataFrame:
    turn = pl.col("timestamp").is_null() & pl.col("delay").is_not_null()
    return frame.select(
        "line",
        "session_id",
        # The delay only stands in: _settle makes an arrival of it.
        arrival=pl.when(turn).then("delay").otherwise("timestamp"),
        prompt_tokens=pl.col("input_length"),
        output_tokens=pl.col("output_length"),
        turn=turn,
    )


def _settle(path: str, frame: pl.DataFrame, options: Options) -> Settled:
    turn = pl.col("turn")
    if not frame["turn"].any():
        return Settled(frame)
    delayed = pl.when(turn).then("arrival").otherwise(0.0).cum_sum().over("session_id")
    anchored = frame.with_columns(delayed=delayed).with_columns(
        anchor=pl.when(~turn)
        .then(pl.col("arrival") - pl.col("delayed"))
        .otherwise(None)
        .forward_fill()
        .over("session_id")
    )
    orphan = turn & (pl.col("anchor").is_null() | pl.col("session_id").is_null())
    orphans = anchored.filter(orphan)
    if orphans.height and not options.skip_bad_rows:
        raise TraceError(
            f"{path}:{orphans['line'][0]}: timestamp: missing, and delay must follow a turn of the "
            f"same session_id; got session_id {orphans['session_id'][0]!r}"
        )
    settled = anchored.filter(~orphan).with_columns(
        arrival=pl.when(turn).then(pl.col("anchor") + pl.col("delayed")).otherwise("arrival")
    )
    turns = settled["turn"].sum()
    notice = f"{turns:,} turns have a delay: it counts from the arrival of the turn before, "
    notice += "because how long that one is served is not in the file"
    return Settled(settled, (notice,) if turns else (), skipped=orphans.height)


FORMATS = (
    Format(
        "timestamp",
        "input_length",
        "output_length",
        units_per_s=1000,
        without=frozenset({"chat_id"}),
        types={"delay": pl.Float64(), "session_id": pl.String()},
        extract=_extract,
        settle=_settle,
        notice="timestamp is read as milliseconds, as Mooncake's is; "
        "name the format bailian if these are seconds",
    ),
)
