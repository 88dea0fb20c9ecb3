"""Draws one panel from its answers, near enough to how Grafana does."""

import html
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

from monitoring.answers import Asked, Window

_PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0")
_COLOURS = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "red": "#f2495c",
    "blue": "#5794f2",
    "text": "#9fa7b3",
    "orange": "#ff9830",
    "purple": "#b877d9",
    "super-light-blue": "#c0d8ff",
}
_UNITS = {"s": " s", "reqps": " req/s"}
_ROW_PX = 34
_TICKS = {"percentunit": ".0%"}


def draw(
    panel: Mapping[str, Any], answers: Sequence[Asked], marks: Sequence[Asked], window: Window
) -> str:
    """A panel's inside as HTML.

    Args:
        panel: its JSON.
        answers: to its queries.
        marks: the dashboard's annotations.
        window: the time range.
    """
    if not any(asked.values for asked in answers):
        return "<p class=empty>No data</p>"
    match panel["type"]:
        case "stat":
            return _numbers(panel, answers)
        case "table":
            return _table(panel, answers)
        case "state-timeline":
            return _html(_timeline(panel, answers, window), panel)
        case _:
            return _html(_lines(panel, answers, marks, window), panel)


def text(value: float, unit: str, decimals: int | None = None) -> str:
    """A value for people."""
    if unit == "percentunit":
        return f"{100 * value:.{2 if decimals is None else decimals}f} %"
    if decimals is None:
        decimals = 0 if value == int(value) else 2
    return f"{value:.{decimals}f}{_UNITS.get(unit, '')}"


def _numbers(panel: Mapping[str, Any], answers: Sequence[Asked]) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    shown = []
    for asked in answers:
        for series in asked.series:
            value = series.points[-1][1]
            if value != value:
                continue
            colour = "blue"
            for step in defaults["thresholds"]["steps"]:
                if step["value"] is None or value >= step["value"]:
                    colour = step["color"]
            words = text(value, defaults["unit"], defaults.get("decimals"))
            name = series.named(asked.legend)
            if panel["options"]["textMode"] == "name":
                words, name = name, ""
            elif panel["options"]["textMode"] == "value":
                name = ""
            shown.append(
                f'<div><div class=number style="color: {_COLOURS[colour]}">{html.escape(words)}'
                f"</div>{html.escape(name)}</div>"
            )
    return f"<div class=numbers>{''.join(shown)}</div>"


def _table(panel: Mapping[str, Any], answers: Sequence[Asked]) -> str:
    organised = panel["transformations"][1]["options"]
    renamed, hidden = organised["renameByName"], organised["excludeByName"]
    order = [name for name in organised["indexByName"] if not hidden.get(name)]
    looks = {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in panel["fieldConfig"].get("overrides", [])
    }
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for asked in answers:
        for series in asked.series:
            labels = series.labels
            row = cells.setdefault((labels.get("namespace", ""), labels["target"]), {})
            row |= labels
            column = f"Value #{asked.ref}"
            look = looks.get(renamed.get(column, ""), {})
            value = series.points[-1][1]
            row[column] = text(value, look.get("unit", ""), look.get("decimals"))
    head = "".join(f"<th>{html.escape(renamed.get(name, name))}</th>" for name in order)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row.get(name, ''))}</td>" for name in order) + "</tr>"
        for _, row in sorted(cells.items())
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _lines(
    panel: Mapping[str, Any], answers: Sequence[Asked], marks: Sequence[Asked], window: Window
) -> go.Figure:
    custom, unit = panel["fieldConfig"]["defaults"]["custom"], _unit(panel)
    looks = {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in panel["fieldConfig"].get("overrides", [])
    }
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    figure = go.Figure()
    number = 0
    for asked in answers:
        look = looks.get(asked.ref, {})
        for series in asked.series:
            colour = _COLOURS.get(look.get("color", {}).get("fixedColor", ""), "")
            colour = colour or _PALETTE[number % len(_PALETTE)]
            number += 1
            times, values = _with_gaps(series.points, window.step_s)
            last = next((v for v in reversed(values) if v is not None), None)
            name = series.named(asked.legend) or "(no labels)"
            name = name if last is None else f"{name}   {text(last, unit)}"
            if custom.get("drawStyle") == "bars":
                figure.add_bar(x=times, y=values, name=name, marker={"color": colour})
                continue
            step = custom.get("lineInterpolation") == "stepAfter"
            dash = "dash" if "custom.lineStyle" in look else "solid"
            shape = "hv" if step else "linear"
            line = {"color": colour, "width": 2, "dash": dash, "shape": shape}
            group = {"stackgroup": "all"} if stacked else {}
            figure.add_scatter(x=times, y=values, name=name, mode="lines", line=line, **group)
    if custom.get("drawStyle") == "bars":
        figure.update_layout(barmode="stack", bargap=0)
    _mark(figure, marks, window)
    most = panel["fieldConfig"]["defaults"].get("max")
    figure.update_yaxes(rangemode="tozero", ticksuffix=_UNITS.get(unit, ""))
    figure.update_yaxes(tickformat=_TICKS.get(unit, ""))
    if most is not None:
        figure.update_yaxes(range=[0, 1.03 * most])
    figure.update_xaxes(range=[_time(window.start_s), _time(window.end_s)])
    return figure


