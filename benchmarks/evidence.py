"""The evidence on policies, made anew: figures, tables and their raw results.

``python benchmarks/evidence.py`` plays every scenario with ours and with six baselines at their
defaults, sweeps the delay of a resize, tunes each baseline on each burst, and writes
``docs/policies/`` and the tables in ``docs/policies.md``. A few minutes of two cores.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import evidence_pictures as pictures
import evidence_runs as runs
from rich.console import Console
from rich.progress import Progress

from autoscaler import board, board_picture

DOCS = Path(__file__).parents[1] / "docs"
SCHEMA = "autoscaler.policy-evidence/v1"


def measure(names: list[str], trials: int, jobs: int | None) -> dict[str, Any]:
    """All figures, as one JSON-ready document."""
    errors = Console(stderr=True)
    with Progress(console=errors, disable=not errors.is_terminal) as progress:

        def task(name: str, total: int) -> Any:
            number = progress.add_task(name, total=total)
            return lambda done: progress.update(number, completed=done)

        document = runs.all_scenarios(names, jobs, task("scenarios", len(names)))
        policies = len(document["scenarios"][0]["simulation"]["results"])
        count = len(runs.DELAYED) * len(runs.DELAYS_S) * policies
        delays = runs.delays(jobs, task("delays", count))
        bursty = sum(entry["class"] == "bursty" for entry in document["scenarios"])
        count = bursty * len(runs.BASELINES)
        bursts = runs.bursts(document, trials, jobs, task("bursts", count)) if trials else []
    for entry in document["scenarios"]:
        for result in entry["simulation"]["results"]:
            del result["wall_s"]
    return {"schema": SCHEMA, "scoreboard": document, "delays": delays, "bursts": bursts}


def publish(found: dict[str, Any], folder: Path) -> None:
    """Pictures and raw results into ``folder/policies``, tables into ``folder/policies.md``."""
    into = folder / "policies"
    into.mkdir(parents=True, exist_ok=True)
    board_document = found["scoreboard"]
    pictures.attainment(board_document, into / "attainment.svg")
    board_picture.draw(board_document, into / "scenarios.svg")
    pictures.delays(found["delays"], into / "delays.svg")
    tables = {
        "dominance": pictures.dominance_table(
            runs.dominance(board_document),
            runs.dominance(board_document, beyond=pictures.KEPT_RATIO),
        ),
        "scenarios": pictures.scenario_table(board_document),
        "cliffs": pictures.cliff_table(found["delays"]),
        "bursts": pictures.burst_table(found["bursts"]),
    }
    page = folder / "policies.md"
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name}: made by benchmarks/evidence.py -->", f"<!-- /{name} -->"
        text = re.sub(
            f"{re.escape(begin)}.*?{re.escape(end)}",
            lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}",
            text,
            flags=re.DOTALL,
        )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", action="append", help="default: all shipped ones")
    parser.add_argument("--trials", type=int, default=60, help="a baseline and burst; 0: none")
    parser.add_argument("--jobs", type=int, default=None, help="default: one a core")
    parser.add_argument("--docs", type=Path, default=DOCS)
    given = parser.parse_args()
    results = measure(given.scenario or board.names(), given.trials, given.jobs)
    publish(results, given.docs)
    print(json.dumps(results))
