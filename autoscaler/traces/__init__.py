"""Traces: who asks for how much, and when. One module a format; ``load`` finds it by the keys.

To add a format, add a module here (or an entry point ``autoscaler.traces`` elsewhere) with
``FORMATS``, a tuple of ``Format``, and a ten-line sample with its test.
"""

from autoscaler.traces._convert import check_suffix, write
from autoscaler.traces._format import Format, Options, Settled
from autoscaler.traces._load import load, load_curve
from autoscaler.traces._stats import TokenStats, TraceStats, stats
from autoscaler.traces._synth import Lengths, RateProfile, arrivals, synth
from autoscaler.traces._trace import MAX_TOKENS, Trace

__all__ = [
    "MAX_TOKENS",
    "Format",
    "Lengths",
    "Options",
    "RateProfile",
    "Settled",
    "TokenStats",
    "Trace",
    "TraceStats",
    "arrivals",
    "check_suffix",
    "load",
    "load_curve",
    "stats",
    "synth",
    "write",
]
