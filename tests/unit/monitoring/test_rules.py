"""Alerts and recording rules, by promtool: when each fires, when it does not, what it says.

One sample every 15 s, for what takes hours every minute. Values in promtool's notation: ``0+3x40``
starts at 0 and adds 3 forty times.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.monitoring.rules import RULES, alerts, shipped

DOCS = Path(__file__).parents[3] / "docs"
ONE = '{namespace="n", target="t"}'


def counter(name: str, values: str, **labels: str) -> tuple[str, str]:
    more = "".join(f', {label}="{value}"' for label, value in labels.items())
    return f'autoscaler_{name}{{namespace="n", target="t"{more}}}', values


def windows(missed: str, met: str) -> list[tuple[str, str]]:
    return [
        counter("slo_windows_total", missed, result="missed"),
        counter("slo_windows_total", met, result="met"),
    ]


def state(name: str, values: str) -> list[tuple[str, str]]:
    return [counter("convergence_state", values, state=name)]


def signal(name: str, status: str, values: str) -> list[tuple[str, str]]:
    return [counter("signal_status", values, signal=name, status=status)]


def decided(reason: str, values: str, others: str, outcome: str = "hold") -> list[tuple[str, str]]:
    return [
        counter("decisions_total", values, outcome=outcome, reason=reason),
        counter("decisions_total", others, outcome="hold", reason="steady"),
    ]


def leaders(*values: str) -> list[tuple[str, str]]:
    name = 'autoscaler_leader{{namespace="n", job="autoscaler", instance="{}"}}'
    return [(name.format(i), one) for i, one in enumerate(values)]


def ticks(values: str) -> list[tuple[str, str]]:
    return [
        counter("tick_duration_seconds_count", values),
        counter("tick_interval_seconds", "5x400"),
    ]


def process(name: str, values: str) -> tuple[str, str]:
    return f'{name}{{namespace="n", job="autoscaler", instance="a"}}', values


HOUR = 60  # samples
SLOW = ("AutoscalerSloBurnFast", "AutoscalerSloBurnSlow", "AutoscalerPaused")
CASES: dict[str, list[tuple[list[tuple[str, str]], dict[str, bool]]]] = {
    "AutoscalerSloBurnFast": [
        (
            windows(f"0x{HOUR} 3+3x{HOUR}", f"0+3x{HOUR} {3 * HOUR}x{HOUR}"),
            {"1h": False, "1h4m": False, "1h14m": True, "2h": True},
        ),
        (windows("0x400", "0x400"), {"1h": False}),  # nothing known is nothing missed
        (  # a tenth missed: the six hours' budget
            windows(f"0+0.3x{HOUR} 18x{HOUR}", f"0+2.7x{HOUR} 162+3x{HOUR}"),
            {"30m": True, "1h50m": False},
        ),
    ],
    "AutoscalerSloBurnSlow": [
        (windows(f"0+0.15x{HOUR}", f"0+2.85x{HOUR}"), {"10m": False, "40m": True}),
        (windows(f"0+0.02x{HOUR}", f"0+2.98x{HOUR}"), {"50m": False}),
    ],
    "AutoscalerSignalLost": [
        (signal("queue_depth", "stale", "_x8 1x40"), {"4m": False, "6m": True}),
        (signal("queue_depth", "no_series", "1x40"), {"2m": False, "4m": True}),
        (signal("ttft_p95_s", "no_observations", "1x40"), {"9m": False}),
        (signal("kv_cache_usage_ratio", "no_series", "1x40"), {"9m": False}),
        ([*signal("queue_depth", "stale", "1x40"), *state("resizing", "1x40")], {"9m": False}),
    ],
    "AutoscalerTargetUnreadable": [
        (decided("target_unreadable", "0x20 3+3x60", "0+3x20 60x60"), {"6m": False, "13m": True}),
        (decided("target_unreadable", "0+1x80", "0+2x80"), {"19m": False}),
    ],
    "AutoscalerResizeSlow": [
        (state("resizing", "1x60"), {"9m": False, "11m": True}),
        (state("resizing", "1x12 0x60"), {"9m": False, "12m": False}),
    ],
    "AutoscalerResizeStuck": [
        (state("timed_out", "0x4 1x12 0x8"), {"1m": False, "3m": True, "5m": False})
    ],
    "AutoscalerResizeFailed": [
        (state("failed", "0x4 1x12 0x8"), {"1m": False, "3m": True, "5m": False})
    ],
    "AutoscalerRefused": [
        (state("refused", "0x4 1x12 0x8"), {"1m": False, "3m": True, "5m": False}),
        (decided("refused", "0x8 3+3x20", "0+3x28"), {"2m": False, "4m": True}),
        (decided("shrink_unsupported", "0+3x28", "0+3x28"), {"6m": False}),
    ],
    "AutoscalerForbidden": [
        (decided("forbidden", "0x8 3+3x20", "0+3x28"), {"2m": False, "4m": True}),
        (decided("high", "0x8 1+1x20", "0+3x28", "forbidden"), {"2m": False, "4m": True}),
    ],
    "AutoscalerNoCapacity": [
        (decided("no_capacity", "0x20 3+3x80", "0+3x20 60x80"), {"8m": False, "14m": True}),
        (decided("no_capacity", "0+1x80", "0+2x80"), {"19m": False}),
    ],
    "AutoscalerFlapping": [
        (decided("flap_budget", "0x20 3+3x80", "0+3x20 60x80"), {"8m": False, "14m": True}),
        (decided("flap_budget", "0+1x80", "0+2x80"), {"19m": False}),
    ],
    "AutoscalerFight": [(decided("fight", "0x8 3+3x20", "0+3x28"), {"2m": False, "4m": True})],
    "AutoscalerPaused": [
        (decided("paused_up", "0+3x300", "0x300"), {"3h50m": False, "4h10m": True}),
        (decided("overridden", "0+3x300", "0x300"), {"4h10m": False}),
    ],
    "AutoscalerNobodyLeads": [
        (leaders("0x40", "1x8 0x32"), {"2m": False, "3m30s": False, "5m": True}),
        (leaders("0x40", "1x40"), {"9m": False}),
    ],
    "AutoscalerTwoLead": [
        (leaders("1x40", "0x8 1x8 0x20"), {"2m": False, "4m": True, "6m": False}),
        (leaders("1x40", "0x40"), {"9m": False}),
    ],
    "AutoscalerLoopLate": [
        (ticks("0+2x120"), {"9m": False, "16m": True}),
        (ticks("0+3x120"), {"9m": False, "16m": False}),
    ],
    "AutoscalerLoopStalled": [
        (ticks("0+3x40 120x60"), {"10m": False, "17m": True}),
        (ticks("0x40"), {"30s": False, "3m": True}),  # hangs in its first tick
        (ticks("0+2x120"), {"16m": False}),
    ],
    "AutoscalerDecisionLogLost": [
        (
            [counter("errors_total", "0x8 3+3x20", port="decisions", **{"class": "OSError"})],
            {"2m": False, "4m": True},
        ),
        (
            [counter("errors_total", "0x8 3+3x20", port="source", **{"class": "OSError"})],
            {"4m": False},
        ),
    ],
    "AutoscalerConfigRefused": [
        (
            [process("autoscaler_config_last_reload_successful", "1x8 0x8 1x8")],
            {"2m": False, "3m45s": True, "5m": False},
        )
    ],
    "AutoscalerScrapeFails": [
        (
            [process("up", "1x8 0x20"), process("autoscaler_build_info", "1x8 stale _x20")],
            {"2m": False, "5m": True},
        ),
        ([process("up", "0x40")], {"9m": False}),  # never was one of ours
        (  # replaced: Prometheus does not look for it any more
            [process("up", "1x8 stale _x40"), process("autoscaler_build_info", "1x8 stale _x40")],
            {"9m": False},
        ),
    ],
    "AutoscalerGone": [
        ([process("autoscaler_build_info", "1x8 stale _x60")], {"2m": False, "8m": True})
    ],
}


def promtool(folder: Path, tests: list[dict[str, Any]], interval: str = "30s") -> None:
    binary = shutil.which("promtool")
    if binary is None:
        pytest.fail("needs promtool: apt-get install prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(shipped()), encoding="utf-8")
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    for arguments in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run(
            [binary, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == [alert["alert"] for alert in alerts()]


@pytest.mark.parametrize("name", CASES)
def test_fires_in_its_fault_and_only_when_it_has_lasted_M05_M10_T25(
    name: str, tmp_path: Path
) -> None:
    firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)'
    slow = name in SLOW
    tests = [
        {
            "interval": "1m" if slow else "15s",
            "input_series": [{"series": s, "values": values} for s, values in inputs],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
                for at, fires in moments.items()
            ],
        }
        for inputs, moments in CASES[name]
    ]
    promtool(tmp_path, tests, "1m" if slow else "30s")


def test_an_alert_names_the_target_and_the_value(tmp_path: Path) -> None:
    expected = {
        "exp_labels": {"severity": "critical", "namespace": "n", "target": "t"},
        "exp_annotations": {
            "summary": "t misses its objective far too often",
            "description": "25% of the windows of n t had a p95 time to first token above the "
            "objective, where 1 % may.",
            "runbook_url": "docs/runbooks/AutoscalerSloBurnFast.md",
        },
    }
    series = windows(f"0x{HOUR} 3+3x{HOUR}", f"0+3x{HOUR} {3 * HOUR}x{HOUR}")
    promtool(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": values} for s, values in series],
                "alert_rule_test": [
                    {
                        "alertname": "AutoscalerSloBurnFast",
                        "eval_time": "1h15m",
                        "exp_alerts": [expected],
                    }
                ],
            }
        ],
        "1m",
    )


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_has_severity_summary_description_with_its_value_and_a_runbook(
    alert: dict[str, Any],
) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    said = alert["annotations"]
    assert len(said["summary"]) < 80
    assert re.search(r"\$value|\$labels.status", said["description"])
    assert said["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    runbook = (DOCS.parent / said["runbook_url"]).read_text("utf-8")
    assert runbook.startswith(f"# {alert['alert']}\n")
    headings = re.findall(r"^## (.+)$", runbook, re.MULTILINE)
    assert headings == ["What it means", "What to look at", "What to do", "How to stop it"]


def test_there_is_no_runbook_without_an_alert_and_the_page_lists_each() -> None:
    names = {alert["alert"] for alert in alerts()}
    assert {path.stem for path in (DOCS / "runbooks").glob("*.md")} == names
    page = (DOCS / "monitoring.md").read_text("utf-8")
    assert {name for name in names if f"(runbooks/{name}.md)" in page} == names


def test_the_rules_are_found_where_they_are_deployed() -> None:
    assert RULES.name == "prometheus-rule.yaml"
