"""How fast the simulator is, as JSON: the engine alone, a tick, and the whole command.

    python benchmarks/speed.py [--requests 10000000] [--week]

The least of several runs is quoted: it is the one that other users of the machine disturbed least.
A plain loop of additions in Python is timed in the same run, so that figures from different
machines can be set in relation to it.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from autoscaler import profiles
from autoscaler.engine.fleet import Engine, Load
from autoscaler.scenario import Scenario
from autoscaler.traces import Lengths, RateProfile, Trace, load, synth, write
from autoscaler.wiring import simulated

PROFILE = "assumed-wide"
RATE_RPS = 70.0
DAY_S = 86_400


def least_s(run: Callable[[], object], times: int) -> float:
    """CPU seconds of the fastest of several runs."""
    measured = []
    for _ in range(times):
        started_s = time.process_time()
        run()
        measured.append(time.process_time() - started_s)
    return min(measured)


def trace(requests: int, seed: int = 0) -> Trace:
    """Poisson arrivals at a constant rate, 1,024 prompt and 160 to 256 output tokens."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / RATE_RPS, requests))
    return Trace(
        arrival_s - arrival_s[0],
        np.full(requests, 1024, np.int32),
        rng.integers(160, 257, requests).astype(np.int32),
    )


def engine_alone(requests: int) -> dict[str, float]:
    """Requests a second of the compiled loop, at the least width that the load leaves idle."""
    made = trace(requests)
    requests_to_serve = Load(made.arrival_s, made.prompt_tokens, made.output_tokens)
    physics = profiles.load(PROFILE).physics(16)
    Engine(Load(*(a[:100] for a in _columns(made))), physics).run()
    seconds = least_s(lambda: Engine(requests_to_serve, physics).run(), 7)
    return {"requests": requests, "requests_per_cpu_s": requests / seconds}


def _columns(made: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return made.arrival_s, made.prompt_tokens, made.output_tokens


def tick() -> dict[str, float]:
    """CPU time of a tick (probe, controller with threshold policy, record): a light load's.

    What the engine itself needs for the same load in steps of a tick is measured beside it and
    taken off.
    """
    rng = np.random.default_rng(0)
    n = 20_000
    arrival_s = np.cumsum(rng.exponential(5.0, n))
    made = Trace(arrival_s - arrival_s[0], np.full(n, 64, np.int32), np.full(n, 16, np.int32))
    scenario = Scenario(profile=(PROFILE,), policy=("threshold",), resize="elastic-nixl")
    run = simulated.plan(scenario)[0]
    resize = simulated.resize_model(scenario.resize)
    ticks = simulated.play(scenario, made, run, resize)[1].ticks
    seconds = least_s(lambda: simulated.play(scenario, made, run, resize), 7)
    physics = run.profile.physics(run.initial_width)

    def serve() -> None:
        engine = Engine(Load(*_columns(made)), physics)
        for number in range(ticks):
            engine.advance(number * scenario.tick_s)

    engine_s = least_s(serve, 7)
    return {
        "ticks": ticks,
        "us_per_tick": (seconds - engine_s) / ticks * 1e6,
        "us_per_tick_with_engine": seconds / ticks * 1e6,
    }


def whole(made: Trace, suffix: str) -> dict[str, float]:
    """Loading, 5 s ticks and scoring of one policy: wall time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace{suffix}"
        write(made, path)
        scenario = Scenario(
            trace=(str(path),), profile=(PROFILE,), policy=("threshold",), resize="elastic-nixl"
        )
        started_s = time.perf_counter()
        read = load(scenario.trace)
        loaded_s = time.perf_counter()
        document = simulated.simulate(scenario, read)
        ended_s = time.perf_counter()
    result = document["results"][0]
    return {
        "format": suffix,
        "requests": made.requests,
        "ticks": result["ticks"],
        "load_s": loaded_s - started_s,
        "simulate_s": ended_s - loaded_s,
        "requests_per_wall_s": made.requests / (ended_s - started_s),
        "windows_ok_ratio": result["slo"]["windows_ok_ratio"],
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def week(seed: int = 0) -> Trace:
    """44 million requests in seven days, 73 a second on average, a twofold daily swing."""
    hours = np.arange(7 * 24 + 1)
    rates = 73.0 * (1 - 0.33 * np.cos(2 * np.pi * (hours - 4) / 24))
    curve = RateProfile.curve(hours * 3600.0, rates).clipped(0.0, 7.0 * DAY_S)
    return synth(curve, np.random.default_rng(seed), prompt=Lengths(1024.0), output=Lengths(256.0))


def python_loop() -> float:
    """Million additions a second of a plain Python loop."""

    def run() -> None:
        total = 0
        for i in range(1_000_000):
            total += i

    return 1.0 / least_s(run, 5)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--week", action="store_true", help="also 44 million requests")
    given = parser.parse_args()
    result = {
        "python": sys.version.split()[0],
        "python_million_additions_per_s": python_loop(),
        "engine": engine_alone(1_000_000),
        "tick": tick(),
        "whole": [whole(trace(given.requests), suffix) for suffix in (".parquet", ".jsonl")],
    }
    if given.week:
        result["week"] = whole(week(), ".parquet")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
