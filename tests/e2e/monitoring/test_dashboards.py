"""Every query of every dashboard, asked of a real Prometheus that has scraped a real run."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.answers import Asked, Dashboard, Prometheus, Window, read
from monitoring.preview import FOLDER, page
from tests.adapters.prometheus.conftest import Start
from tests.adapters.prometheus.servers import free_port
from tests.e2e.monitoring.rules import alerts
from tests.e2e.monitoring.story import SCRAPE_S, Run, healthy

NAMES = ("autoscaler-overview", "autoscaler-target")
FAULTS = ("Held by people", "Alerts")
"""Annotations of what must not be in a healthy run; the faults show them."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, start_prometheus: Start) -> Iterator[Run]:
    with healthy(tmp_path_factory.mktemp("run"), start_prometheus) as made:
        yield made


@pytest.fixture(scope="module")
def window(run: Run) -> Window:
    """From the start until the last moment at which everything was known."""
    prometheus = Prometheus(run.prometheus.url)
    end_s = run.prometheus.number("vector(time())")
    whole = Window(end_s - 80.0, end_s, SCRAPE_S, 2 * SCRAPE_S)
    signals = "ttft_p95_s|queue_depth|arrival_rps"
    known = (
        f'count(autoscaler_signal{{signal=~"{signals}"}}) == 3 '
        'and on() autoscaler_width{kind="effective"} == 3'
    )
    (series,) = prometheus.range(known, whole)
    last_s = series.points[-1][0]
    return Window(last_s - 60.0, last_s, SCRAPE_S, 2 * SCRAPE_S)


@pytest.fixture(scope="module")
def shown(run: Run, window: Window) -> dict[str, Dashboard]:
    asked = Prometheus(run.prometheus.url)
    return {name: read(FOLDER / f"{name}.json", asked, window) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_query_of_every_panel_returns_data(name: str, shown: dict[str, Dashboard]) -> None:
    dashboard = shown[name]
    asked = [query for panel in dashboard.panels for query in dashboard.ask(panel)]
    assert len(asked) >= sum(len(panel["targets"]) for panel in dashboard.panels) > 20
    assert [(q.panel, q.ref, q.expr) for q in asked if not q.values] == []
    nameless = [(q.panel, s.labels) for q in asked for s in q.series if not s.named(q.legend)]
    assert nameless == []


@pytest.mark.parametrize("name", NAMES)
def test_every_template_query_finds_what_runs(name: str, shown: dict[str, Dashboard]) -> None:
    assert shown[name].choices == {"namespace": ["bench"], "target": ["chat"]}


def marks(asked: Asked) -> list[str]:
    return [series.named(asked.legend) for series in asked.series]


def test_decisions_are_marked_with_their_reasons_and_resizes_with_their_pause(
    shown: dict[str, Dashboard], window: Window
) -> None:
    found = {asked.panel: asked for asked in shown["autoscaler-target"].annotations()}
    (decision,) = found["Decisions"].series
    assert decision.named("{{outcome}} {{reason}}") == "applied demand_ahead"
    (resizing,) = (s for s in found["Resizing"].series)
    (pause,) = found["Service pause"].series
    (asked_s, _), *_ = decision.points
    last = [at_s for at_s, _ in resizing.points if at_s >= asked_s - 2]
    assert last[0] - asked_s <= 2.0
    paused = [at_s for at_s, _ in pause.points]
    assert last[0] < paused[0] <= paused[-1] <= last[-1]
    assert window.start_s < asked_s
    assert {name: marks(found[name]) for name in FAULTS} == {name: [] for name in FAULTS}
    (overview,) = shown["autoscaler-overview"].annotations()
    assert marks(overview) == ["chat: applied: demand_ahead"]


def test_no_alert_fires_in_a_healthy_run(run: Run, window: Window) -> None:
    fired = Prometheus(run.prometheus.url).range('ALERTS{alertstate="firing"}', window)
    assert [series.labels["alertname"] for series in fired] == []
    rules = run.prometheus.rules()
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == {
        alert["alert"] for alert in alerts()
    }
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_every_recording_rule_records(run: Run) -> None:
    recorded = [rule["name"] for rule in run.prometheus.rules() if rule["type"] == "recording"]
    assert len(recorded) == 7
    assert [name for name in recorded if not run.prometheus.query(name)] == []


def test_the_preview_draws_every_panel_on_one_page_that_needs_nothing_else(
    shown: dict[str, Dashboard], tmp_path: Path
) -> None:
    text = page(list(shown.values()))
    panels = [panel["title"] for dashboard in shown.values() for panel in dashboard.panels]
    assert text.count("<div class=panel") == len(panels)
    assert "No data" not in text
    assert not [part for part in ('src="http', "cdn.plot.ly/plotly") if part in text]


def preview(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monitoring.preview", *arguments],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_preview_is_a_command_and_without_an_answer_it_says_so(
    run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "preview.html"
    done = preview("--prometheus", run.prometheus.url, "--out", str(out), "--minutes", "2")
    assert done.returncode == 0, done.stderr
    assert "2 dashboards" in done.stdout
    nobody = f"http://127.0.0.1:{free_port()}"
    done = preview("--prometheus", nobody, "--out", str(out))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {nobody}/api/v1/")
    assert "Traceback" not in done.stderr
