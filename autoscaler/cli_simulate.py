"""``autoscaler simulate``: reads, runs, prints. Imported only when it is asked for."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from autoscaler import scenario as scenarios
from autoscaler import scoreboard
from autoscaler.engine.loop import advance
from autoscaler.errors import ConfigError
from autoscaler.sweeps import Workers
from autoscaler.wiring import simulated


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def simulate(
    trace: Annotated[
        list[Path] | None,
        typer.Option(help="Trace file, gz and zst too; several are superimposed."),
    ] = None,
    trace_format: Annotated[
        str | None, typer.Option(metavar="auto|NAME", help="[default: auto]")
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count and leave out bad rows, do not stop.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND|FILE",
            help="Policy, or static:4; repeatable. [default: all shipped, and each static width]",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Width profile; repeatable. [default: h100-dsv2lite-elastic-ep-rdma]",
        ),
    ] = None,
    resize: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Cost of a resize. [default: gpustack-rdma]"),
    ] = None,
    initial_width: Annotated[int | None, typer.Option(help="[default: --min-width]")] = None,
    min_width: Annotated[int | None, typer.Option(help="[default: the profile's least]")] = None,
    max_width: Annotated[int | None, typer.Option(help="[default: the profile's largest]")] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Permit widths beyond those of the profile.")
    ] = False,
    ttft_slo_s: Annotated[float | None, typer.Option(help="p95 TTFT. [default: 5]")] = None,
    itl_slo_s: Annotated[float | None, typer.Option(help="p95 ITL. [default: none]")] = None,
    window_s: Annotated[float | None, typer.Option(help="Rolling window. [default: 30]")] = None,
    failure_penalty_s: Annotated[
        float | None, typer.Option(help="TTFT that a failure counts as. [default: 30]")
    ] = None,
    tick_s: Annotated[float | None, typer.Option(help="Control period. [default: 5]")] = None,
    scrape_interval_s: Annotated[float | None, typer.Option(help="[default: 5]")] = None,
    speed: Annotated[
        float | None, typer.Option(help="Divide arrival times by this. [default: 1]")
    ] = None,
    start_s: Annotated[float | None, typer.Option(help="Leave out what arrives before.")] = None,
    duration_s: Annotated[float | None, typer.Option(help="Play so much of the trace.")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 0]")] = None,
    scenario: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="All of these in one YAML file; flags win."),
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format")] = OutputFormat.TEXT,
    decisions: Annotated[
        Path | None, typer.Option(help="Write every decision to this JSONL file.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one a core, if it is worth it]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Dask scheduler to compute on.")
    ] = None,
) -> None:
    """Replay a trace through one or several policies and print a scoreboard.

    Example: autoscaler simulate --trace requests.jsonl --policy threshold --policy static:4
    """
    options = dict(locals())
    for name in ("scenario", "output", "decisions", "jobs", "cluster"):
        del options[name]
    options["trace"] = [str(path) for path in trace or ()]
    # Off is what a flag says when it is not there: a scenario file may still switch it on.
    options["skip_bad_rows"] = skip_bad_rows or None
    options["extrapolate"] = extrapolate or None
    _run(options, scenario, output.value, decisions, Workers(jobs, cluster))


def _run(
    options: Mapping[str, Any],
    scenario_file: str | None,
    output: str,
    decisions: Path | None,
    workers: Workers,
) -> None:
    """Run the command.

    Args:
        options: fields of ``Scenario`` that were given as flags; None: not given.
        scenario_file: name or file; None: flags alone.
        output: text | json.
        decisions: decision log to write; None: none.
        workers: who plays.

    Raises:
        AutoscalerError: unusable options or files.
    """
    scenario = scenarios.load(scenario_file, options)
    errors = Console(stderr=True)
    if not _compiled():
        errors.print("compiling the engine, once after installation: about 20 s", highlight=False)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        reading = progress.add_task("reading", total=None)
        trace = simulated.load_trace(
            scenario, lambda done, total: progress.update(reading, completed=done, total=total)
        )
        for notice in filter(
            None, (*trace.notices, simulated.resize_model(scenario.resize).notice)
        ):
            errors.print(f"note: {notice}", highlight=False)
        playing = progress.add_task("simulating", total=None)
        with _writing(decisions) as stream:
            document = simulated.simulate(
                scenario,
                trace,
                workers=workers,
                decisions=stream,
                on_done=lambda done, total: progress.update(playing, completed=done, total=total),
            )
    if output == "json":
        typer.echo(json.dumps(document, allow_nan=False))
    else:
        scoreboard.show(document, Console())


def _writing(path: Path | None) -> Any:
    if path is None:
        return nullcontext()
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: must be a writable file; {error.strerror}") from error


def _compiled() -> bool:
    """Whether machine code of the engine is in the cache, so that a first call need not compile."""
    return any(Path(str(advance.stats.cache_path)).glob("loop.advance-*.nbi"))
