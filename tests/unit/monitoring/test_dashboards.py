"""The committed dashboards: current, and readable by a person and by Grafana."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autoscaler.telemetry import SERIES
from monitoring.__main__ import FOLDER, dashboards

FILES = ("autoscaler-overview.json", "autoscaler-target.json")
_SERIES = re.compile(r"autoscaler_\w+")
_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


def committed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / name).read_text("utf-8"))
    return content


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in committed(name)["panels"] if panel["type"] != "row"]


def expressions(name: str) -> list[str]:
    content = committed(name)
    found = [query["expr"] for panel in panels(name) for query in panel["targets"]]
    found += [annotation["expr"] for annotation in content["annotations"]["list"]]
    variables = content["templating"]["list"]
    return found + [v["query"]["query"] for v in variables if v["type"] == "query"]


def test_the_committed_files_are_what_the_source_makes() -> None:
    """If not: ``python -m monitoring``."""
    made = dashboards()
    assert sorted(made) == sorted(FILES) == sorted(path.name for path in FOLDER.glob("*.json"))
    for name, text in made.items():
        assert (FOLDER / name).read_text("utf-8") == text, name


@pytest.mark.parametrize("name", FILES)
def test_every_panel_has_title_description_unit_and_a_legend_that_says_something(name: str) -> None:
    for panel in panels(name):
        title = panel["title"]
        assert len(panel["description"]) > 15, title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"]["uid"] == "${datasource}", title
        legends = [query["legendFormat"] for query in panel["targets"]]
        assert all(legends), title
        if panel["type"] in ("timeseries", "state-timeline"):
            assert panel["options"]["legend"]["showLegend"] is True, title
            assert len(set(legends)) == len(legends), title
    titles = [panel["title"] for panel in panels(name)]
    assert len(titles) > 15
    numbers = [panel["id"] for panel in committed(name)["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("name", FILES)
def test_panels_lie_side_by_side_and_none_on_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in committed(name)["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", FILES)
def test_variables_choose_data_source_namespace_and_target_and_every_query_heeds_them(
    name: str,
) -> None:
    content = committed(name)
    assert content["schemaVersion"] == 41
    variables = {v["name"]: v for v in content["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "target"]
    assert variables["namespace"]["allValue"] == ".*"
    for panel in panels(name):
        for query in panel["targets"]:
            assert "$namespace" in query["expr"], query["expr"]


def test_every_series_is_one_that_the_telemetry_exports() -> None:
    used = set()
    for name in FILES:
        for expression in expressions(name):
            used |= set(_SERIES.findall(expression))
    known = set(SERIES)
    unknown = {name for name in used if name not in known and _HISTOGRAM.sub("", name) not in known}
    assert not unknown
    shown = {_HISTOGRAM.sub("", name) for name in used} | used
    # What is left is a state that an alert speaks of.
    assert known - shown == {"autoscaler_config_last_reload_successful"}


def test_the_folder_is_the_one_that_is_deployed() -> None:
    assert Path(__file__).parents[3] / "deploy" / "dashboards" == FOLDER
