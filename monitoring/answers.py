"""Asks a Prometheus what Grafana would: a dashboard's queries, with its variables filled in."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from autoscaler.errors import ObservationError

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, and (Unix time, value) ascending."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    def named(self, legend: str) -> str:
        """What a legend calls it."""
        return _LEGEND.sub(lambda found: self.labels.get(found[1], ""), legend).strip()


@dataclass(frozen=True, slots=True)
class Window:
    """A time range as a dashboard shows it.

    Args:
        start_s, end_s: Unix time.
        step_s: distance of points, > 0.
        scrape_s: scrape interval of the data, > 0: what the data source is told in Grafana.
    """

    start_s: float
    end_s: float
    step_s: float
    scrape_s: float

    @property
    def variables(self) -> Mapping[str, str]:
        """Grafana's own variables."""
        rate_s = max(self.step_s + self.scrape_s, 4 * self.scrape_s)  # as Grafana defines it
        return {
            "__interval": _duration(self.step_s),
            "__rate_interval": _duration(rate_s),
            "__range": _duration(self.end_s - self.start_s),
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a dashboard and its answer.

    Args:
        panel: title of the panel, or name of the annotation.
        ref: which of the panel's queries.
        expr: as it was asked.
        legend: what its series are called.
        series: the answer.
    """

    panel: str
    ref: str
    expr: str
    legend: str
    series: tuple[Series, ...]

    @property
    def values(self) -> int:
        """How many numbers there are; NaN is none."""
        return sum(value == value for s in self.series for _, value in s.points)


class Prometheus:
    """The HTTP API of one.

    Args:
        url: where it is.

    Its methods raise ObservationError where there is no answer.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._session = requests.Session()

    def range(self, expr: str, window: Window) -> tuple[Series, ...]:
        """Values over time."""
        steps = {"start": window.start_s, "end": window.end_s, "step": window.step_s}
        return _series(self._get("query_range", {"query": expr, **steps}), "values")

    def instant(self, expr: str, at_s: float) -> tuple[Series, ...]:
        """Values at one time."""
        return _series(self._get("query", {"query": expr, "time": at_s}), "value")

    def label_values(self, query: str, window: Window) -> list[str]:
        """The answer to a variable's ``label_values(selector, label)``."""
        found = _LABEL_VALUES.fullmatch(query)
        if found is None:
            raise ValueError(f"query: must be label_values(selector, label); got {query!r}")
        asked = {"match[]": found["selector"], "start": window.start_s, "end": window.end_s}
        answer: list[str] = self._get(f"label/{found['label']}/values", asked)
        return sorted(answer)

    def _get(self, path: str, parameters: Mapping[str, Any]) -> Any:
        url = f"{self._url}/api/v1/{path}"
        try:
            content = self._session.get(url, params=parameters, timeout=_TIMEOUT_S).json()
        except requests.RequestException as error:  # also what is no JSON
            raise ObservationError(f"{url}: must be a Prometheus that answers; {error}") from error
        if not isinstance(content, dict) or content.get("status") != "success":
            said = content.get("error") if isinstance(content, dict) else content
            raise ObservationError(f"{url}: {parameters}: must be answered; got {said}")
        return content["data"]


class Dashboard:
    """A dashboard's JSON, and what a Prometheus answers to it.

    Args:
        content: the JSON.
        prometheus: who is asked.
        window: the time range.
        target: the target to choose; "": the first there is.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        prometheus: Prometheus,
        window: Window,
        target: str = "",
    ) -> None:
        self.content = content
        self.window = window
        self._prometheus = prometheus
        self.choices: dict[str, list[str]] = {}
        self._values = dict(window.variables)
        for variable in content["templating"]["list"]:
            if variable["type"] != "query":
                continue
            name, query = variable["name"], self.filled(variable["query"]["query"])
            found = self.choices[name] = prometheus.label_values(query, window)
            if variable["includeAll"]:
                self._values[name] = variable["allValue"]
            else:
                chosen = target if name == "target" and target else "".join(found[:1])
                self._values[name] = re.escape(chosen)

    def filled(self, text: str) -> str:
        """A text with its variables replaced."""
        return _VARIABLE.sub(lambda found: self._values[found[1] or found[2]], text)

    @property
    def panels(self) -> Iterator[Mapping[str, Any]]:
        """Its panels without the rows."""
        return (panel for panel in self.content["panels"] if panel["type"] != "row")

    def ask(self, panel: Mapping[str, Any]) -> list[Asked]:
        """Every query of one panel."""
        answers = []
        for query in panel["targets"]:
            expr = self.filled(query["expr"])
            if query.get("instant"):
                found = self._prometheus.instant(expr, self.window.end_s)
            else:
                found = self._prometheus.range(expr, self.window)
            legend = query["legendFormat"]
            answers.append(Asked(panel["title"], query["refId"], expr, legend, found))
        return answers

    def annotations(self) -> list[Asked]:
        """Every annotation; its legend is ``title: text``."""
        answers = []
        for annotation in self.content["annotations"]["list"]:
            expr = self.filled(annotation["expr"])
            legend = f"{annotation['titleFormat']}: {annotation['textFormat']}"
            found = self._prometheus.range(expr, self.window)
            answers.append(Asked(annotation["name"], "", expr, legend, found))
        return answers


def read(path: Path, prometheus: Prometheus, window: Window, target: str = "") -> Dashboard:
    """A dashboard from its file."""
    return Dashboard(json.loads(path.read_text("utf-8")), prometheus, window, target)


def _series(data: Mapping[str, Any], key: str) -> tuple[Series, ...]:
    return tuple(
        Series(
            element["metric"],
            tuple(
                (float(at_s), float(value))
                for at_s, value in ([element[key]] if key == "value" else element[key])
            ),
        )
        for element in data["result"]
    )


def _duration(seconds: float) -> str:
    return f"{max(round(seconds * 1000), 1)}ms"
