"""A vLLM benchmark's requests as LLMServingSim publishes them: ``arrival_time`` in Unix seconds.

Keys ``request_id,input_toks,output_toks,arrival_time`` and the measured instants of each request,
which are passed over. https://github.com/casys-kaist/LLMServingSim
"""

from autoscaler.traces._format import Format

FORMATS = (
    Format(
        "arrival_time",
        "input_toks",
        "output_toks",
        without=frozenset({"arrival_time_ns"}),
        wall_clock=True,
    ),
)
