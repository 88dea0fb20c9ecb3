"""A healthy run: an emulated engine, ``autoscaler run``, a ramp that needs one resize.

In real time, with ticks and windows a fifth of what they are in earnest: what the width bears and
what arrives are in the same seconds then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler import profiles
from autoscaler.sim.resize import ResizeModel
from tests.adapters.prometheus.conftest import Prometheus, Start
from tests.adapters.prometheus.servers import free_port
from tests.e2e.emulator.worlds import Caller, emulated, until
from tests.e2e.live.story import engine_profile, ramp
from tests.e2e.monitoring.rules import faster
from tests.e2e.run.conftest import Process, World

TICK_S = 1.0
SCRAPE_S = 0.5
FASTER = 5.0
RESIZE = ResizeModel(
    mode="prepares beside the traffic", prepare_s=3.0, pause_up_s=1.5, pause_down_s=1.5,
    new="reject", leaving="abort",
)  # fmt: skip
POLICY = """
kind: model_based
lead_s: 8
error_memory_s: 60
mix_memory_s: 10
"""


@dataclass
class Run:
    """A run as it goes on."""

    engine: Caller
    prometheus: Prometheus
    world: World
    process: Process


@contextmanager
def healthy(folder: Path, start_prometheus: Start) -> Iterator[Run]:
    """A run that has been widened once, and has gone on for a while; it ends with the block."""
    world = World(folder)
    port = free_port()
    profile = engine_profile()
    rules = folder / "rules.yaml"
    rules.write_text(faster(FASTER), encoding="utf-8")
    profiles.write(profile, folder / "engine.yaml")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    load = ramp((0, 12), (14, 12), (22, 24), (600, 24))
    options: dict[str, Any] = {"resize": RESIZE, "profile": profile, "version": "0.30"}
    with emulated(2, time_scale=1.0, max_width=4, trace=load, **options) as engine:
        prometheus = start_prometheus(
            {
                "engine": (engine.url.removeprefix("http://"), {"namespace": "bench"}),
                "autoscaler": (f"127.0.0.1:{port}", {"namespace": "bench"}),
            },
            round(1000 * SCRAPE_S),
            rules,
        )
        world.settings["targets"].append(_target(engine.url, prometheus.url))
        world.save(tick_s=TICK_S, telemetry={"port": port})
        process = world.start()
        try:
            run = Run(engine, prometheus, world, process)
            until(lambda: engine.state()["width"] == 3, 60.0)
            at_s = engine.state()["now_s"]
            until(lambda: engine.state()["now_s"] > at_s + 10.0, 30.0)
            yield run
        finally:
            process.close()


def _target(engine: str, prometheus: str) -> dict[str, Any]:
    return {
        "name": "chat",
        "source": {
            "kind": "prometheus",
            "url": prometheus,
            "labels": {"namespace": "bench", "model_name": "emulated"},
            "scrape_interval_s": 2 * SCRAPE_S,  # a loaded machine scrapes late
            "timeout_s": 0.8,
        },
        "target": {
            "kind": "vllm",
            "url": engine,
            "max_width": 4,
            "gpus_per_width": 1,
            "timeout_s": 0.8,
            "answer_timeout_s": 60,
        },
        "slo": {"ttft_p95_s": 5.0, "window_s": 6.0},
        "policy": "policy.yaml",
        "profile": "engine.yaml",
        "shadow": ["threshold", "static:4"],
        "guards": {"min_width": 2, "max_width": 4, "settle_s": 6},
    }
