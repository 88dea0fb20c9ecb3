"""The project's own columns stored as Parquet: ``arrival_s``, ``prompt_tokens``, ``output_tokens``.

Every other format's columns may be stored as Parquet too, and keep that format's name and units.
"""

from autoscaler.traces._format import Format

FORMATS = (
    Format("arrival_s", "prompt_tokens", "output_tokens", containers=frozenset({"parquet"})),
)
