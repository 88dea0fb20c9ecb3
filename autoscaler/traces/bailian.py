"""Bailian's traces: Mooncake's keys and ``chat_id``; ``timestamp`` in seconds.

https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon
"""

from autoscaler.traces._format import Format

FORMATS = (Format("timestamp", "input_length", "output_length", also=frozenset({"chat_id"})),)
