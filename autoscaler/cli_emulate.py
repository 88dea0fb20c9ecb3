"""``autoscaler emulate``: the simulated fleet behind HTTP."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.errors import ConfigError
from autoscaler.parameters import require_whole

if TYPE_CHECKING:
    from autoscaler.emulator.server import Options
    from autoscaler.engine.fleet import Load


def emulate(
    profile: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Width profile.")
    ] = "h100-dsv2lite-elastic-ep-rdma",
    width: Annotated[int, typer.Option(help="First width.")] = 2,
    resize: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Course of a resize.")
    ] = "vllm-0.25-measured",
    vllm_version: Annotated[
        str, typer.Option(metavar="0.25|0.30|0.33", help="Whose manners.")
    ] = "0.25",
    min_width: Annotated[
        int | None, typer.Option(help="[default: the profile's, not below 2]")
    ] = None,
    max_width: Annotated[int | None, typer.Option(help="[default: the profile's largest]")] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Permit widths beyond those of the profile.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8000,
    model: Annotated[str, typer.Option(help="Served model name.")] = "emulated",
    time_scale: Annotated[float, typer.Option(help="Simulated seconds a real second.")] = 1.0,
    trace: Annotated[
        list[Path] | None, typer.Option(help="Built-in load; several are superimposed.")
    ] = None,
    speed: Annotated[float, typer.Option(help="Divide the trace's arrival times by this.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    resize_fault: Annotated[
        str,
        typer.Option(
            metavar="refuse|fail_commit|wedge|hang|lose_answer", help="What the first resize does."
        ),
    ] = "",
    metrics_delay_s: Annotated[float, typer.Option(help="How slow /metrics is.")] = 0.0,
    probe_failure_ratio: Annotated[
        float, typer.Option(help="Share of completions with a chosen rank that fail.")
    ] = 0.0,
) -> None:
    """Serve a simulated fleet over HTTP, named and behaving like the engine. Ends on Ctrl-C.

    Faults can be set while it runs, as JSON at /_emulator/faults; /_emulator/state tells the truth.

    Example: autoscaler emulate --profile h100-dsv2lite-elastic-ep-rdma --width 2 --time-scale 10
    """
    from autoscaler import profiles
    from autoscaler.emulator.faults import Faults
    from autoscaler.emulator.server import Options, warm_up
    from autoscaler.wiring.simulated import resize_model

    require_whole("port", port, 0, 65535)
    options = Options(
        profile=profiles.load(profile),
        resize=resize_model(resize),
        width=width,
        min_width=min_width,
        max_width=max_width,
        version=vllm_version,
        model=model,
        time_scale=time_scale,
        trace=_built_in(trace, speed, seed),
        seed=seed,
        extrapolate=extrapolate,
        faults=Faults(
            resize=resize_fault,
            metrics_delay_s=metrics_delay_s,
            probe_failure_ratio=probe_failure_ratio,
        ),
    )
    warm_up()
    asyncio.run(_serve(options, host, port))


async def _serve(options: "Options", host: str, port: int) -> None:
    from autoscaler.emulator.server import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(options, host, port, lambda url: typer.echo(url), stop)


def _built_in(paths: list[Path] | None, speed: float, seed: int) -> "Load | None":
    if not paths:
        if speed != 1.0:
            raise ConfigError(f"speed: must be given with a trace only; got {speed:g}")
        return None
    from autoscaler.engine.fleet import Load
    from autoscaler.traces import load

    trace = load([str(path) for path in paths], speed=speed, seed=seed)
    for notice in trace.notices:
        typer.echo(f"note: {notice}", err=True)
    return Load(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
