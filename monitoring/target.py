"""One target in depth: objective, width, load, decisions, signals, loop."""

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import BigValueTextMode

from monitoring.overview import GOOD_WINDOWS
from monitoring.page import PrometheusAnnotation, page
from monitoring.panels import BLUE, GREEN, GREY, RED, YELLOW, Query, lines, number, timeline
from monitoring.promql import (
    BY_TARGET,
    RANGE,
    RATE,
    SELECTED,
    STEP,
    errors,
    gauge,
    grown,
    series,
    signal,
    ticks_done,
    total,
    windows_met,
)

_STATES = {
    "idle": (0, "idle", GREY),
    "converged": (1, "converged", GREEN),
    "resizing": (2, "resizing", BLUE),
    "timed_out": (3, "timed out", RED),
    "failed": (4, "failed", RED),
    "refused": (5, "refused", RED),
}
_HEALTH = {
    "ok": (0, "ok", GREEN),
    "no_observations|few_samples|top_bucket": (1, "little to see", YELLOW),
    "reset|quarantined": (2, "resize", BLUE),
    "no_series|stale|ambiguous|non_finite": (3, "lost", RED),
}
LOST = "no_series|stale|ambiguous|non_finite"
_SIZING = series("convergence_state", 'state="resizing"')
_HELD_BY_PEOPLE = "paused.*|overridden|fight"

Panels = list[Builder[model.Panel]]


def target() -> model.Dashboard:
    """One target."""
    return page(
        "autoscaler-target",
        "Autoscaler / target",
        "One deployment: whether it keeps its objective, what it costs, what was decided and why.",
        {
            "Now": _now(),
            "Objective": _objective(),
            "Width": _width(),
            "Load": _load(),
            "Decisions": _decisions(),
            "Signals and loop": _loop(),
        },
        one_target=True,
        annotations=_annotations(),
        since="now-1h",
    )


def _annotations() -> list[PrometheusAnnotation]:
    decided = grown(
        "decisions_total", 'outcome!="hold"', by=f"{BY_TARGET}, outcome, reason", window=STEP
    )
    held = grown(
        "decisions_total", f'reason=~"{_HELD_BY_PEOPLE}"', by=f"{BY_TARGET}, reason", window=STEP
    )
    blind = series("signal_status", 'signal="queue_depth"', f'status=~"{LOST}"')
    pause = f"max by ({BY_TARGET}) ({blind}) == 1 and max by ({BY_TARGET}) ({_SIZING}) == 1"
    firing = f'ALERTS{{alertname=~"Autoscaler.+", alertstate="firing", {SELECTED}}}'
    return [
        PrometheusAnnotation(
            "Decisions", f"{decided} > 0", BLUE, "{{outcome}}", "{{reason}}", ("outcome", "reason")
        ),
        PrometheusAnnotation(
            "Resizing",
            f"max by ({BY_TARGET}) ({_SIZING}) == 1",
            "super-light-blue",
            "resizing",
            "from the request until the width is proven",
            (),
        ),
        PrometheusAnnotation(
            "Service pause",
            pause,
            "orange",
            "pause",
            "the engine shows no metrics while it resizes",
            (),
        ),
        PrometheusAnnotation(
            "Held by people",
            f"{held} > 0",
            "purple",
            "{{reason}}",
            "paused, overridden, or another writer",
            ("reason",),
        ),
        PrometheusAnnotation(
            "Alerts",
            f"max by (alertname, severity) ({firing})",
            RED,
            "{{alertname}}",
            "{{severity}}",
            ("alertname",),
        ),
    ]


