"""Metrics from a file; ``raise``: no answer, ``defect``: a bug of the plug-in."""

import threading
from dataclasses import dataclass

from autoscaler.errors import ConfigError, ObservationError
from autoscaler.model import Metrics, Signal
from live_fakes import read


@dataclass(frozen=True, slots=True)
class Params:
    path: str
    password: str = ""
    timeout_s: float = 0.05
    scrape_interval_s: float = 0.05

    def __post_init__(self):
        if self.password == "short!":  # noqa: S105
            raise ConfigError(f"password: must be longer; got {self.password!r}")


class Source:
    def __init__(self, params, context):
        self.params, self.context = params, context

    def read(self):
        found = read(self.params.path)
        self.context.engines()
        if "defect" in found:
            raise ValueError(found["defect"])
        if "raise" in found:
            raise ObservationError(found["raise"])
        if "block_s" in found:
            threading.Event().wait(found["block_s"])
        signals = {k: Signal(float(v)) for k, v in found.get("signals", {}).items()}
        return Metrics(self.context.slo.window_s, **signals)


def build(params, context):
    return Source(params, context)
