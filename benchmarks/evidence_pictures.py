"""The evidence on policies as pictures and as Markdown tables."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from evidence_runs import BASELINES, DELAYED, DELAYS_S, OURS
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SALT = {"svg.hashsalt": "autoscaler"}
KEPT_RATIO = 0.99


def mark_of(policy: str) -> dict[str, Any]:
    """Colour and marker, the same in every picture."""
    order = [OURS, *BASELINES, "threshold_tuned", "pid_tuned"]
    at = order.index(policy)
    return {"color": f"C{at % 10}", "marker": "Do^vs<>Pp"[at]}


def save(figure: Figure, path: Path) -> None:
    """The same picture gives the same bytes: no date, no random ids."""
    with mpl.rc_context(_SALT):
        figure.savefig(path, metadata={"Date": None})


def attainment(document: dict[str, Any], path: Path) -> None:
    """Attainment against GPU-hours over ours: a faint dot a scenario, a strong one for all."""
    classes = ("foreseeable", "bursty")
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    for axis, load_class in zip(figure.subplots(1, 2), classes, strict=True):
        entries = [e for e in document["scenarios"] if e["class"] == load_class]
        dots: dict[str, list[tuple[float, float]]] = {}
        for entry in entries:
            results = entry["simulation"]["results"]
            ours = next(r for r in results if r["policy"] == OURS)
            for r in results:
                dot = r["gpu_hours"] / ours["gpu_hours"], 100 * r["slo"]["windows_ok_ratio"]
                dots.setdefault(r["policy"], []).append(dot)
        for policy, found in dots.items():
            x, y = zip(*found, strict=True)
            mark = mark_of(policy)
            axis.scatter(x, y, s=8, alpha=0.3, linewidths=0, **mark)
            mean = math.exp(math.fsum(map(math.log, x)) / len(x)), math.fsum(y) / len(y)
            axis.scatter(*mean, s=70, edgecolors="black", linewidths=0.6, label=policy, **mark)
        axis.axhline(100 * KEPT_RATIO, linewidth=0.5, color="0.6")
        axis.axvline(1, linewidth=0.5, color="0.6")
        axis.set_title(f"{load_class}: {len(entries)} scenarios")
        axis.set_xlabel("GPU-hours / those of model_based")
        axis.set_ylabel("windows within the SLO, %")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small")
    save(figure, path)


def delays(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Attainment and GPU-hours against the delay of a resize, a line a policy."""
    figure = Figure(figsize=(10, 7.4), layout="constrained")
    axes = figure.subplots(2, len(DELAYED), sharex=True)
    for column, scenario in enumerate(DELAYED):
        for policy in _policies(found):
            rows = [r for r in found if (r["scenario"], r["policy"]) == (scenario, policy)]
            x = [r["delay_s"] for r in rows]
            style = {**mark_of(policy), "markersize": 3, "linewidth": 1, "label": policy}
            axes[0, column].plot(x, [100 * r["windows_ok_ratio"] for r in rows], **style)
            axes[1, column].plot(x, [r["gpu_hours"] for r in rows], **style)
        _named(axes[0, column], scenario, "windows within the SLO, %")
        _named(axes[1, column], "", "GPU-hours")
        axes[0, column].axhline(100 * KEPT_RATIO, linewidth=0.5, color="0.6")
        axes[1, column].set_xlabel("from the write of a width until it serves, s")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize="small")
    save(figure, path)


def _named(axis: Axes, title: str, what: str) -> None:
    axis.set_title(title)
    axis.set_ylabel(what)


def _policies(found: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["policy"] for r in found))


def dominance_table(raw: dict[str, dict[str, str]], at_goal: dict[str, dict[str, str]]) -> str:
    """How often ours dominates each baseline, and where it is dominated."""
    lines = [
        "| against | dominates | equal | neither | dominated | dominated in | at 99 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, verdicts in raw.items():
        count = _counts(verdicts)
        where = ", ".join(n for n, v in verdicts.items() if v == "dominated") or "-"
        goal = _counts(at_goal[kind])
        lines.append(
            f"| {kind} | {count['dominates']} | {count['equal']} | {count['neither']} | "
            f"{count['dominated']} | {where} | {goal['dominates']} / {goal['dominated']} |"
        )
    return "\n".join(lines)


def _counts(verdicts: dict[str, str]) -> dict[str, int]:
    values = list(verdicts.values())
    return {v: values.count(v) for v in ("dominates", "equal", "neither", "dominated")}


def scenario_table(document: dict[str, Any]) -> str:
    """Attainment and GPU-hours, a line a scenario."""
    names = [r["policy"] for r in document["scenarios"][0]["simulation"]["results"]]
    lines = ["| scenario | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for entry in document["scenarios"]:
        cells = [
            f"{100 * r['slo']['windows_ok_ratio']:.1f} % {r['gpu_hours']:.2f}"
            for r in entry["simulation"]["results"]
        ]
        lines.append(f"| {entry['name']} ({entry['class']}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cliff_table(found: Sequence[dict[str, Any]]) -> str:
    """The largest delay up to which each policy keeps the SLO, and what is lost at 200 s."""
    heads = " | ".join(f"{name}: cliff | at {DELAYS_S[-1]} s" for name in DELAYED)
    lines = [f"| policy | {heads} |", "|---" * (2 * len(DELAYED) + 1) + "|"]
    for policy in _policies(found):
        cells = []
        for scenario in DELAYED:
            rows = [r for r in found if (r["scenario"], r["policy"]) == (scenario, policy)]
            cells += [_cliff(rows), f"{100 * rows[-1]['windows_ok_ratio']:.1f} %"]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cliff(rows: Sequence[dict[str, Any]]) -> str:
    """Between the last delay before the first miss, and that one."""
    last = None
    for row in rows:
        if row["windows_ok_ratio"] < KEPT_RATIO:
            return "not kept at 0 s" if last is None else f"after {last:g} s"
        last = row["delay_s"]
    return "none"


def burst_table(found: Sequence[dict[str, Any]]) -> str:
    """A line a burst: ours, and every baseline some trial of which beats it on both counts."""
    lines = ["| scenario | model_based | beaten on both counts by |", "|---|---|---|"]
    for scenario in dict.fromkeys(r["scenario"] for r in found):
        rows = [r for r in found if r["scenario"] == scenario]
        ours = rows[0]["ours"]
        beaten = [
            f"{r['policy']} ({100 * r['best_that_does']['windows_ok_ratio']:.1f} %, "
            f"{r['best_that_does']['gpu_hours']:.2f})"
            for r in rows
            if r["best_that_does"]
        ]
        lines.append(
            f"| {scenario} | {100 * ours['windows_ok_ratio']:.1f} %, {ours['gpu_hours']:.2f} "
            f"GPU-hours | {', '.join(beaten) or 'none'} |"
        )
    trials = max((r["trials"] for r in found), default=0)
    lines += ["", f"{trials} parameter sets a baseline and burst."]
    return "\n".join(lines)
