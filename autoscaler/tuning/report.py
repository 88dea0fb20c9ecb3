"""What a search found, as one JSON-ready document and as tables."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from autoscaler.tuning.cases import Split
from autoscaler.tuning.goals import Goal, Outcome, summary
from autoscaler.tuning.search import Search

SCHEMA = "autoscaler.tuning/v1"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Args:
        kind: the policy.
        split: its cases.
        goal: the constraints.
        trials: how many.
        seed: of the search and of the split.
        command: that does it again.
    """

    kind: str
    split: Split
    goal: Goal
    trials: int
    seed: int
    command: str


def document(
    asked: Asked,
    search: Search,
    held_out: tuple[Sequence[Outcome], Sequence[Outcome]] | None,
) -> dict[str, Any]:
    """The ``autoscaler.tuning/v1`` document.

    Args:
        asked: the request.
        search: at least one trial of it played.
        held_out: outcomes of the parameters at the start and of the best ones, a held-out case
            each; None: interrupted before they were played.
    """
    base, best = search.base, search.best
    if base is None or best is None:
        raise ValueError("document: must have a trial to tell of")
    before, after = search.space.values(base.params), search.space.values(best.params)
    away: Sequence[Outcome] = held_out[0] if held_out else ()
    return {
        "schema": SCHEMA,
        "policy": asked.kind,
        "command": asked.command,
        "seed": asked.seed,
        "trials_asked": asked.trials,
        "trials": search.played,
        "interrupted": held_out is None,
        "goal": asdict(asked.goal),
        "kept": best.kept,
        "parameters": {n: {"default": before[n], "tuned": after[n]} for n in before},
        "tuned_on": _part(asked, base.outcomes, best.outcomes, held_out=False),
        "held_out": _part(asked, away, held_out[1] if held_out else (), held_out=True),
    }


def _part(
    asked: Asked, base: Sequence[Outcome], best: Sequence[Outcome], *, held_out: bool
) -> dict[str, Any]:
    cases = asked.split.held_out if held_out else asked.split.tuned
    return {
        "cases": [case.name for case in cases],
        "default": summary(base, asked.goal) if base else None,
        "tuned": summary(best, asked.goal) if best else None,
        "outcomes": [
            {"case": case.name, "default": asdict(before), "tuned": asdict(after)}
            for case, before, after in zip(cases, base, best, strict=False)
        ],
    }


def show(found: dict[str, Any], console: Console) -> None:
    """Print a document: parameters, then each case before and after."""
    table = Table(title=f"policy {found['policy']}", title_justify="left", box=None, pad_edge=False)
    for heading in ("parameter", "default", "tuned"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for name, values in found["parameters"].items():
        table.add_row(name, *(f"{values[key]:g}" for key in ("default", "tuned")))
    console.print(table)
    goal = found["goal"]
    for title, part in (("tuned on", found["tuned_on"]), ("held out", found["held_out"])):
        if part["tuned"] is not None:
            console.print()
            console.print(_cases(title, part, goal))
    if not found["kept"]:
        console.print(
            f"No parameters kept {100 * goal['attainment_ratio']:g} % of the windows and "
            f"{goal['reversals_per_hour']:g} reversals an hour in all cases tuned on; these come "
            "nearest.",
            highlight=False,
        )


def _cases(title: str, part: dict[str, Any], goal: dict[str, float]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for heading in ("SLO %", "tuned", "GPU-h", "tuned", "reversals/h", "tuned"):
        table.add_column(heading, justify="right")
    for row in part["outcomes"]:
        before, after = row["default"], row["tuned"]
        table.add_row(
            row["case"],
            *(f"{100 * o['windows_ok_ratio']:.1f}" for o in (before, after)),
            *(f"{o['gpu_hours']:.2f}" for o in (before, after)),
            *(f"{o['reversals_per_hour']:.1f}" for o in (before, after)),
            style="bold" if after["windows_ok_ratio"] >= goal["attainment_ratio"] else None,
        )
    return table
