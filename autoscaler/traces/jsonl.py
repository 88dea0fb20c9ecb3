"""The project's own format: one JSON object a request, seconds from the start of the trace.

``{"arrival_s": 12.5, "prompt_tokens": 1024, "output_tokens": 256}``; further keys are passed over.
"""

from autoscaler.traces._format import Format

FORMATS = (
    Format("arrival_s", "prompt_tokens", "output_tokens", containers=frozenset({"jsonl", "csv"})),
)
