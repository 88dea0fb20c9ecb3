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
    for entry in document["results"]:
        if "oracle" in entry:
            console.print(_oracle(entry), highlight=False)
    marked = sorted({w for e in document["results"] for w in e["width"]["not_measured"]})
    if marked:
        widths = ", ".join(str(w) for w in marked)
        console.print(f"* not measured, computed from the widths beside it: {widths}")


def _oracle(entry: dict[str, Any]) -> str:
    """What the oracle found, and how far from the best it may be."""
    oracle = entry["oracle"]
    bound_h, busy_h = oracle["lower_bound_gpu_hours"], oracle["busy_bound_gpu_hours"]
    found = f"oracle, {entry['profile']}: "
    if oracle["proven_infeasible"]:
        return found + "no schedule can keep the SLO, at times the largest width is too small."
    if oracle["slo_infeasible"]:
        return found + "found no schedule that keeps the SLO; this one misses least."
    return found + (
        f"at least {bound_h:.2f} GPU-h for anyone who keeps the SLO in all windows; "
        f"{busy_h:.2f} at the engine's speed with a full queue, and resizes for nothing."
    )


_HEADINGS = ("SLO %", "TTFT s", "ITL ms", "GPU-h", "oracle", "width", "resizes", "failed")
"""Share of good windows, p95, p50, GPU-hours, these over the oracle's, widths served, up/down."""


def _table(title: str, entries: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("policy")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right")
    least = _cheapest_good(entries)
    for entry in entries:
        width, resizes = entry["width"], entry["resizes"]
        span = (
            f"{width['min']}-{width['max']}" if width["min"] < width["max"] else str(width["min"])
        )
        table.add_row(
            entry["policy"],
            f"{100 * entry['slo']['windows_ok_ratio']:.1f}",
            _number(entry["ttft_s"]["p95"], 1.0, 2),
            _number(entry["itl_s"]["p50"], 1e3, 1),
            f"{entry['gpu_hours']:.2f}",
            _number(entry["oracle_gpu_hours_ratio"], 1.0, 2),
            span + ("*" if width["not_measured"] else ""),
            f"{resizes['up']}/{resizes['down']}" if any(resizes.values()) else "-",
            str(entry["requests"]["failed"]),
            style="bold" if entry is least else None,
        )
    return table


def _cheapest_good(entries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The least GPU-hours among those that kept the SLO in 99 % of the windows."""
    good = [e for e in entries if e["slo"]["windows_ok_ratio"] >= 0.99]
    return min(good, key=lambda e: e["gpu_hours"]) if good else None


def _number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{factor * value:.{digits}f}"
