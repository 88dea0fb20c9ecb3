"""LLMServingSim's input: ``input_toks,output_toks,arrival_time_ns``, whole nanoseconds.

https://github.com/casys-kaist/LLMServingSim
"""

import polars as pl

from autoscaler.traces._format import Format

FORMATS = (
    Format(
        "arrival_time_ns",
        "input_toks",
        "output_toks",
        units_per_s=1_000_000_000,
        types={"arrival_time_ns": pl.Int64()},
        time_rule="a whole number from 0",
    ),
)
