"""Panels as all dashboards have them: a unit, a description, and a legend that can be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import prometheus as query_model

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED, BLUE, GREY = "green", "yellow", "red", "blue", "text"
LAST_AND_EXTREMES = ("lastNotNull", "max", "mean")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Args:
        expr: PromQL.
        legend: what its series are called, with ``{{label}}``.
        colour: of its series; "": Grafana's choice.
        dashed: whether its line is: for limits and wishes rather than facts.
    """

    expr: str
    legend: str
    colour: str = ""
    dashed: bool = False


class _Described(Protocol):
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def datasource(self, datasource: model.DataSourceRef) -> Self: ...
    def height(self, h: int) -> Self: ...
    def span(self, w: int) -> Self: ...


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    span: int = 12,
    bars: bool = False,
    steps: bool = False,
    stacked: bool = False,
    most: float | None = None,
) -> timeseries.Panel:
    """Values over time.

    Args:
        title: of the panel.
        description: what is shown, for people.
        unit: Grafana's name of it.
        queries: what is drawn.
        span: columns of 24.
        bars: bars instead of lines: for counts.
        steps: values that hold until they change.
        stacked: one on top of the other: for parts of a whole.
        most: upper end of the axis; None: what the values need.
    """
    panel = _described(timeseries.Panel(), title, description, unit, span)
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.TABLE)
    legend.placement(kinds.LegendPlacement.BOTTOM).show_legend(True).calcs(list(LAST_AND_EXTREMES))
    panel.legend(legend).min(0).line_width(2).show_points(kinds.VisibilityMode.NEVER)
    mode = kinds.TooltipDisplayMode.MULTI
    panel.tooltip(common.VizTooltipOptions().mode(mode).sort(kinds.SortOrder.DESCENDING))
    if most is not None:
        panel.max(most)
    if bars:
        panel.draw_style(kinds.GraphDrawStyle.BARS).fill_opacity(70)
    if steps:
        panel.line_interpolation(kinds.LineInterpolation.STEP_AFTER)
    if stacked:
        panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL)).fill_opacity(40)
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_range(query, ref))
        look = [model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": query.colour})]
        look = look if query.colour else []
        if query.dashed:
            style = {"fill": "dash", "dash": [10, 10]}
            look.append(model.DynamicConfigValue("custom.lineStyle", style))
        if look:
            panel.override_by_query(ref, look)
    return panel


def number(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    span: int = 4,
    decimals: int | None = None,
    steps: Sequence[tuple[float | None, str]] = ((None, BLUE),),
    mode: kinds.BigValueTextMode = kinds.BigValueTextMode.VALUE,
    height: int = 4,
) -> stat.Panel:
    """The present value, large.

    Args:
        title: of the panel.
        description: what is shown, for people.
        unit: Grafana's name of it.
        queries: asked for the end of the time range.
        span: columns of 24.
        decimals: digits after the point; None: Grafana's choice.
        steps: colours by value, ascending, the first from None on.
        mode: value, name (the legend) or both.
        height: rows of 30 pixels.
    """
    panel = _described(stat.Panel(), title, description, unit, span, height)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.graph_mode(kinds.BigValueGraphMode.NONE).color_mode(kinds.BigValueColorMode.VALUE)
    panel.text_mode(mode).no_value("unknown")
    thresholds = dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE)
    panel.thresholds(thresholds.steps([model.Threshold(value, name) for value, name in steps]))
    if decimals is not None:
        panel.decimals(decimals)
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_instant(query, ref))
    return panel


def timeline(
    title: str,
    description: str,
    *queries: Query,
    values: Mapping[int, tuple[str, str]],
    span: int = 24,
    height: int = 8,
) -> statetimeline.Panel:
    """States over time.

    Args:
        title: of the panel.
        description: what is shown, for people.
        queries: whole numbers.
        values: text and colour of each number.
        span: columns of 24.
        height: rows of 30 pixels.
    """
    panel = _described(statetimeline.Panel(), title, description, "none", span, height)
    legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST)
    panel.legend(legend.placement(kinds.LegendPlacement.BOTTOM).show_legend(True))
    panel.merge_values(True).show_value(kinds.VisibilityMode.AUTO).row_height(0.8).fill_opacity(80)
    results = {
        str(value): model.ValueMappingResult(text=text, color=colour, index=i)
        for i, (value, (text, colour)) in enumerate(values.items())
    }
    panel.mappings([model.ValueMap(options=results)])
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_range(query, ref))
    return panel


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its query, name and unit; "" for a text."""

    expr: str
    name: str
    unit: str = ""
    decimals: int | None = None


def rows(
    title: str, description: str, *columns: Column, keys: Sequence[str], texts: Mapping[str, str]
) -> table.Panel:
    """A table of the present values.

    Args:
        title: of the panel.
        description: what is shown, for people.
        columns: each query has one value for each row.
        keys: labels that name a row.
        texts: labels that are columns themselves, and what these are called.
    """
    panel = _described(table.Panel(), title, description, "none", 24)
    names = {f"Value #{ref}": c.name for ref, c in zip(_REFS, columns, strict=False)}
    hidden = ["Time", *(old for old, new in names.items() if not new)]
    order = [*keys, *texts, *(old for old, new in names.items() if new)]
    options = {
        "excludeByName": dict.fromkeys(hidden, True),
        "renameByName": {old: new for old, new in names.items() if new} | dict(texts),
        "indexByName": {name: i for i, name in enumerate(order)},
    }
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=options))
    for ref, column in zip(_REFS, columns, strict=False):
        query = _instant(Query(column.expr, column.name or "__auto"), ref)
        panel.with_target(query.format(query_model.PromQueryFormat.TABLE))
        look = [model.DynamicConfigValue("unit", column.unit)] if column.unit else []
        if column.decimals is not None:
            look.append(model.DynamicConfigValue("decimals", column.decimals))
        if look:
            panel.override_by_name(column.name, look)
    return panel


_REFS = "ABCDEFGHIJKLMNOP"


_P = TypeVar("_P", bound=_Described)


def _described(
    panel: _P, title: str, description: str, unit: str, span: int, height: int = 8
) -> _P:
    return (
        panel.title(title)
        .description(description)
        .unit(unit)
        .datasource(SOURCE)
        .height(height)
        .span(span)
    )


def _range(query: Query, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
    return made.datasource(SOURCE).range()


def _instant(query: Query, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
    return made.datasource(SOURCE).instant()