def _now() -> Panels:
    state = f"{gauge('convergence_state', by='state')} == 1"
    return [
        number(
            "Windows met",
            "Share of rolling windows whose p95 time to first token met the objective, over the "
            "time range. Windows without data are left out.",
            "percentunit",
            Query(windows_met(RANGE), "met"),
            decimals=2,
            steps=GOOD_WINDOWS,
        ),
        number(
            "p95 time to first token",
            "Rolling, now. Requests that still wait for theirs are not in it: see the queue.",
            "s",
            Query(signal("ttft_p95_s"), "p95"),
            decimals=2,
        ),
        number(
            "Effective width",
            "Data-parallel ranks that were proven to serve.",
            "short",
            Query(gauge("width", 'kind="effective"'), "effective"),
        ),
        number(
            "GPU-hours",
            "Allocated GPUs over the time range.",
            "short",
            Query(f"{total('gpu_seconds_total')} / 3600", "GPU-hours"),
            decimals=2,
        ),
        number(
            "Resizes",
            "Resizes that were over in the time range, whoever asked and however they went.",
            "short",
            Query(total("resizes_total"), "resizes"),
            decimals=0,
        ),
        number(
            "State",
            "Where the last resize stands.",
            "short",
            Query(state, "{{state}}"),
            mode=BigValueTextMode.NAME,
        ),
    ]


def _objective() -> Panels:
    return [
        lines(
            "p95 time to first token and its objective",
            "Rolling p95 of requests that got a first token, and the same with each failure at "
            "its penalty. Both miss those that still wait. Gaps: no first token, or lost.",
            "s",
            Query(signal("ttft_p95_s"), "p95", BLUE),
            Query(signal("ttft_p95_penalised_s"), "p95 with failures", YELLOW, dashed=True),
            Query(gauge("slo_ttft_p95_seconds"), "objective", RED, dashed=True),
        ),
        lines(
            "Attainment",
            "Share of the window's first tokens within the objective (failures miss), and share "
            "of the windows met: those without a first token while somebody waits are missed.",
            "percentunit",
            Query(gauge("slo_attainment_ratio"), "first tokens", BLUE),
            Query(windows_met(RATE), "windows", GREEN, dashed=True),
            most=1.0,
        ),
    ]


def _width() -> Panels:
    def quantile(q: float) -> str:
        buckets = series("resize_duration_seconds_bucket")
        return f"histogram_quantile({q}, sum by (le, direction) (increase({buckets}[{RANGE}])))"

    return [
        lines(
            "Width",
            "Proposed by the policy, desired by the spec, effective (proven now), stable (proven "
            "last). Marks: decisions, resizes, pauses.",
            "short",
            Query(gauge("width", 'kind="proposed"'), "proposed", YELLOW, dashed=True),
            Query(gauge("width", 'kind="desired"'), "desired", BLUE),
            Query(gauge("width", 'kind="stable"'), "stable", GREY, dashed=True),
            Query(gauge("width", 'kind="effective"'), "effective", GREEN),
            steps=True,
        ),
        lines(
            "GPUs allocated",
            "From the request on until the width is really gone: what is paid for.",
            "short",
            Query(gauge("gpus"), "GPUs"),
            steps=True,
        ),
        timeline(
            "Resize",
            "Where the last resize stands.",
            Query(_numbers("convergence_state", "state", _STATES), "resize"),
            values={number: (text, colour) for number, text, colour in _STATES.values()},
            height=4,
        ),
        lines(
            "Resizes over the time range",
            "How many were over by now, by direction and result.",
            "short",
            Query(
                total("resizes_total", by="direction, result") + " > 0 or on() "
                'label_replace(vector(0), "result", "none", "", "")',
                "{{direction}} {{result}}",
            ),
            steps=True,
            span=16,
        ),
        number(
            "Resize duration",
            "From the patch until the width was proven, resizes of the time range that went well.",
            "s",
            Query(quantile(0.5), "{{direction}} median"),
            Query(quantile(0.95), "{{direction}} p95"),
            span=8,
            decimals=1,
            mode=BigValueTextMode.VALUE_AND_NAME,
            height=8,
        ),
    ]


