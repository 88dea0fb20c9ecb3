"""Vidur: ``arrived_at,num_prefill_tokens,num_decode_tokens``, seconds.

https://github.com/microsoft/vidur
"""

from autoscaler.traces._format import Format

FORMATS = (Format("arrived_at", "num_prefill_tokens", "num_decode_tokens"),)
