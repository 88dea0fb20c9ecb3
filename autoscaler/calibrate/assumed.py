"""Profiles that nobody measured: families of supposed capacity, for studies of policies."""

from dataclasses import replace

import numpy as np

from autoscaler.calibrate.search import rounded
from autoscaler.engine.capacity import Criterion, capacity_rps, holds, poisson_load
from autoscaler.profile import SCHEMA, Profile
from autoscaler.steps import Steps

PROMPT = np.array([1024], np.int32)
OUTPUT = np.array([256], np.int32)

CAPACITY_PER_WIDTH_RPS = 5.0
"""Of ``assumed-wide``, for 1,024 prompt and 256 output tokens."""

_HALVINGS = 14


def ramp_family(capacity_at_16_rps: float) -> Profile:
    """TP 1, capacity linear in width: the ramp of the near-zero-downtime Elastic EP study.

    The study states neither token lengths nor slots nor a capacity; 16 GPUs, TP 1, must lie
    between 12.8 and 16 requests/s for its outcome, if capacity is linear.
    """
    name = f"gb200-ramp-{capacity_at_16_rps:g}"
    return Profile.from_dict(
        {
            "schema": SCHEMA,
            "name": name,
            "kind": "assumed",
            "layout": "elastic_ep",
            "provenance": (
                "Assumed, measured by nobody: capacity linear in width, "
                f"{capacity_at_16_rps:g} requests/s at width 16, for the ramp of 8 to 16 "
                "requests/s of the near-zero-downtime Elastic EP study. Token lengths (1,024 / "
                "256), 16 slots a rank and free prefill are assumptions too; a decode step lasts "
                "what that capacity implies."
            ),
            "tp": 1,
            "slots_per_rank": 16,
            "reference_prompt_tokens": 1024,
            "reference_output_tokens": 256,
            "capacity_rps_by_width": {w: w * capacity_at_16_rps / 16 for w in range(1, 33)},
        },
        name,
    )


def assumed_wide(rdma: Profile) -> Profile:
    """TP 1, widths 2 to 16: decode as the RDMA fit at width 2, prefill as cheap as it takes.

    Prefill is scaled at each even width until the largest Poisson rate of 1,024 / 256 requests
    that keeps p95 TTFT under 5 s for an hour is 5 requests/s x width; then that rate is measured.

    Args:
        rdma: fitted profile with a width 2.
    """
    base = replace(
        rdma,
        name="assumed-wide",
        kind="assumed",
        tp=1,
        reference_prompt_tokens=1024,
        reference_output_tokens=256,
        provenance=(
            "Assumed, measured by nobody: decode steps of h100-dsv2lite-elastic-ep-rdma at width "
            "2 at every width, prefill costs scaled down until the open-loop capacity is about 5 "
            "requests/s x width (fit.capacity_rps_by_width: largest Poisson rate of 1,024 / 256 "
            "requests that keeps p95 TTFT under 5 s for an hour)."
        ),
    )
    criterion = Criterion()
    widths: dict[int, Steps] = {}
    measured: dict[int, float] = {}
    scales: dict[int, float] = {}
    for width in range(2, 17, 2):
        load = poisson_load(
            CAPACITY_PER_WIDTH_RPS * width, criterion.duration_s, PROMPT, OUTPUT, seed=1
        )
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            scale = 0.5 * (low + high)
            steps = _scaled(rdma.widths[2], scale)
            physics = replace(base, widths={width: steps}).physics(width)
            low, high = (scale, high) if holds(physics, load, criterion) else (low, scale)
        (scales[width],) = rounded(np.array([low]), 3)
        widths[width] = _scaled(rdma.widths[2], scales[width])
        physics = replace(base, widths={width: widths[width]}).physics(width)
        (measured[width],) = rounded(np.array([capacity_rps(physics, PROMPT, OUTPUT)]), 4)
    fit = {"prefill_scale_by_width": scales, "capacity_rps_by_width": measured}
    return replace(base, widths=widths, fit=fit)


def _scaled(steps: Steps, scale: float) -> Steps:
    flat_s, token_s, rank_s = rounded(
        scale * np.array([steps.prefill_flat_s, steps.prefill_token_s, steps.prefill_rank_token_s])
    )
    return replace(
        steps, prefill_flat_s=flat_s, prefill_token_s=token_s, prefill_rank_token_s=rank_s
    )
