"""``autoscaler demo``: a live run with a live view, and what happened and why. Lazily imported."""

import sys
from collections import deque
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler import shipped
from autoscaler.model import Signal
from autoscaler.wiring.demo import TICK_S, Change, Demo, Moment, Stage, changes, staged

_BARS = "▁▂▃▄▅▆▇█"


def demo(
    policy: Annotated[str, typer.Option(metavar="KIND|FILE", help="Who decides.")] = "threshold",
    time_scale: Annotated[
        float, typer.Option(help="Emulated seconds a real second, 1 to 60.")
    ] = 15.0,
    duration_s: Annotated[float, typer.Option(help="Emulated seconds.")] = 720.0,
    trace: Annotated[
        Path | None, typer.Option(help="Load. [default: a shipped hour of Azure's]")
    ] = None,
    speed: Annotated[float, typer.Option(help="Divide the trace's arrival times by this.")] = 2.2,
) -> None:
    """Run the live loop on this machine: an emulated engine on loopback HTTP, a real trace.

    Example: autoscaler demo --policy threshold --time-scale 15
    """
    path = shipped.sample("AzureLLMInferenceTrace_conv.csv") if trace is None else trace
    _run(Demo(str(path), speed=speed, policy=policy, time_scale=time_scale, duration_s=duration_s))


def _run(demo: Demo) -> None:
    """Run the demo until its end or Ctrl-C, then tell the story."""
    console = Console()
    view = _View(demo, console)
    with staged(demo, view.tick) as stage:
        console.print(f"engine   {stage.url} (emulated: {demo.profile}, {demo.resize})")
        console.print(f"load     {demo.trace}, {demo.speed:g} times as fast")
        console.print(
            f"time     {demo.time_scale:g} emulated seconds a second, "
            f"{demo.duration_s / demo.time_scale:.0f} s in all; Ctrl-C ends it"
        )
        until_s = stage.clock.now_s() + demo.duration_s
        with Live(console=console, auto_refresh=False, transient=True) as live:
            view.live = live
            try:
                stage.loop.run(until_s=until_s)
            except KeyboardInterrupt:
                stage.stop()
        _tell(stage, demo, console)


class _View:
    """Shows each tick: a panel on a terminal, a line at each change elsewhere."""

    def __init__(self, demo: Demo, console: Console) -> None:
        self.live: Live | None = None
        self._demo = demo
        self._console = console
        self._ttft = deque[float | None](maxlen=60)
        self._width = deque[float | None](maxlen=60)
        self._said = ""

    def tick(self, moment: Moment) -> None:
        """Take one tick in."""
        metrics = None if moment.obs is None else moment.obs.metrics
        self._ttft.append(None if metrics is None else metrics.ttft_p95_s.at_least)
        self._width.append(None if moment.obs is None else moment.obs.width.effective)
        if self.live is not None and self._console.is_terminal:
            self.live.update(self._panel(moment), refresh=True)
            return
        said = moment.decision.code
        if said != self._said or moment.decision.width is not None:
            self._said = said
            width = "" if moment.decision.width is None else f" -> width {moment.decision.width}"
            self._console.print(
                f"{moment.at_s:5.0f} s  {said}{width}: {moment.decision.reason}", highlight=False
            )

    def _panel(self, moment: Moment) -> Table:
        table = Table.grid(padding=(0, 2))
        obs = moment.obs
        table.add_row("at", f"{moment.at_s:.0f} of {self._demo.duration_s:.0f} s")
        if obs is not None:
            metrics, width = obs.metrics, obs.width
            effective = "unproven" if width.effective is None else str(width.effective)
            table.add_row("width", f"{effective}, desired {width.desired}", _spark(self._width))
            table.add_row("p95 TTFT", _value(metrics.ttft_p95_s, "s"), _spark(self._ttft))
            table.add_row("queue", _value(metrics.queue_depth, ""))
            table.add_row("arrivals", _value(metrics.arrival_rps, "/s"))
        table.add_row("decision", Text(f"{moment.decision.code}: {moment.decision.reason}"))
        return table


def _value(signal: Signal, unit: str) -> str:
    if signal.value is not None:
        return f"{signal.value:.2f} {unit}".rstrip()
    return f"unknown: {signal.status.value}"


def _spark(values: "deque[float | None]") -> str:
    known = [value for value in values if value is not None]
    top = max(known, default=0.0) or 1.0
    return "".join(
        " " if value is None else _BARS[min(int(value / top * 7.999), 7)] for value in values
    )


def _tell(stage: Stage, demo: Demo, console: Console) -> None:
    """What happened and why."""
    moments = stage.story.moments
    if not moments:
        console.print("ended before the first tick")
        return
    console.print(f"\nafter {moments[-1].at_s:.0f} emulated seconds:", highlight=False)
    told = changes(stage.story)
    for change in told:
        console.print(_sentence(change), highlight=False)
    if not told:
        console.print("the width was never changed", highlight=False)
    values = [m.obs.metrics.ttft_p95_s.value for m in moments if m.obs is not None]
    known = [value for value in values if value is not None]
    within = sum(value <= stage.slo.ttft_p95_s for value in known)
    console.print(
        f"p95 TTFT within {stage.slo.ttft_p95_s:g} s in {within} of {len(known)} ticks that knew "
        f"it, worst {max(known, default=0.0):.1f} s; {len(moments) - len(known)} ticks did not",
        highlight=False,
    )
    gpu_s = sum(
        TICK_S * max(m.obs.width.desired, m.obs.width.present) * m.obs.capabilities.gpus_per_width
        for m in moments
        if m.obs is not None
    )
    widest = demo.max_width * moments[-1].at_s / 3600
    console.print(f"{gpu_s / 3600:.2f} GPU-hours; always at {demo.max_width}: {widest:.2f}")
    if stage.loop.errors:
        console.print(f"errors: {dict(stage.loop.errors)}", highlight=False)
    sys.stdout.flush()


def _sentence(change: Change) -> str:
    head = f"{change.at_s:5.0f} s  {change.from_width} -> {change.to_width}: {change.reason}"
    if change.result != "applied":
        return f"{head}; {change.result}"
    if change.proven_at_s is None:
        return f"{head}; not proven by the end"
    took_s = change.proven_at_s - change.at_s
    return f"{head}; a token on every rank proved it {took_s:.0f} s later"
