"""Metrics of an engine that always has a little to do; ``defect``: a file that ends the thread."""

from dataclasses import dataclass
from pathlib import Path

from autoscaler.model import Metrics, Signal


@dataclass(frozen=True, slots=True)
class Params:
    defect: str = ""
    timeout_s: float = 0.01
    scrape_interval_s: float = 0.01


class Source:
    def __init__(self, params, context):
        self.params, self.window_s = params, context.slo.window_s

    def read(self):
        if self.params.defect and Path(self.params.defect).exists():
            raise ValueError("a bug")
        busy = {"queue_depth": 1, "arrival_rps": 1, "ttft_p95_s": 1, "ttft_observations": 30}
        return Metrics(self.window_s, **{k: Signal(float(v)) for k, v in busy.items()})


def build(params, context):
    return Source(params, context)
