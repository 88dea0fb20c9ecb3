"""What the dashboards have in common: variables, annotations, and how they are put together."""

from collections.abc import Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from monitoring.panels import SOURCE

TAG = "autoscaler"
Panels = Mapping[str, Sequence[Builder[model.Panel]]]
"""Panels by the title of their row."""


class PrometheusAnnotation(model.AnnotationQuery):
    """An annotation with the keys that Grafana's Prometheus source reads and the library lacks."""

    def __init__(
        self, name: str, expr: str, colour: str, title: str, text: str, tags: Sequence[str]
    ) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=colour, expr=expr)
        self._formats = {
            "titleFormat": title,
            "textFormat": text,
            "tagKeys": ",".join(tags),
            "step": "15s",  # the usual scrape interval; Grafana's own would be 60 s
            "useValueForTime": False,
        }

    def to_json(self) -> dict[str, object]:
        """As the library says it, with these keys."""
        return {**super().to_json(), **self._formats}


class _Annotation(dashboard.AnnotationQuery):
    def __init__(self, annotation: PrometheusAnnotation) -> None:
        super().__init__()
        self._internal = annotation


def page(
    uid: str,
    title: str,
    description: str,
    rows: Panels,
    *,
    one_target: bool,
    annotations: Sequence[PrometheusAnnotation],
    since: str,
) -> model.Dashboard:
    """One dashboard.

    Args:
        uid: what links name it by.
        title: for people.
        description: for people.
        rows: panels by the title of their row.
        one_target: whether one target is chosen, or any number.
        annotations: marks on every panel that shows time.
        since: begin of the time range at first, e.g. ``now-1h``.
    """
    made = dashboard.Dashboard(title).uid(uid).description(description).tags([TAG])
    made.time(since, "now").refresh("30s").timezone("browser").editable()
    made.tooltip(model.DashboardCursorSync.CROSSHAIR)
    for variable in _variables(one_target):
        made.with_variable(variable)
    for annotation in annotations:
        made.annotation(_Annotation(annotation))
    link = dashboard.DashboardLink("Autoscaler").type(model.DashboardLinkType.DASHBOARDS)
    made.link(link.tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True))
    for row, panels in rows.items():
        made.with_row(dashboard.Row(row))
        for panel in panels:
            made.with_panel(panel)
    return _numbered(made.build())


def _variables(one_target: bool) -> list[Builder[model.VariableModel]]:
    source = dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
    namespace = _query(
        "namespace", "Namespace", "label_values(autoscaler_tick_interval_seconds, namespace)"
    )
    selected = 'autoscaler_tick_interval_seconds{namespace=~"$namespace"}'
    target = _query("target", "Target", f"label_values({selected}, target)")
    # Not the default ``value1|value2``: a Prometheus without a namespace label has no value at all.
    namespace.include_all(True).multi(True).all_value(".*").current(_ALL)
    if not one_target:
        target.include_all(True).multi(True).all_value(".*").current(_ALL)
    return [source, namespace, target]


_ALL = model.VariableOption(selected=True, text="All", value="$__all")


def _query(name: str, label: str, query: str) -> dashboard.QueryVariable:
    values: dict[str, Any] = {
        "qryType": 1,  # label values
        "query": query,
        "refId": "PrometheusVariableQueryEditor-VariableQuery",
    }
    made = dashboard.QueryVariable(name).label(label).query(values).datasource(SOURCE)
    return made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(
        model.VariableSort.ALPHABETICAL_ASC
    )


def _numbered(made: model.Dashboard) -> model.Dashboard:
    """The same with an id for each panel, as an export from Grafana has them."""
    for number, panel in enumerate(made.panels or [], 1):
        panel.id_val = number
    return made
