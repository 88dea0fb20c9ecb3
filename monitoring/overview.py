"""The overview: every target, and the processes that steer them."""

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from monitoring.page import PrometheusAnnotation, page
from monitoring.panels import BLUE, GREEN, RED, YELLOW, Column, Query, lines, number, rows
from monitoring.promql import (
    BY_TARGET,
    NAMESPACE,
    RANGE,
    STEP,
    errors,
    gauge,
    grown,
    ratio,
    signal,
    ticks_done,
    total,
    windows_met,
)

_EACH = "{{namespace}} {{target}}"
_FIRING = f'ALERTS{{alertname=~"Autoscaler.+", alertstate="firing", {NAMESPACE}}}'
GOOD_WINDOWS = ((None, RED), (0.95, YELLOW), (0.99, GREEN))

Panels = list[Builder[model.Panel]]


def overview() -> model.Dashboard:
    """All targets at a glance."""
    return page(
        "autoscaler-overview",
        "Autoscaler / overview",
        "Every deployment that is steered: objective, width, load, cost; and the processes.",
        {"Now": _now(), "Targets": _targets(), "Load and cost": _load(), "Processes": _processes()},
        one_target=False,
        annotations=[
            PrometheusAnnotation(
                "Widths asked for",
                grown(
                    "decisions_total",
                    'outcome!="hold"',
                    by=f"{BY_TARGET}, outcome, reason",
                    window=STEP,
                )
                + " > 0",
                BLUE,
                "{{target}}: {{outcome}}",
                "{{reason}}",
                ("namespace", "target"),
            )
        ],
        since="now-6h",
    )


def _now() -> Panels:
    return [
        number(
            "Targets",
            "Deployments that are steered.",
            "short",
            Query(f"count({gauge('tick_interval_seconds')})", "targets"),
        ),
        number(
            "Windows met",
            "Share of rolling windows whose p95 time to first token met the objective, over the "
            "time range and all targets. Windows without data are left out.",
            "percentunit",
            Query(windows_met(RANGE, by=""), "met"),
            decimals=2,
            steps=GOOD_WINDOWS,
        ),
        number(
            "GPUs allocated",
            "Width times GPUs a unit, from the request on until the width is really gone.",
            "short",
            Query(f"sum({gauge('gpus')})", "GPUs"),
        ),
        number(
            "GPU-hours",
            "Allocated GPUs over the time range.",
            "short",
            Query(f"{total('gpu_seconds_total', by='')} / 3600", "GPU-hours"),
            decimals=1,
        ),
        number(
            "Processes that may write",
            "One for each installation: none means that nothing is steered, two that leadership "
            "is broken.",
            "short",
            Query(f"sum by (namespace, job) (autoscaler_leader{{{NAMESPACE}}})", "{{namespace}}"),
            steps=((None, RED), (1, GREEN), (2, RED)),
        ),
        number(
            "Alerts firing",
            "Alerts of the autoscaler that fire now; each has a runbook.",
            "short",
            Query(f"count({_FIRING}) or vector(0)", "alerts"),
            steps=((None, GREEN), (1, RED)),
        ),
    ]


def _targets() -> Panels:
    return [
        rows(
            "Targets",
            "What each target is now. Empty: not known now. State: where its last resize stands.",
            Column(gauge("width", 'kind="effective"'), "effective"),
            Column(gauge("width", 'kind="desired"'), "desired"),
            Column(gauge("width", 'kind="proposed"'), "proposed"),
            Column(f"{gauge('convergence_state', by='state')} == 1", ""),
            Column(signal("ttft_p95_s"), "p95 TTFT", "s", 2),
            Column(gauge("slo_ttft_p95_seconds"), "objective", "s", 1),
            Column(windows_met(RANGE), "windows met", "percentunit", 2),
            Column(signal("queue_depth"), "waiting"),
            Column(signal("arrival_rps"), "arrivals", "reqps", 1),
            Column(f"{total('gpu_seconds_total')} / 3600", "GPU-hours", "short", 1),
            keys=("namespace", "target"),
            texts={"state": "state"},
        )
    ]


def _load() -> Panels:
    objective = gauge("slo_ttft_p95_seconds")
    return [
        lines(
            "p95 time to first token, share of the objective",
            "Rolling p95 over the objective: above 100 % the objective is missed. Gaps: no first "
            "token, or the signal is lost.",
            "percentunit",
            Query(ratio(signal("ttft_p95_s"), objective), _EACH),
        ),
        lines(
            "Requests that wait",
            "Waiting, not running, over all live engines of a target.",
            "short",
            Query(signal("queue_depth"), _EACH),
        ),
        lines(
            "Effective width",
            "Data-parallel ranks that were proven to serve. Gaps: not proven, as in a resize.",
            "short",
            Query(gauge("width", 'kind="effective"'), _EACH),
            steps=True,
        ),
        lines(
            "GPUs allocated",
            "What is paid for now, by target.",
            "short",
            Query(gauge("gpus"), _EACH),
            steps=True,
            stacked=True,
        ),
        lines(
            "Arrivals",
            "Requests a second.",
            "reqps",
            Query(signal("arrival_rps"), _EACH),
        ),
        lines(
            "Decisions to write",
            "Widths asked for, by what came of it.",
            "short",
            Query(
                grown("decisions_total", 'outcome!="hold"', by="outcome"),
                "{{outcome}}",
            ),
            bars=True,
            stacked=True,
        ),
    ]


def _processes() -> Panels:
    leader = f"max by (namespace, job, instance) (autoscaler_leader{{{NAMESPACE}}})"
    version = f"count by (version) (autoscaler_build_info{{{NAMESPACE}}})"
    return [
        lines(
            "Leadership",
            "1 while a process may write. Exactly one of an installation's processes has it.",
            "short",
            Query(leader, "{{instance}}"),
            steps=True,
            span=8,
        ),
        lines(
            "Processes by version",
            "Two versions side by side: a roll-out, or one that is stuck.",
            "short",
            Query(version, "{{version}}"),
            steps=True,
            span=8,
        ),
        lines(
            "Signals by status",
            "How many signals have a value (ok), or why they have none. no_series, stale, "
            "ambiguous and non_finite: lost. reset and quarantined: a resize. The others: little "
            "load.",
            "short",
            Query(f"sum by (status) ({gauge('signal_status', by='signal, status')})", "{{status}}"),
            stacked=True,
            span=8,
        ),
        lines(
            "Errors",
            "By port: source (metrics), target, write, decisions (the log), config.",
            "short",
            Query(errors("port, class"), "{{port}} {{class}}"),
            bars=True,
            stacked=True,
            span=8,
        ),
        lines(
            "Ticks done of those due",
            "Below 100 %: the loop is slow, or stands.",
            "percentunit",
            Query(ticks_done(), _EACH),
            span=8,
        ),
        lines(
            "Tick lateness",
            "How late the last tick began.",
            "s",
            Query(gauge("tick_lateness_seconds"), _EACH),
            span=8,
        ),
    ]
