"""All scenarios against all policies: what is played, and its summary by class of load."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autoscaler import __version__, policy_file, shipped
from autoscaler import scenario as scenarios
from autoscaler.sweeps import Journal, Workers, each
from autoscaler.wiring import simulated

SCHEMA = "autoscaler.scoreboard/v1"

GOOD_RATIO = 0.99
"""Windows within the SLO from which on a policy has kept it."""

_STATIC = 4
"""Static widths in each scenario, evenly spread: what a person might provision."""


def play(
    names: Sequence[str],
    policies: Sequence[str] = (),
    *,
    workers: Workers = Workers(1),  # noqa: B008  # immutable
    journal: Journal | None = None,
    on_done: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Play scenarios; the result is the same with any number of processes, ``wall_s`` apart.

    Args:
        names: names or files of scenarios.
        policies: names or files; empty: what each scenario names, else every shipped one, a few
            static widths and the oracle.
        workers: who plays, a scenario each; on a cluster they need the same files.
        journal: keeps what is played; None: nothing does.
        on_done: called with the number of scenarios done.

    Raises:
        AutoscalerError: a scenario is unusable.
    """
    entries: list[dict[str, Any]] = []
    items = [(name, tuple(policies)) for name in names]
    for entry in each(_played, items, workers, keys=names, journal=journal):
        entries.append(entry)
        if on_done is not None:
            on_done(len(entries))
    return {"schema": SCHEMA, "scenarios": entries, "summary": summary(entries)}


def _played(item: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
    return play_one(*item)


def play_one(name: str, policies: Sequence[str] = ()) -> dict[str, Any]:
    """One scenario's entry."""
    given = scenarios.load(name, {"policy": list(policies)})
    if not given.policy:
        given = replace(given, policy=_few_static(given))
    document = simulated.simulate(given, simulated.load_trace(given))
    return {
        "name": name,
        "class": given.load_class or None,
        "title": given.title,
        "simulation": document,
    }


def _few_static(scenario: scenarios.Scenario) -> tuple[str, ...]:
    """Every policy, but of the static widths only some."""
    names = [run.policy.name for run in simulated.plan(replace(scenario, policy=()))]
    static = [n for n in dict.fromkeys(names) if n.startswith("static:")]
    last = len(static) - 1
    kept = {static[round(i * last / (_STATIC - 1))] for i in range(_STATIC)}
    return tuple(n for n in dict.fromkeys(names) if n in kept or n not in static)


def identity(names: Sequence[str], policies: Sequence[str]) -> dict[str, Any]:
    """What a scoreboard depends on, as far as files say it: whose journal a journal is."""
    return {
        "version": __version__,
        "scenarios": {name: repr(scenarios.load(name, {})) for name in names},
        "policies": {n: repr(policy_file.load(n)) for n in policies if n != simulated.ORACLE},
    }


def notices(names: Sequence[str]) -> list[str]:
    """What to tell people of the scenarios before they are played."""
    resizes = dict.fromkeys(scenarios.load(name, {}).resize for name in names)
    notices = (simulated.resize_model(resize).notice for resize in resizes)
    return [notice for notice in notices if notice is not None]


def names() -> list[str]:
    """The shipped scenarios."""
    return shipped.names("scenarios")


def summary(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By class and policy, over the scenarios that the policy was played in.

    ``oracle_gpu_hours_ratio``: geometric mean where the oracle kept the SLO; null: nowhere.
    Static widths are left out: one that suits all scenarios does not exist.
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        for result in entry["simulation"]["results"]:
            if not result["policy"].startswith("static:"):
                key = (entry["class"] or "unclassed", result["policy"])
                found.setdefault(key, []).append(result)
    order = {"foreseeable": 0, "bursty": 1}
    return [
        {
            "class": load_class,
            "policy": policy,
            "scenarios": len(results),
            "kept": sum(r["slo"]["windows_ok_ratio"] >= GOOD_RATIO for r in results),
            "windows_ok_ratio": _mean([r["slo"]["windows_ok_ratio"] for r in results]),
            "worst_windows_ok_ratio": min(r["slo"]["windows_ok_ratio"] for r in results),
            "gpu_hours": math.fsum(r["gpu_hours"] for r in results),
            "oracle_gpu_hours_ratio": _geometric(
                [r["oracle_gpu_hours_ratio"] for r in results if r["oracle_gpu_hours_ratio"]]
            ),
            "resizes": sum(r["resizes"]["up"] + r["resizes"]["down"] for r in results),
            "failed": sum(r["requests"]["failed"] for r in results),
        }
        for (load_class, policy), results in sorted(
            found.items(), key=lambda item: order.get(item[0][0], 2)
        )
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(_mean([math.log(v) for v in values])) if values else None
