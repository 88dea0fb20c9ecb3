"""Traces: who asks for how much, and when. One module a format; ``load`` finds it by the keys."""

from autoscaler.traces._load import load
from autoscaler.traces._trace import MAX_TOKENS, Trace

__all__ = ["MAX_TOKENS", "Trace", "load"]
