"""``autoscaler scoreboard``: all scenarios, one command. Imported only when it is asked for."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from autoscaler import board, board_picture
from autoscaler.errors import ConfigError
from autoscaler.scoreboard import show as show_simulation
from autoscaler.sweeps import Journal, Workers


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def scoreboard(
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="Repeatable. [default: all shipped ones]"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND|FILE",
            help="Repeatable. [default: all shipped, a few static widths, the oracle]",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes, a scenario each. [default: one a core]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Dask scheduler to compute on.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was interrupted in --out.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scoreboard.json, scoreboard.txt and scoreboard.svg."),
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format")] = OutputFormat.TEXT,
) -> None:
    """Play scenarios against policies: a table, and a picture of what attainment costs.

    Example: autoscaler scoreboard --scenario spike --scenario slow-drift --jobs 2 --out results
    """
    names = scenario or board.names()
    errors = Console(stderr=True)
    for notice in board.notices(names):
        errors.print(f"note: {notice}", highlight=False)
    journal = None
    if out is not None:
        _make(out)
        of = board.identity(names, policy or ())
        journal = Journal(out / "scoreboard.partial.jsonl", of, resume=resume)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("scenarios", total=len(names))
        document = board.play(
            names,
            policy or (),
            workers=Workers(jobs, cluster),
            journal=journal,
            on_done=lambda done: progress.update(task, completed=done),
        )
    if journal is not None:
        journal.close(remove=True)
    if out is not None:
        _write(out, document)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        show(document, Console())


def show(document: dict[str, Any], console: Console) -> None:
    """Print a scoreboard: each scenario's table, then the summary."""
    for entry in document["scenarios"]:
        kind = entry["class"] or "unclassed"
        console.print(f"[bold]{entry['name']}[/bold] ({kind}): {entry['title']}", highlight=False)
        show_simulation(entry["simulation"], console)
        console.print()
    for load_class in dict.fromkeys(row["class"] for row in document["summary"]):
        rows = [row for row in document["summary"] if row["class"] == load_class]
        console.print(_summary(load_class, rows))
    console.print(
        "kept: scenarios with 99 % of the windows within the SLO. oracle: GPU-hours over "
        "the oracle's, geometric mean where it keeps the SLO.",
        highlight=False,
    )


def _summary(load_class: str, rows: list[dict[str, Any]]) -> Table:
    title = f"all {load_class} scenarios"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("policy")
    for heading in ("kept", "SLO %", "worst %", "GPU-h", "oracle", "resizes", "failed"):
        table.add_column(heading, justify="right")
    for row in rows:
        ratio = row["oracle_gpu_hours_ratio"]
        table.add_row(
            row["policy"],
            f"{row['kept']} of {row['scenarios']}",
            f"{100 * row['windows_ok_ratio']:.1f}",
            f"{100 * row['worst_windows_ok_ratio']:.1f}",
            f"{row['gpu_hours']:.1f}",
            "-" if ratio is None else f"{ratio:.2f}",
            str(row["resizes"]),
            str(row["failed"]),
        )
    return table


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: must be a folder, or be made one; {error.strerror}"
        ) from error


def _write(folder: Path, document: dict[str, Any]) -> None:
    try:
        text = json.dumps(document, allow_nan=False, indent=1)
        (folder / "scoreboard.json").write_text(text + "\n", encoding="utf-8")
        with (folder / "scoreboard.txt").open("w", encoding="utf-8") as file:
            show(document, Console(file=file, width=80))
    except OSError as error:
        raise ConfigError(f"{folder}: must be writable; {error.strerror}") from error
    board_picture.draw(document, folder / "scoreboard.svg")
