"""The commands. No logic; heavy imports happen inside the command that needs them."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from autoscaler import __version__, cli_trace
from autoscaler.errors import AutoscalerError, ConfigError, TraceError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Decides the width of elastic expert-parallel LLM deployments from their SLO.",
)
app.add_typer(cli_trace.app, name="trace")


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


@app.command()
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
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Replay a trace through one or several policies and print a scoreboard.

    Example: autoscaler simulate --trace requests.jsonl --policy threshold --policy static:4
    """
    from autoscaler import cli_simulate

    options = {name: value for name, value in locals().items() if name != "cli_simulate"}
    for name in ("scenario", "output", "decisions", "jobs"):
        del options[name]
    options["trace"] = [str(path) for path in trace or ()]
    # Off is what a flag says when it is not there: a scenario file may still switch it on.
    options["skip_bad_rows"] = skip_bad_rows or None
    options["extrapolate"] = extrapolate or None
    cli_simulate.run(options, scenario, output.value, decisions, jobs)


@app.command()
def run(
    config: Annotated[
        Path, typer.Option(help="YAML file; AUTOSCALER_... in the environment has precedence.")
    ],
    once: Annotated[bool, typer.Option("--once", help="One tick a target, then exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, record and export; never write.")
    ] = False,
) -> int:
    """Steer real deployments until told to stop.

    Example: autoscaler run --config autoscaler.yaml --dry-run
    """
    from autoscaler import cli_run

    return cli_run.run(config, once=once, dry_run=dry_run)


@app.command()
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
    from autoscaler import cli_replay

    return cli_replay.run(decisions, policy, output.value)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the program: exit codes 0 done, 1 failed while running, 2 unusable input."""
    command = typer.main.get_command(app)
    try:
        status: Any = command.main(arguments, prog_name="autoscaler", standalone_mode=False)
    except (ConfigError, TraceError) as error:
        _fail(str(error), 2)
    except AutoscalerError as error:
        _fail(str(error), 1)
    except typer.Abort:
        _fail("interrupted", 1)
    except Exception as error:
        if not hasattr(error, "show") or not hasattr(error, "exit_code"):
            raise
        error.show()  # click's own usage errors know how to say what is wrong
        sys.exit(error.exit_code)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, code: int) -> None:
    typer.echo(f"autoscaler: {message}", err=True)
    sys.exit(code)
