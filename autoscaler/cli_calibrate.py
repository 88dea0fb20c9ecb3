"""``autoscaler calibrate``: benchmark tables in, a profile out."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


class Layout(StrEnum):
    """What the width of the deployment means."""

    ELASTIC_EP = "elastic_ep"
    EXTERNAL_DP = "external_dp"
    WIDE_TP = "wide_tp"


def calibrate(
    captures: Annotated[
        list[Path],
        typer.Option(
            "--captures", metavar="FILE", help="Benchmark table, CSV or JSON; may be repeated."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="PROFILE.yaml", help="Is replaced.")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="Further tables.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the profile; default: the stem of --out.")
    ] = None,
    layout: Annotated[Layout, typer.Option(help="What the width means.")] = Layout.ELASTIC_EP,
    slots: Annotated[
        int, typer.Option(min=1, help="Requests in execution a rank (max-num-seqs).")
    ] = 16,
    tp: Annotated[int, typer.Option(min=1, help="GPUs a unit of width.")] = 1,
    token_budget: Annotated[
        int, typer.Option(min=1, help="Tokens a rank and step (max-num-batched-tokens).")
    ] = 8192,
    width: Annotated[
        int | None, typer.Option(min=1, help="Of cells that do not state their own.")
    ] = None,
    early_stops: Annotated[
        bool,
        typer.Option(
            "--early-stops/--ignore-eos",
            help="Whether outputs may end before their cap; as the benchmark was run.",
        ),
    ] = True,
    async_scheduling: Annotated[
        bool,
        typer.Option(
            "--async-scheduling/--no-async-scheduling",
            help="Whether the engine schedules a step ahead; try both, keep the better fit.",
        ),
    ] = False,
    waiting_weight: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Running requests that a waiting one counts for in the dispatcher (vLLM's code "
            "says 4; the H100 tables say 1).",
        ),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws of output lengths.")] = 0,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="How to print the result.")
    ] = OutputFormat.TEXT,
) -> None:
    """Fit a width profile to benchmark tables and print measured, fitted and error a cell.

    Each cell is simulated in closed loop, many times over as the output lengths are not known,
    and the step costs are searched that explain all cells best. The profile says how well.

    Example: autoscaler calibrate --captures rdma.csv --tp 2 --slots 16 --out profile.yaml
    """
    import json

    from rich.console import Console
    from rich.progress import Progress

    from autoscaler import profiles
    from autoscaler.calibrate import captures as reader
    from autoscaler.calibrate import report, tables
    from autoscaler.errors import ConfigError

    paths = [*captures, *(more or [])]
    cells = [cell for path in paths for cell in reader.read(path, width=width, tp=tp)]
    if not out.parent.is_dir():
        raise ConfigError(f"--out: its folder must exist; got {str(out)!r}")
    base = tables.unfitted(
        name or out.stem,
        layout.value,
        f"Fitted by autoscaler calibrate to {', '.join(p.name for p in paths)}.",
        tp=1 if layout is Layout.WIDE_TP else tp,
        slots_per_rank=slots,
        token_budget=token_budget,
        schedule_ahead=async_scheduling,
        waiting_weight=waiting_weight,
    )
    effort = tables.Effort(seed=seed)
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        fitting = progress.add_task("fitting", total=tables.evaluations(effort, cells))
        fit = tables.fit(
            cells,
            base,
            early_stops=early_stops,
            effort=effort,
            progress=lambda done: progress.update(fitting, completed=done),
        )
    comparisons = report.compare(cells, fit.profile, fit.workload, draws=effort.judged_draws)
    profile = report.described(fit, comparisons, [p.name for p in paths])
    profiles.write(profile, out, header="Written by `autoscaler calibrate`.")
    if output_format is OutputFormat.JSON:
        result = {
            "schema": "autoscaler.calibration/v1",
            "profile": profile.name,
            "out": str(out),
            "captures": [str(p) for p in paths],
            "summary": report.summary(comparisons),
            "cells": [c.to_dict() for c in comparisons],
        }
        typer.echo(json.dumps(result, indent=1, allow_nan=False))
    else:
        typer.echo(report.text(comparisons))
        typer.echo(f"\nwritten to {out}")
