"""One live run: an emulated engine, a real Prometheus that scrapes it, and ``autoscaler run``.

Everything is ten times as fast as in earnest: a tick of 5 s takes 0.5 s here, and the emulator
plays ten seconds in one. The load is a schedule in the engine's own seconds.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.engine.fleet import Load
from tests.adapters.prometheus.conftest import Prometheus, Start
from tests.adapters.prometheus.servers import free_port
from tests.e2e.emulator.worlds import MEASURED, Caller, emulated, profile, until
from tests.e2e.run.conftest import Process, World

SCALE = 10.0
TICK_S = 0.5
WINDOW_S = 3.0
"""Thirty of the engine's seconds."""

PER_RANK_RPS = 10.0
"""What a rank of ``engine_profile`` can take of ``ramp``'s requests."""

THRESHOLD = """
kind: threshold
up_for_s: 1.5
down_for_s: 12
idle_for_s: 12
step_up: 1
"""


def engine_profile() -> Any:
    """Each rank has four slots, and serves ten requests of ten tokens in, twenty out a second."""
    return profile(0.01, widths=(1, 2, 3, 4))


def ramp(*points: tuple[float, float]) -> Load:
    """Requests at a rate that goes linearly from point to point: (second, requests a second)."""
    at_s, rps = np.array(points).T
    grid_s = np.arange(at_s[0], at_s[-1], 0.01)
    arrived = np.cumsum(np.interp(grid_s, at_s, rps)) * 0.01
    n = int(arrived[-1])
    arrival_s = np.interp(np.arange(1, n + 1), arrived, grid_s)
    return Load(arrival_s, np.full(n, 10, np.int32), np.full(n, 20, np.int32))


@dataclass
class Live:
    """A run as it goes on, and what it wrote."""

    engine: Caller
    prometheus: Prometheus
    world: World
    process: Process
    marks: dict[str, int] = field(default_factory=dict)

    def now_s(self) -> float:
        """The engine's seconds."""
        return float(self.engine.state()["now_s"])

    def wait_until_s(self, at_s: float) -> None:
        """Wait for an instant of the engine's."""
        until(lambda: self.now_s() >= at_s, 60.0)

    def wait_for(self, happened: Callable[[dict[str, Any]], bool], limit_s: float = 30.0) -> None:
        """Wait for a tick of which something is true, from the last mark on."""
        first = max(self.marks.values(), default=0)
        until(lambda: any(happened(entry) for entry in self.entries()[first:]), limit_s)

    def mark(self, name: str) -> None:
        """Remember how many ticks there are."""
        self.marks[name] = len(self.entries())

    def entries(self) -> list[dict[str, Any]]:
        """Every tick of the decision log that is whole."""
        if not self.world.log.exists():
            return []
        lines = self.world.log.read_text("utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def between(self, first: str, last: str) -> list[dict[str, Any]]:
        """The ticks between two marks."""
        return self.entries()[self.marks[first] : self.marks[last]]


@contextmanager
def live(folder: Path, start_prometheus: Start, load: Load, **engine: Any) -> Iterator[Live]:
    """A run that has begun; it ends with the block."""
    world = World(folder)
    port = free_port()
    options = {"resize": MEASURED, "profile": engine_profile(), **engine}
    with emulated(2, time_scale=SCALE, trace=load, **options) as call:
        prometheus = start_prometheus(
            {
                "engine": (call.url.removeprefix("http://"), {"namespace": "bench"}),
                "autoscaler": (f"127.0.0.1:{port}", {}),
            },
            250,
        )
        (folder / "policy.yaml").write_text(THRESHOLD, encoding="utf-8")
        entry = {
            "name": "chat",
            "source": {
                "kind": "prometheus",
                "url": prometheus.url,
                "labels": {"namespace": "bench", "model_name": "emulated"},
                # Twice the real one: a loaded machine scrapes late.
                "scrape_interval_s": 0.5,
                "timeout_s": 0.4,
            },
            "target": {
                "kind": "vllm",
                "url": call.url,
                "max_width": 4,
                "gpus_per_width": 1,
                "timeout_s": 0.3,
                "answer_timeout_s": 60,
            },
            "slo": {"ttft_p95_s": 5.0, "window_s": WINDOW_S},
            "policy": "policy.yaml",
            "guards": {
                "min_width": 2,
                "max_width": 4,
                "settle_s": 6,
                "cooldown_down_s": 6,
                "scale_down_window_s": 6,
            },
        }
        world.settings["targets"].append(entry)
        world.save(tick_s=TICK_S, telemetry={"port": port})
        process = world.start()
        try:
            yield Live(call, prometheus, world, process)
        finally:
            process.close()
