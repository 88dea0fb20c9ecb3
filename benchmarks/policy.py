"""What the model-based policy is worth: against others, on shipped scenarios. Prints JSON.

For each scenario and policy: share of windows within the objective, GPU-hours and their ratio to
a lower bound, reversals; and what a tick of the model-based policy costs, in milliseconds. The
bound takes at each moment the least width that bears the mean demand of the minute around it,
paid for from 100 s earlier on: no policy is told the future, so that some of it is out of reach.

Run: python benchmarks/policy.py [scenario ...] [--policy NAME ...]
"""

import argparse
import json
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from autoscaler import scenario as scenarios
from autoscaler import shipped
from autoscaler.foresight.curves import Curves, Mix
from autoscaler.model import Observation, Proposal, Slo
from autoscaler.policies.model_based import ModelBased
from autoscaler.policy_file import PolicyChoice
from autoscaler.ports import PolicyContext
from autoscaler.scenario import Scenario
from autoscaler.traces import Trace
from autoscaler.wiring import simulated
from autoscaler.wiring.simulated import Run

POLICIES = ("model_based", "threshold")
LEAD_S = 100
SMOOTH_S = 60


class Timed:
    """A policy that notes what each tick costs."""

    def __init__(self, policy: ModelBased, ticks_s: list[float]) -> None:
        self.policy, self.state, self._ticks_s = policy, policy.state, ticks_s

    def propose(self, obs: Observation) -> Proposal:
        """The policy's own wish."""
        began = perf_counter()
        proposal = self.policy.propose(obs)
        self._ticks_s.append(perf_counter() - began)
        return proposal


class TimedChoice:
    """Builds the chosen policy, timed."""

    def __init__(self, choice: PolicyChoice, ticks_s: list[float]) -> None:
        self.name, self.kind, self.params = choice.name, choice.kind, choice.params
        self.path, self._choice, self._ticks_s = choice.path, choice, ticks_s

    def build(self, context: PolicyContext) -> Any:
        """A new policy."""
        return Timed(self._choice.build(context), self._ticks_s)  # type: ignore[arg-type]


def lower_bound_gpu_hours(trace: Trace, run: Run) -> float:
    """What a width that follows the demand without delay or error would have been billed."""
    curves = Curves(run.profile, Slo(), 0.6, extrapolate=False)
    mix = Mix(float(trace.prompt_tokens.mean()), float(trace.output_tokens.mean()))
    widths = [w for w in range(run.min_width, run.max_width + 1) if curves.knows(w)]
    curves.refine(widths, mix, 10_000)
    seconds = int(trace.arrival_s[-1]) + 1
    arrived = np.bincount(trace.arrival_s.astype(int), minlength=seconds).astype(float)
    padded = np.pad(arrived, (SMOOTH_S // 2, SMOOTH_S - SMOOTH_S // 2 - 1), mode="edge")
    demand = np.convolve(padded, np.ones(SMOOTH_S) / SMOOTH_S, "valid")
    needed = np.full(seconds, widths[-1])
    for width in reversed(widths):
        curve = curves.curve(width, mix)
        if curve is not None:
            needed[demand <= curve.bearable_rps] = width
    ahead = np.pad(needed, (0, LEAD_S), mode="edge")
    billed = np.lib.stride_tricks.sliding_window_view(ahead, LEAD_S + 1).max(axis=1)
    return float(billed.sum()) / 3600.0 * run.profile.gpus(1)


def play(scenario: Scenario, trace: Trace, run: Run) -> dict[str, Any]:
    """One line of the result."""
    ticks_s: list[float] = []
    if run.policy.kind == "model_based":
        run = replace(run, policy=TimedChoice(run.policy, ticks_s))  # type: ignore[arg-type]
    entry = simulated.simulate_run(scenario, trace, run, simulated.resize_model(scenario.resize))
    line = {
        "policy": entry["policy"],
        "windows_ok_ratio": round(entry["slo"]["windows_ok_ratio"], 5),
        "gpu_hours": round(entry["gpu_hours"], 3),
        "bound_ratio": round(entry["gpu_hours"] / lower_bound_gpu_hours(trace, run), 3),
        "resizes": entry["resizes"]["up"] + entry["resizes"]["down"],
        "reversals": entry["resizes"]["reversals"],
    }
    if ticks_s:
        quantiles = np.percentile(ticks_s, (50, 99)) * 1e3
        line["tick_ms"] = {"p50": round(quantiles[0], 3), "p99": round(quantiles[1], 3)}
    return line


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scenario", nargs="*", default=shipped.names("scenarios"))
    parser.add_argument("--policy", action="append")
    given = parser.parse_args()
    results = []
    for name in given.scenario:
        scenario = scenarios.load(name, {"policy": given.policy or list(POLICIES)})
        trace = simulated.load_trace(scenario)
        lines = [play(scenario, trace, run) for run in simulated.plan(scenario)]
        results.append({"scenario": name, "resize": scenario.resize, "results": lines})
    print(json.dumps({"schema": "autoscaler.benchmark.policy/v1", "scenarios": results}, indent=1))


if __name__ == "__main__":
    main()
