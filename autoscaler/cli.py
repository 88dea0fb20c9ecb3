"""The commands. No logic; heavy imports happen inside the command that needs them."""

import gc
import importlib
import sys
from typing import Annotated, Any

import typer

from autoscaler import __version__
from autoscaler.errors import AutoscalerError, ConfigError, TraceError
from autoscaler.redaction import plain

_COMMANDS = {
    "run": ("cli_run", "Steer real deployments until told to stop."),
    "replay": ("cli_replay", "Decide recorded observations again."),
    "check": ("cli_check", "Look at everything that a run depends on, before it."),
    "simulate": ("cli_simulate", "Replay a trace through policies and print a scoreboard."),
    "scoreboard": ("cli_scoreboard", "Play all scenarios: a table and a picture."),
    "tune": ("cli_tune", "Search a policy's parameters by simulation."),
    "demo": ("cli_demo", "Run the live loop against an emulated engine on this machine."),
    "calibrate": ("cli_calibrate", "Fit a width profile from benchmark tables."),
    "capture": ("cli_capture", "Measure a running deployment with streaming requests."),
    "emulate": ("cli_emulate", "Serve a simulated fleet over HTTP, behaving like the engine."),
    "trace": ("cli_trace", "Look at, convert, or make traces."),
}
"""Command: the module with the function (or the ``app``) of that name, and what help lists.

The module is imported when the command is asked for: numba, Polars and the Kubernetes client take
seconds to import, and ``--help`` needs none of them.
"""


class _Lazy(typer.core.TyperGroup):
    """A group that imports a command's module only when that command is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted([*super().list_commands(ctx), *_COMMANDS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        # What numba and Polars make while they are imported stays: looking through it for garbage
        # again and again takes a tenth of a second.
        gc.disable()
        try:
            module = importlib.import_module(f"autoscaler.{_COMMANDS[cmd_name][0]}")
        finally:
            gc.enable()
            gc.freeze()
        command = getattr(module, "app", None)
        if command is None:
            command = typer.Typer(
                rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False
            )
            command.command(cmd_name)(getattr(module, cmd_name))
        return typer.main.get_command(command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing any."""
        rows = []
        for name in self.list_commands(ctx):
            own = super().get_command(ctx, name)
            rows.append((name, _COMMANDS[name][1] if own is None else own.get_short_help_str(60)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


app = typer.Typer(
    cls=_Lazy,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Decides the width of elastic expert-parallel LLM deployments from their SLO.",
)


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
    typer.echo(f"autoscaler: {plain(message)}", err=True)
    sys.exit(code)
