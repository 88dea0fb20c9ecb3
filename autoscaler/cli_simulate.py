"""``autoscaler simulate``: reads, runs, prints. Imported only when it is asked for."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from autoscaler import scenario as scenarios
from autoscaler import scoreboard
from autoscaler.engine.loop import advance
from autoscaler.errors import ConfigError
from autoscaler.wiring import simulated


def run(
    options: Mapping[str, Any],
    scenario_file: str | None,
    output: str,
    decisions: Path | None,
    jobs: int,
) -> None:
    """Run the command.

    Args:
        options: fields of ``Scenario`` that were given as flags; None: not given.
        scenario_file: name or file; None: flags alone.
        output: text | json.
        decisions: decision log to write; None: none.
        jobs: processes.

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
        for notice in trace.notices:
            errors.print(f"note: {notice}", highlight=False)
        playing = progress.add_task("simulating", total=None)
        with _writing(decisions) as stream:
            document = simulated.simulate(
                scenario,
                trace,
                jobs=jobs,
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
