"""``autoscaler trace stats|convert|synth``: look at, convert, or make traces."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.errors import ConfigError

if TYPE_CHECKING:
    from autoscaler.traces import RateProfile, Trace, TraceStats

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at, convert, or make traces."
)


class OutputFormat(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


class Arrivals(StrEnum):
    """How synthetic arrivals vary around the rate."""

    POISSON = "poisson"
    GAMMA = "gamma"
    DETERMINISTIC = "deterministic"


Files = Annotated[
    list[Path], typer.Argument(metavar="TRACE...", help="Trace files; several are superimposed.")
]
TraceFormat = Annotated[
    str, typer.Option("--trace-format", metavar="NAME", help="auto, or a format's name.")
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Count and leave out bad rows, do not stop.")
]
Speed = Annotated[float, typer.Option(help="Divide arrival times by this.")]
StartS = Annotated[
    float | None, typer.Option(help="Leave out what arrives before this second of the trace.")
]
DurationS = Annotated[float | None, typer.Option(help="Take so many seconds of the trace.")]
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn at random.")]
RateScale = Annotated[float, typer.Option(help="Factor on the rates of a rate curve.")]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to print the result.")]
Out = Annotated[
    Path, typer.Option("--out", help="Ends with .jsonl, .jsonl.gz, .jsonl.zst or .parquet.")
]


@app.command("stats")
def stats_command(
    files: Files,
    trace_format: TraceFormat = "auto",
    skip_bad_rows: SkipBadRows = False,
    speed: Speed = 1.0,
    start_s: StartS = None,
    duration_s: DurationS = None,
    rate_scale: RateScale = 1.0,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
) -> None:
    """Summarise traces: requests, rates, burstiness, lengths.

    Example: autoscaler trace stats requests.jsonl --format json
    """
    trace = _load(files, trace_format, skip_bad_rows, speed, start_s, duration_s, rate_scale, seed)
    _report(trace, output, None)


@app.command("convert")
def convert_command(
    files: Files,
    out: Out,
    trace_format: TraceFormat = "auto",
    skip_bad_rows: SkipBadRows = False,
    speed: Speed = 1.0,
    start_s: StartS = None,
    duration_s: DurationS = None,
    rate_scale: RateScale = 1.0,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
) -> None:
    """Write traces of any format as one native trace.

    Example: autoscaler trace convert azure.csv.gz --out requests.jsonl.zst --duration-s 600
    """
    from autoscaler.traces import check_suffix

    check_suffix(out)
    trace = _load(files, trace_format, skip_bad_rows, speed, start_s, duration_s, rate_scale, seed)
    _write(trace, out)
    _report(trace, output, out)


@app.command("synth")
def synth_command(
    out: Out,
    rate: Annotated[
        str | None,
        typer.Option(help="Requests a second, constant: 8; or a linear ramp: 8:16."),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Rates and how long each holds, in seconds: 8x60,16x120.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(help="A rate curve file: start_s,arrival_rps.")
    ] = None,
    rate_scale: RateScale = 1.0,
    start_s: StartS = None,
    duration_s: Annotated[
        float | None, typer.Option(help="Seconds; of a curve, the seconds to take of it.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Exactly so many; a ramp then needs no duration.")
    ] = None,
    arrivals: Annotated[Arrivals, typer.Option(help="How arrivals vary.")] = Arrivals.POISSON,
    arrival_cv: Annotated[
        float | None, typer.Option(help="Of inter-arrival times, with --arrivals gamma.")
    ] = None,
    prompt_tokens: Annotated[float, typer.Option(help="Mean length of prompts.")] = 1024,
    prompt_cv: Annotated[float, typer.Option(help="0 constant, else lognormal.")] = 0,
    output_tokens: Annotated[float, typer.Option(help="Mean length of outputs.")] = 256,
    output_cv: Annotated[float, typer.Option(help="0 constant, else lognormal.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Cap of every length.")] = 131_072,
    lengths_from: Annotated[
        Path | None, typer.Option(help="Draw pairs of lengths from this trace instead.")
    ] = None,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
) -> None:
    """Make a trace: a rate that may vary in time, seeded arrivals, and lengths.

    Example: autoscaler trace synth --rate 8:16 --requests 11391 --arrivals deterministic --out
    ramp.jsonl
    """
    import numpy as np

    from autoscaler.traces import Lengths, check_suffix, load, synth

    check_suffix(out)
    if (arrivals is Arrivals.GAMMA) != (arrival_cv is not None):
        raise ConfigError("arrival_cv: must be given with --arrivals gamma, and only with it")
    profile = _profile(rate, steps, curve, rate_scale, start_s, duration_s, requests)
    cv = {Arrivals.POISSON: 1.0, Arrivals.DETERMINISTIC: 0.0}.get(arrivals, arrival_cv or 0.0)
    prompt = Lengths(prompt_tokens, prompt_cv, max_tokens)
    trace = synth(
        profile,
        np.random.default_rng(seed),
        cv=cv,
        requests=requests,
        prompt=prompt,
        output=Lengths(output_tokens, output_cv, max_tokens),
        lengths_of=None if lengths_from is None else load(lengths_from),
    )
    _write(trace, out)
    _report(trace, output, out)


def _profile(
    rate: str | None,
    steps: str | None,
    curve: Path | None,
    rate_scale: float,
    start_s: float | None,
    duration_s: float | None,
    requests: int | None,
) -> "RateProfile":
    from autoscaler.traces import RateProfile, load_curve

    if sum(given is not None for given in (rate, steps, curve)) != 1:
        raise ConfigError("rate: must be given by exactly one of --rate, --steps, --curve")
    if curve is not None:
        return load_curve(curve, scale=rate_scale).clipped(start_s or 0.0, duration_s)
    if start_s is not None or rate_scale != 1:
        raise ConfigError("start_s, rate_scale: must be given with --curve only")
    if steps is not None:
        if duration_s is not None:
            raise ConfigError("duration_s: must not be given with --steps, which has its own")
        return RateProfile.steps([_pair(part, "x", "steps") for part in steps.split(",")])
    text = rate or ""
    from_rps, to_rps = _pair(text if ":" in text else f"{text}:{text}", ":", "rate")
    if duration_s is None:
        return RateProfile.ramp(from_rps, to_rps, requests=requests)
    return RateProfile.ramp(from_rps, to_rps, duration_s=duration_s)


def _pair(text: str, separator: str, name: str) -> tuple[float, float]:
    left, _, right = text.partition(separator)
    try:
        return float(left), float(right)
    except ValueError as error:
        raise ConfigError(f"{name}: must be number{separator}number; got {text!r}") from error


def _load(
    files: list[Path],
    trace_format: str,
    skip_bad_rows: bool,
    speed: float,
    start_s: float | None,
    duration_s: float | None,
    rate_scale: float,
    seed: int,
) -> "Trace":
    from autoscaler.traces import load

    with _progress("reading") as on_progress:
        return load(
            files,
            format=trace_format,
            skip_bad_rows=skip_bad_rows,
            speed=speed,
            start_s=start_s,
            duration_s=duration_s,
            rate_scale=rate_scale,
            seed=seed,
            on_progress=on_progress,
        )


def _write(trace: "Trace", out: Path) -> None:
    from autoscaler.traces import write

    with _progress("writing") as on_progress:
        write(trace, out, lambda rows: on_progress(rows, trace.requests))


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, once and while it is a terminal; gone when done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _report(trace: "Trace", output: OutputFormat, out: Path | None) -> None:
    import dataclasses
    import json

    from autoscaler.traces import stats

    summary = stats(trace)
    if output is OutputFormat.JSON:
        written = {} if out is None else {"out": str(out)}
        typer.echo(json.dumps(dataclasses.asdict(summary) | written, allow_nan=False))
        return
    for notice in summary.notices:
        typer.echo(f"note: {notice}", err=True)
    if out is not None:
        typer.echo(f"wrote     {out}")
    _print(summary)


def _print(summary: "TraceStats") -> None:
    typer.echo(f"format    {summary.format}")
    typer.echo(f"requests  {summary.requests:,} in {summary.duration_s:,.3f} s")
    if summary.skipped_rows:
        typer.echo(f"left out  {summary.skipped_rows:,} rows")
    if summary.mean_rps is not None:
        typer.echo(
            f"rate      {summary.mean_rps:,.3f}/s mean; peaks {summary.peak_1s_rps:,.0f}/s in 1 s, "
            f"{summary.peak_30s_rps:,.2f}/s in 30 s, {summary.peak_60s_rps:,.2f}/s in 60 s"
        )
        typer.echo(
            f"gaps      CV {summary.inter_arrival_cv:.3f}, burstiness {summary.burstiness:.3f}"
        )
    for name, tokens in (("prompt", summary.prompt_tokens), ("output", summary.output_tokens)):
        typer.echo(
            f"{name}    mean {tokens.mean:,.1f}, p50 {tokens.p50:,.0f}, p95 {tokens.p95:,.0f}, "
            f"p99 {tokens.p99:,.0f}, max {tokens.max:,} tokens; {tokens.total:,} in all"
        )
    if summary.zero_output_requests:
        typer.echo(f"prefill   {summary.zero_output_requests:,} requests have no output")