def _mark(figure: go.Figure, marks: Sequence[Asked], window: Window) -> None:
    """Annotations: a line for an instant, a band for what lasts."""
    for asked in marks:
        colour = {"Service pause": "#ff9830", "Resizing": "#c0d8ff", "Alerts": "#f2495c"}.get(
            asked.panel, "#5794f2"
        )
        for series in asked.series:
            # An annotation's value says nothing: whatever is there is marked.
            present = [(at_s, 1.0) for at_s, _ in series.points]
            for first_s, last_s, _ in _runs(present, window.step_s):
                if asked.panel in ("Resizing", "Service pause", "Alerts"):
                    figure.add_vrect(
                        x0=_time(first_s),
                        x1=_time(last_s + window.step_s),
                        fillcolor=colour,
                        opacity=0.18,
                        line_width=0,
                    )
                else:
                    figure.add_vline(
                        x=_time(first_s), line={"color": colour, "width": 1, "dash": "dash"}
                    )


def _timeline(panel: Mapping[str, Any], answers: Sequence[Asked], window: Window) -> go.Figure:
    mapping = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    figure = go.Figure()
    legend: set[str] = set()
    for asked in answers:
        for series in sorted(asked.series, key=lambda s: s.named(asked.legend), reverse=True):
            for first_s, last_s, value in _runs(series.points, window.step_s):
                shown = mapping[str(int(value))]
                words = shown["text"]
                figure.add_bar(
                    y=[series.named(asked.legend)],
                    x=[1000 * (last_s + window.step_s - first_s)],
                    base=[_time(first_s)],
                    orientation="h",
                    name=words,
                    legendgroup=words,
                    showlegend=words not in legend,
                    marker={"color": _COLOURS[shown["color"]]},
                )
                legend.add(words)
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_xaxes(type="date", range=[_time(window.start_s), _time(window.end_s)])
    return figure


def _runs(
    points: Sequence[tuple[float, float]], step_s: float
) -> Iterator[tuple[float, float, float]]:
    """First and last instant and value of each run of equal values without a hole."""
    run: tuple[float, float, float] | None = None
    for at_s, value in points:
        if run is None:
            run = at_s, at_s, value
        elif value == run[2] and at_s - run[1] <= 1.5 * step_s:
            run = run[0], at_s, value
        else:
            yield run
            run = at_s, at_s, value
    if run is not None:
        yield run


def _with_gaps(
    points: Sequence[tuple[float, float]], step_s: float
) -> tuple[list[datetime], list[float | None]]:
    """Points with a None wherever one is missing, so that no line bridges a hole."""
    times: list[datetime] = []
    values: list[float | None] = []
    before_s: float | None = None
    for at_s, value in points:
        if before_s is not None and at_s - before_s > 1.5 * step_s:
            times.append(_time(before_s + step_s))
            values.append(None)
        times.append(_time(at_s))
        values.append(value if value == value else None)
        before_s = at_s
    return times, values


def _unit(panel: Mapping[str, Any]) -> str:
    return str(panel["fieldConfig"]["defaults"]["unit"])


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _html(figure: go.Figure, panel: Mapping[str, Any]) -> str:
    figure.update_layout(
        template="plotly_dark",
        paper_bgcolor="#181b1f",
        plot_bgcolor="#181b1f",
        height=_ROW_PX * panel["gridPos"]["h"],
        margin={"l": 8, "r": 8, "t": 4, "b": 4},
        legend={
            "orientation": "h",
            "y": -1.0 / panel["gridPos"]["h"],
            "yanchor": "top",
            "font": {"size": 11},
        },
        showlegend=True,
        font={"size": 11, "color": "#ccccdc"},
    )
    figure.update_xaxes(gridcolor="#2c3235", tickformat="%H:%M:%S", automargin=True)
    figure.update_yaxes(gridcolor="#2c3235", automargin=True)
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"staticPlot": True}))
