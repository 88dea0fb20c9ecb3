"""What the evidence on policies is computed from: all scenarios, a sweep of delays, bursts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autoscaler import board, policy_file, shipped
from autoscaler import scenario as scenarios
from autoscaler.policy_file import PolicyChoice
from autoscaler.sweeps import Workers, each
from autoscaler.tuning import cases
from autoscaler.tuning.goals import Goal, Outcome
from autoscaler.tuning.search import Search
from autoscaler.tuning.space import Space
from autoscaler.wiring import simulated

OURS = "model_based"
BASELINES = ("hpa", "kpa", "queue_threshold", "dynamo_like", "wva_like", "threshold")
"""At the defaults of their kind."""

TUNED = ("threshold", "pid")
"""As they ship, named ``*_tuned``."""

DELAYS_S = tuple(range(0, 201, 20))
DELAYED = ("ramp-up-and-down", "ramp-gb200-13.5")

_EXACT = 1e-9


@contextmanager
def policies() -> Iterator[list[str]]:
    """Names and files of all that are compared; a file's stem is what tables call it."""
    with TemporaryDirectory() as folder:
        names = [OURS]
        for kind in BASELINES:
            file = Path(folder, f"{kind}.yaml")
            file.write_text(f"kind: {kind}\n", encoding="utf-8")
            names.append(str(file))
        for kind in TUNED:
            file = Path(folder, f"{kind}_tuned.yaml")
            text = shipped.shipped("policies", kind).read_text(encoding="utf-8")
            file.write_text(text, encoding="utf-8")
            names.append(str(file))
        yield names


def all_scenarios(
    names: Sequence[str], jobs: int | None, on_done: Callable[[int], None]
) -> dict[str, Any]:
    """The scoreboard of all policies in these scenarios."""
    with policies() as compared:
        return board.play(names, compared, workers=Workers(jobs), on_done=on_done)


def dominance(document: dict[str, Any], *, beyond: float = 1.0) -> dict[str, dict[str, str]]:
    """By baseline and scenario: whether ours dominates, is dominated, or neither (or ``equal``).

    One dominates another that has no better attainment and no fewer GPU-hours, and one of them
    worse.

    Args:
        document: the scoreboard.
        beyond: attainment above this counts as this.
    """
    found: dict[str, dict[str, str]] = {kind: {} for kind in BASELINES}
    for entry in document["scenarios"]:
        results = {r["policy"]: r for r in entry["simulation"]["results"]}
        ours = _worth(results[OURS], beyond)
        for kind in BASELINES:
            theirs = _worth(results[kind], beyond)
            at_least = all(o >= t - _EXACT for o, t in zip(ours, theirs, strict=True))
            at_most = all(o <= t + _EXACT for o, t in zip(ours, theirs, strict=True))
            verdict = {
                (True, True): "equal",
                (True, False): "dominates",
                (False, True): "dominated",
                (False, False): "neither",
            }
            found[kind][entry["name"]] = verdict[at_least, at_most]
    return found


def _worth(result: dict[str, Any], beyond: float) -> tuple[float, float]:
    """Attainment and negative GPU-hours: of both, more is better."""
    return min(result["slo"]["windows_ok_ratio"], beyond), -result["gpu_hours"]


def delays(jobs: int | None, on_done: Callable[[int], None]) -> list[dict[str, Any]]:
    """Attainment and GPU-hours by scenario, delay of a resize and policy."""
    with policies() as compared:
        items = [
            (name, float(delay_s), policy)
            for name in DELAYED
            for delay_s in DELAYS_S
            for policy in compared
        ]
        found = []
        for result in each(_delayed, items, Workers(jobs)):
            found.append(result)
            on_done(len(found))
        return found


def _delayed(item: tuple[str, float, str]) -> dict[str, Any]:
    name, delay_s, policy = item
    given = scenarios.load(name, {"policy": [policy]})
    resize = replace(simulated.resize_model(given.resize), prepare_s=delay_s)
    run = simulated.plan(given)[0]
    entry = simulated.simulate_run(given, simulated.load_trace(given), run, resize)
    return {
        "scenario": name,
        "delay_s": delay_s,
        "policy": entry["policy"],
        "windows_ok_ratio": entry["slo"]["windows_ok_ratio"],
        "gpu_hours": entry["gpu_hours"],
    }


def bursts(
    document: dict[str, Any], trials: int, jobs: int | None, on_done: Callable[[int], None]
) -> list[dict[str, Any]]:
    """Whether any baseline, tuned on the very burst, beats ours on both counts at once.

    Each search wants the fewest GPU-hours at our attainment; all of its trials are looked at.
    """
    items = [
        (entry["name"], kind, trials, *_ours(entry))
        for entry in document["scenarios"]
        if entry["class"] == "bursty"
        for kind in BASELINES
    ]
    found = []
    for result in each(_tuned_on_a_burst, items, Workers(jobs)):
        found.append(result)
        on_done(len(found))
    return found


def _ours(entry: dict[str, Any]) -> tuple[float, float]:
    result = next(r for r in entry["simulation"]["results"] if r["policy"] == OURS)
    return result["slo"]["windows_ok_ratio"], result["gpu_hours"]


def _tuned_on_a_burst(item: tuple[str, str, int, float, float]) -> dict[str, Any]:
    name, kind, trials, attained, gpu_hours = item
    case = cases.load([], [name], {})
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{kind}.yaml")
        file.write_text(f"kind: {kind}\n", encoding="utf-8")
        choice: PolicyChoice = policy_file.load(file)
    goal = Goal(attained, 4.0)
    search = Search(choice, Space(kind, choice.params), case, goal, 0, Workers(1))
    search.run(trials)
    outcomes: list[Outcome] = [trial.outcomes[0] for trial in search.trials]
    beating = [o for o in outcomes if o.windows_ok_ratio > attained and o.gpu_hours < gpu_hours]
    best = min(beating, key=lambda o: o.gpu_hours, default=None)
    return {
        "scenario": name,
        "policy": kind,
        "trials": len(outcomes),
        "ours": {"windows_ok_ratio": attained, "gpu_hours": gpu_hours},
        "beats_ours": len(beating),
        "best_that_does": None
        if best is None
        else {"windows_ok_ratio": best.windows_ok_ratio, "gpu_hours": best.gpu_hours},
    }
