"""A simulation's results as a table that fits 80 columns."""

from typing import Any

from rich.console import Console
from rich.table import Table


def show(document: dict[str, Any], console: Console) -> None:
    """Print the scoreboard of an ``autoscaler.simulation/v1`` document."""
    trace, slo = document["trace"], document["slo"]
    names = document["profile"]
    console.print(
        f"{trace['requests']:,} requests in {trace['duration_s']:,.0f} s ({trace['format']}); mean "
        f"{trace['prompt_tokens'] / trace['requests']:,.0f} prompt, "
        f"{trace['output_tokens'] / trace['requests']:,.0f} output tokens",
        highlight=False,
    )
    console.print(
        f"SLO: p95 TTFT over {slo['window_s']:g} s within {slo['ttft_p95_s']:g} s; "
        f"a failure counts {slo['failure_penalty_s']:g} s",
        highlight=False,
    )
    for name in names if isinstance(names, list) else [names]:
        entries = [e for e in document["results"] if e["profile"] == name]
        console.print(_table(f"profile {name}, resize {document['resize']}", entries))
    marked = sorted({w for e in document["results"] for w in e["width"]["not_measured"]})
    if marked:
        widths = ", ".join(str(w) for w in marked)
        console.print(f"* not measured, computed from the widths beside it: {widths}")


def _table(title: str, entries: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in (
        "policy",
        "SLO ok",
        "TTFT p95",
        "ITL p50",
        "GPU-h",
        "width",
        "resizes",
        "failed",
    ):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    least = _cheapest_good(entries)
    for entry in entries:
        width, resizes = entry["width"], entry["resizes"]
        span = (
            f"{width['min']}-{width['max']}" if width["min"] < width["max"] else str(width["min"])
        )
        table.add_row(
            entry["policy"],
            f"{100 * entry['slo']['windows_ok_ratio']:.1f} %",
            _seconds(entry["ttft_s"]["p95"]),
            _milliseconds(entry["itl_s"]["p50"]),
            f"{entry['gpu_hours']:.2f}",
            span + ("*" if width["not_measured"] else ""),
            f"{resizes['up']} up {resizes['down']} down" if any(resizes.values()) else "-",
            str(entry["requests"]["failed"]),
            style="bold" if entry is least else None,
        )
    return table


def _cheapest_good(entries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The least GPU-hours among those that kept the SLO in 99 % of the windows."""
    good = [e for e in entries if e["slo"]["windows_ok_ratio"] >= 0.99]
    return min(good, key=lambda e: e["gpu_hours"]) if good else None


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.1f} ms"
