"""``autoscaler capture``: measures a running deployment."""

import asyncio
import datetime
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler import __version__
from autoscaler.clock import SystemClock, wall_s
from autoscaler.errors import ConfigError, ObservationError
from autoscaler.parameters import require_number, require_whole

if TYPE_CHECKING:
    from autoscaler.capture.cells import Cell, Load

_BOUND = re.compile(r"data_parallel_rank -1 is out of range \[0, (\d{1,4})\)")
_REFUSAL_BYTES = 64 * 1024  # an engine's own is 200 bytes
_USUAL_CONCURRENCY = "1,4,8,16,32,64"
_USUAL_OPEN_REQUESTS = 256


@dataclass(frozen=True, slots=True)
class _Plan:
    """Cells to measure: clients or arrival rates, in this order, with their numbers of requests."""

    closed: tuple[tuple[int, int], ...]
    opened: tuple[tuple[float, int], ...]

    @property
    def requests(self) -> int:
        return sum(n for _, n in (*self.closed, *self.opened))


def capture(
    url: Annotated[str, typer.Option(help="Of the deployment, http(s)://host:port.")],
    model: Annotated[str, typer.Option(help="Served model name.")],
    out: Annotated[Path, typer.Option(help="CSV to write; its provenance goes beside it.")],
    concurrency: Annotated[
        str | None,
        typer.Option(help=f"Clients of the closed loops. [default: {_USUAL_CONCURRENCY}]"),
    ] = None,
    rps: Annotated[
        str | None,
        typer.Option(help="Poisson arrivals/s of open loops, comma-separated. [default: none]"),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Of every request.")] = 1024,
    output_tokens: Annotated[int, typer.Option(help="Of every request.")] = 256,
    requests: Annotated[
        int | None,
        typer.Option(help="A cell. [default: 32 to 128 by concurrency; 256 open loop]"),
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Present width. [default: asked of the engine]")
    ] = None,
    gpus_per_width: Annotated[
        int | None, typer.Option(help="GPUs of one rank. [default: the table says none]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration whose target is resized, with --widths.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Its target. [default: the only one]")] = None,
    widths: Annotated[
        str | None, typer.Option(help="Measure at each in turn, as 2,4; asks before it resizes.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Resize without asking.")] = False,
    timeout_s: Annotated[float, typer.Option(help="Limit of a request.")] = 600.0,
    api_key_file: Annotated[Path | None, typer.Option(help="Holds the API key.")] = None,
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals.")] = 0,
) -> None:
    """Measure a running deployment with streaming requests, for calibrate.

    Example: autoscaler capture --url http://localhost:8000 --model chat --out chat.csv
    """
    from rich.console import Console
    from rich.progress import Progress

    from autoscaler.capture import cells, table
    from autoscaler.capture.cells import Cell

    require_whole("width", width, 1)
    require_whole("gpus_per_width", gpus_per_width, 1)
    require_whole("requests", requests, 1)
    if concurrency is None and rps is None:
        concurrency = _USUAL_CONCURRENCY
    plan = _Plan(
        tuple(
            (c, requests or cells.usual_requests(c)) for c in _wholes("concurrency", concurrency)
        ),
        tuple((r, requests or _USUAL_OPEN_REQUESTS) for r in _numbers("rps", rps)),
    )
    key = _secret(api_key_file)
    load = cells.Load(url, model, prompt_tokens, output_tokens, timeout_s, seed, key)
    errors = Console(stderr=True)
    measured: list[tuple[int, Cell]] = []
    at_each = _wholes("widths", widths)
    for brought in _brought(config, target, at_each, yes):
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task("measuring", total=plan.requests)
            found, present = asyncio.run(
                _measure(load, plan, brought or width, lambda: progress.advance(task))  # noqa: B023  # called within
            )
        measured += [(present, cell) for cell in found]
    begun = datetime.datetime.fromtimestamp(wall_s(), datetime.UTC)
    provenance = {
        "program": f"autoscaler {__version__} capture",
        "url": url,
        "model": model,
        "finished": begun.isoformat(timespec="seconds"),
        "widths": list(dict.fromkeys(at for at, _ in measured)),
        "width_from": "the engine" if width is None and widths is None else "the command line",
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "prompts": "random token ids, ignore_eos",
        "seed": seed,
    }
    deployment = table.Deployment(gpus_per_width, prompt_tokens, output_tokens)
    for path in table.write(out, measured, deployment, provenance):
        typer.echo(path)
    failed = sum(cell.failed for _, cell in measured)
    if failed:
        raise ObservationError(
            f"{failed} of {plan.requests * len(at_each or [1])} requests failed; "
            "the table leaves them out"
        )


def _brought(
    config: Path | None, name: str | None, widths: list[int], yes: bool
) -> "Iterator[int | None]":
    """Each width in turn, once the deployment is at it; a single None: as it is."""
    if not widths:
        yield None
        return
    if config is None:
        raise ConfigError("config: must be given with widths; got nothing")
    from autoscaler import settings
    from autoscaler.capture.widths import reach

    found = {t.name: t for t in settings.load(config, os.environ).targets}
    if (name is None and len(found) > 1) or (name is not None and name not in found):
        raise ConfigError(f"target: must be one of {', '.join(found)}; got {name!r}")
    choice = found[name or next(iter(found))].target
    target = choice.module.build(choice.params)
    for width in widths:
        present = target.read().desired
        if present != width and not yes:
            typer.confirm(f"resize from {present} to {width}?", abort=True, err=True)
        reach(target, width, SystemClock())
        yield width


async def _measure(
    load: "Load", plan: _Plan, width: int | None, on_done: Callable[[], None]
) -> "tuple[list[Cell], int]":
    from autoscaler.capture import cells

    clock = SystemClock()
    present = await _present_width(load) if width is None else width
    await cells.warm_up(load, clock)
    measured = [await cells.closed_loop(load, c, n, clock, on_done) for c, n in plan.closed]
    measured += [await cells.open_loop(load, r, n, clock, on_done) for r, n in plan.opened]
    return measured, present


async def _present_width(load: "Load") -> int:
    """What a refused rank of -1 gives away."""
    import aiohttp

    body = {"model": load.model, "prompt": "Hello", "max_tokens": 1}
    headers = {"X-data-parallel-rank": "-1"}
    if load.api_key:
        headers["Authorization"] = f"Bearer {load.api_key}"
    timeout = aiohttp.ClientTimeout(total=min(load.timeout_s, 30.0))
    address = load.url.rstrip("/") + "/v1/completions"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(address, json=body, headers=headers, allow_redirects=False) as response,
        ):
            answer = await response.content.read(_REFUSAL_BYTES)
            found = _BOUND.search(answer.decode("utf-8", "replace"))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ObservationError(f"{address}: no answer: {type(error).__name__}") from error
    if found is None:
        raise ConfigError("width: must be given, the deployment does not tell; got nothing")
    return int(found.group(1))


def _numbers(key: str, text: str | None) -> list[float]:
    values = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        try:
            value = float(part)
        except ValueError as error:
            raise ConfigError(
                f"{key}: must be numbers with commas between; got {text!r}"
            ) from error
        require_number(key, value, 0, above=True)
        values.append(value)
    return values


def _wholes(key: str, text: str | None) -> list[int]:
    values = _numbers(key, text)
    for value in values:
        if value != int(value):
            raise ConfigError(f"{key}: must be whole numbers; got {text!r}")
    return [int(value) for value in values]


def _secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"api_key_file: {path}: must be a readable file") from error
