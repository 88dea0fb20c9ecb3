"""``autoscaler tune``: searches a policy's parameters. Imported only when it is asked for."""

import json
import shlex
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from autoscaler import __version__, plugins, policy_file
from autoscaler.errors import ConfigError
from autoscaler.parameters import from_mapping
from autoscaler.policy_file import PolicyChoice
from autoscaler.sweeps import Journal, Workers
from autoscaler.tuning import cases, report, tuned_file
from autoscaler.tuning.goals import Goal
from autoscaler.tuning.search import Search
from autoscaler.tuning.space import Space

_SCENARIO_OPTIONS = (
    *("profile", "resize", "initial_width", "min_width", "max_width"),
    *("ttft_slo_s", "speed", "tick_s", "scrape_interval_s"),
)


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def tune(
    policy: Annotated[
        str,
        typer.Option(
            metavar="KIND|FILE",
            help="Where it starts: the kind's defaults, or a file's values, whose comments stay.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="TUNED.yaml", help="Is replaced.")],
    trace: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Tune on it; repeatable.")
    ] = None,
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE", help="Tune on it; repeatable.")
    ] = None,
    holdout_trace: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Judge by it; repeatable.")
    ] = None,
    holdout_scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE", help="Judge by it; repeatable.")
    ] = None,
    holdout_ratio: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=0.99,
            help="With none named to judge by: so many are drawn (of a single one its last third).",
        ),
    ] = 0.3,
    attainment: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Windows to be within the SLO.")
    ] = 0.99,
    max_reversals_per_hour: Annotated[
        float, typer.Option(min=0.0, help="Flap budget: changes of direction.")
    ] = 4.0,
    trials: Annotated[int, typer.Option(min=1, help="Parameters to play.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the search and of the draw.")] = 0,
    profile: Annotated[
        str | None, typer.Option(help="[default: the scenario's, or simulate's]")
    ] = None,
    resize: Annotated[str | None, typer.Option(help="[default: likewise]")] = None,
    initial_width: Annotated[int | None, typer.Option(help="[default: likewise]")] = None,
    min_width: Annotated[int | None, typer.Option(help="[default: likewise]")] = None,
    max_width: Annotated[int | None, typer.Option(help="[default: likewise]")] = None,
    ttft_slo_s: Annotated[float | None, typer.Option(help="[default: likewise]")] = None,
    speed: Annotated[float | None, typer.Option(help="[default: likewise]")] = None,
    tick_s: Annotated[float | None, typer.Option(help="[default: likewise]")] = None,
    scrape_interval_s: Annotated[float | None, typer.Option(help="[default: likewise]")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes. [default: one a core]")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Dask scheduler to compute on.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted search.")
    ] = False,
    output: Annotated[OutputFormat, typer.Option("--format")] = OutputFormat.TEXT,
) -> None:
    """Search a policy's parameters: least GPU-hours that keep the SLO without flapping.

    Judged on loads that the search does not see. The same seed gives the same file. Ctrl-C leaves
    the best so far, and beside it TUNED.trials.jsonl for --resume.

    Example: autoscaler tune --policy pid --scenario slow-drift --scenario spike --out pid.yaml
    """
    options = dict(locals())
    choice = _start(policy)
    space = Space(choice.kind, choice.params)
    common = {name: options[name] for name in _SCENARIO_OPTIONS}
    common["profile"] = [profile] if profile else None
    split = cases.split(
        cases.load(trace or (), scenario or (), common),
        cases.load(holdout_trace or (), holdout_scenario or (), common),
        holdout_ratio,
        seed,
    )
    for notice in dict.fromkeys(c.resize.notice for c in (*split.tuned, *split.held_out)):
        if notice is not None:
            typer.echo(f"note: {notice}", err=True)
    goal = Goal(attainment, max_reversals_per_hour)
    asked = report.Asked(choice.kind, split, goal, trials, seed, _command(options))
    journal = Journal(
        out.with_suffix(".trials.jsonl"),
        {
            "version": __version__,
            "policy": repr(choice),
            "cases": [case.identity() for case in split.tuned],
            "goal": asdict(goal),
            "seed": seed,
        },
        resume=resume,
    )
    search = Search(choice, space, split.tuned, goal, seed, Workers(jobs, cluster), journal)
    found = _searched(search, asked, Console(stderr=True))
    if found is None:
        journal.close(remove=True)
        raise typer.Abort
    best = search.best
    params = choice.params if best is None else best.params
    text = tuned_file.text(PolicyChoice(choice.name, choice.kind, params, choice.path), found)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out}: must be a writable file; {error.strerror}") from error
    journal.close(remove=not found["interrupted"])
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(found, allow_nan=False))
    else:
        report.show(found, Console())
    if found["interrupted"]:
        typer.echo(f"{out}: the best of {found['trials']} trials; --resume goes on", err=True)
        raise typer.Abort


def _start(policy: str) -> PolicyChoice:
    """A file's values; of a kind its defaults and not what is shipped, which may be tuned."""
    choice = policy_file.load(policy)
    if policy in plugins.names("policies"):
        params = from_mapping(plugins.find("policies", policy).Params, {}, f"policy {policy}")
        return PolicyChoice(policy, policy, params)
    return choice


def _searched(search: Search, asked: report.Asked, errors: Console) -> dict[str, Any] | None:
    """The document; None: interrupted before there was anything."""
    held_out = None
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("trials", total=asked.trials)
        try:
            search.run(asked.trials, lambda done: progress.update(task, completed=done))
            base, best = search.base, search.best
            if base is not None and best is not None:
                away = asked.split.held_out
                judged = [search.outcomes(trial.params, away) for trial in (base, best)]
                held_out = judged[0], judged[1]
        except KeyboardInterrupt:
            if search.best is None:
                return None
    return report.document(asked, search, held_out)


_OF_NO_CONSEQUENCE = ("jobs", "cluster", "resume", "output")


def _command(options: dict[str, Any]) -> str:
    """The command that does it again, with the file by its name alone: its place is no matter."""
    words = ["autoscaler", "tune"]
    for name, value in options.items():
        if value is not None and name not in _OF_NO_CONSEQUENCE:
            values = value if isinstance(value, list) else [value]
            for text in map(_written, values):
                words += ["--" + name.replace("_", "-"), text]
    return shlex.join(words)


def _written(value: Any) -> str:
    if isinstance(value, Path):
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)
