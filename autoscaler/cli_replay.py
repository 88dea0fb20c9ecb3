"""``autoscaler replay``: decides a log again and prints what is different."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from autoscaler import policy_file
from autoscaler.wiring import replayed
from autoscaler.wiring.replayed import SCHEMA, Difference, Replay

DIFFERENT = 3


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def replay(
    decisions: Annotated[Path, typer.Argument(help="Decision log of a run or a simulation.")],
    policy: Annotated[
        str | None,
        typer.Option(metavar="KIND|FILE", help="What would this policy have decided?"),
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format")] = OutputFormat.TEXT,
) -> int:
    """Decide recorded observations again; exit code 3 if anything is decided otherwise.

    Example: autoscaler replay decisions.jsonl --policy threshold
    """
    return _run(decisions, policy, output.value)


def _run(path: Path, policy: str | None, output: str) -> int:
    """Run the command.

    Args:
        path: decision log.
        policy: another policy's kind or file; None: the recorded ones.
        output: text | json.

    Returns:
        The exit code: 0 all are equal, or another policy was asked for; 3 a difference.

    Raises:
        AutoscalerError: unusable log or policy.
    """
    errors = Console(stderr=True, soft_wrap=True)
    choice = None if policy is None else policy_file.load(policy)
    result = replayed.replay(
        path, lambda notice: errors.print(f"note: {notice}", highlight=False), choice
    )
    if output == "json":
        typer.echo(json.dumps({"schema": SCHEMA, **_document(result)}, allow_nan=False))
    elif choice is None:
        _show(result)
    else:
        _show_other(result)
    return DIFFERENT if choice is None and result.equal < result.decisions else 0


def _document(result: Replay) -> dict[str, object]:
    document = asdict(result)
    if result.policy is None:
        del document["higher"], document["lower"]
    return document


def _show(result: Replay) -> None:
    if not result.differences:
        typer.echo(f"all {result.decisions} decisions are equal{_scope(result)}")
        return
    first, others = result.differences[0], result.decisions - result.equal - 1
    typer.echo(f"line {first.line}: {first.target}, tick {first.tick}: {first.what} differs")
    typer.echo(f"  recorded  {_line(first.recorded)}")
    typer.echo(f"  replayed  {_line(first.replayed)}")
    typer.echo(f"{others} more of {result.decisions} decisions differ{_scope(result)}")


def _show_other(result: Replay) -> None:
    share = result.equal / result.decisions if result.decisions else 1.0
    typer.echo(
        f"{result.policy} would have left the same width behind in {result.equal} of "
        f"{result.decisions} decisions ({share:.1%}), a larger one in {result.higher}, a smaller "
        f"one in {result.lower}{_scope(result)}"
    )
    if not result.differences:
        return
    table = Table(title="Where they differ, the first ones", title_justify="left", box=None)
    for title in ("line", "target", "tick", "recorded", result.policy or ""):
        table.add_column(title)
    for found in result.differences:
        table.add_row(str(found.line), found.target, str(found.tick), *_both(found))
    Console().print(table)


def _both(found: Difference) -> list[str]:
    return [
        f"{'hold' if said['width'] is None else said['width']} ({said['code']})"
        for said in (found.recorded, found.replayed)
    ]


def _scope(result: Replay) -> str:
    several = f"{len(result.targets)} targets, " if len(result.targets) > 1 else ""
    unobserved = f", {result.unobserved} ticks without a reading" if result.unobserved else ""
    starts = f"{result.starts} start{'s' * (result.starts != 1)}"
    return f" ({several}{starts}{unobserved})"


def _line(value: object) -> str:
    return json.dumps(value, allow_nan=False)