def _numbers(name: str, label: str, values: dict[str, tuple[int, str, str]], by: str = "") -> str:
    """A state as a number, for a timeline."""
    labels = f"{BY_TARGET}, {by}" if by else BY_TARGET
    parts = [
        f'{number} * ({series(name, f"""{label}=~"{state}" """.strip())} == 1)'
        for state, (number, _, _) in values.items()
    ]
    return f"max by ({labels}) ({' or '.join(parts)})"


def _load() -> Panels:
    return [
        lines(
            "Arrivals against capacity",
            "Arrivals and completions, and what the effective width bears of the present mix "
            "within the objective, where a policy or a shadow knows (model_based does).",
            "reqps",
            Query(signal("arrival_rps"), "arrivals", BLUE),
            Query(signal("completion_rps"), "completions", GREEN),
            Query(gauge("capacity_requests_per_second"), "capacity", RED, dashed=True),
        ),
        lines(
            "Requests that wait and run",
            "Over all live engines.",
            "short",
            Query(signal("queue_depth"), "waiting", YELLOW),
            Query(signal("running"), "running", GREEN),
        ),
        lines(
            "Waiting time and time between tokens",
            "What the queue will cost the newest arrival (waiting over completions a second), and "
            "the p95 time between two tokens.",
            "s",
            Query(signal("queue_wait_s"), "wait in the queue", YELLOW),
            Query(signal("itl_p95_s"), "p95 between tokens", BLUE),
        ),
        lines(
            "Tokens",
            "Prompt tokens taken in, output tokens given.",
            "short",
            Query(signal("prompt_tokens_per_s"), "prompt tokens a second", BLUE),
            Query(signal("output_tokens_per_s"), "output tokens a second", GREEN),
        ),
        lines(
            "Failures",
            "Requests that ended in a failure.",
            "reqps",
            Query(signal("failure_rps"), "failures", RED),
        ),
        lines(
            "KV cache in use",
            "Of the fullest live engine.",
            "percentunit",
            Query(signal("kv_cache_usage_ratio"), "KV cache", BLUE),
            most=1.0,
        ),
    ]


def _decisions() -> Panels:
    return [
        lines(
            "Decisions by reason",
            "Ticks by outcome and reason: hold, or the answer to the write.",
            "short",
            Query(
                grown("decisions_total", by="outcome, reason"),
                "{{outcome}}: {{reason}}",
            ),
            bars=True,
            stacked=True,
        ),
        lines(
            "Shadow policies",
            "What other policies would have asked for on the same observations, beside the "
            "policy's own wish.",
            "short",
            Query(gauge("width", 'kind="proposed"'), "proposed", YELLOW),
            Query(gauge("shadow_width", by="policy"), "{{policy}}", dashed=True),
            steps=True,
        ),
    ]


def _loop() -> Panels:
    buckets = series("tick_duration_seconds_bucket")
    return [
        timeline(
            "Signals",
            "ok: has a value. Little to see: no or few requests, or beyond the last bucket. "
            "Resize: counters were reset, or the window reaches into a resize. Lost: no series, "
            "stale, ambiguous or not finite.",
            Query(_numbers("signal_status", "status", _HEALTH, by="signal"), "{{signal}}"),
            values={number: (text, colour) for number, text, colour in _HEALTH.values()},
            height=12,
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
            "Ticks",
            "How late the last one began, how long they took, and how far apart they are meant "
            "to be.",
            "s",
            Query(gauge("tick_lateness_seconds"), "lateness", YELLOW),
            Query(
                f"histogram_quantile(0.95, sum by (le) (rate({buckets}[{RATE}])))",
                "p95 duration",
                BLUE,
            ),
            Query(gauge("tick_interval_seconds"), "interval", GREY, dashed=True),
            span=8,
        ),
        lines(
            "Ticks done of those due",
            "Below 100 %: the loop is slow, or stands.",
            "percentunit",
            Query(ticks_done(), "done"),
            span=8,
        ),
    ]
