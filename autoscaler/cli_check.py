"""``autoscaler check``: looks before a run does, and prints what it finds."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoscaler import settings
from autoscaler.clock import SystemClock
from autoscaler.findings import Level
from autoscaler.redaction import plain
from autoscaler.wiring import checked
from autoscaler.wiring.checked import Found

PROBLEM = 3


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def check(
    config: Annotated[
        Path, typer.Option(help="YAML file; AUTOSCALER_... in the environment has precedence.")
    ],
    output: Annotated[OutputFormat, typer.Option("--format")] = OutputFormat.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="A warning is a problem, too.")] = False,
    patience_s: Annotated[
        float, typer.Option(min=0.0, help="How long a width may take to be proven.")
    ] = 10.0,
) -> int:
    """Look at everything that a run depends on; exit code 3 if there is a problem.

    Queries, window and scrape interval, objective, width, its limits, permission to write it (by
    a dry run), other autoscalers. Nothing is changed; a bare vLLM is asked for one token a rank.

    Example: autoscaler check --config autoscaler.yaml
    """
    loaded = settings.load(config, os.environ)
    found = checked.check(loaded, SystemClock(), patience_s)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(checked.document(found)))
    else:
        _show(found)
    bad = (Level.WARNING, Level.ERROR) if strict else (Level.ERROR,)
    return PROBLEM if any(entry.finding.level in bad for entry in found) else 0


def _show(found: list[Found]) -> None:
    console = Console(soft_wrap=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    table = Table(box=None, pad_edge=False)
    for title in ("severity", "target", "what", "", "cure"):
        table.add_column(title, overflow="fold")
    order = (Level.ERROR, Level.WARNING, Level.OK)
    for entry in sorted(found, key=lambda entry: order.index(entry.finding.level)):
        finding = entry.finding
        row = (finding.level.value, entry.target, finding.subject, finding.detail, finding.cure)
        table.add_row(*(Text(plain(cell)) for cell in row))  # no markup: messages have [brackets]
    console.print(table)
    counts = {level: sum(e.finding.level is level for e in found) for level in order}
    console.print(
        f"{counts[Level.ERROR]} errors, {counts[Level.WARNING]} warnings, "
        f"{counts[Level.OK]} in order"
    )
