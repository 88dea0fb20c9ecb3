"""Simulated against measured, for the H100 tables: ``python benchmarks/fidelity.py``.

Prints JSON: each cell of the shipped profiles, the errors against their targets, concurrency 64
predicted by a fit to the cells up to 32, and what slots a rank do to the queue; then what
``fidelity_runs.py`` says of the real runs.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fidelity_runs
import numpy as np
from joblib import Parallel, delayed

from autoscaler import profiles
from autoscaler.calibrate import captures, report, runs, tables
from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.shipped import PRIORS, elastic_ep_base
from autoscaler.calibrate.workload import Workload
from autoscaler.profile import Profile

CAPTURES = Path(__file__).parents[1] / "simulations" / "captures"
TRANSPORTS = ("tcp", "rdma")
OUTLIER = ("tcp", 4, 4)
"""Transport, width, concurrency: its TTFT p95 exceeds that of its own concurrency 8."""

TARGETS = {
    "itl_p50_ms_max_ratio": 0.02,
    "output_tok_per_s_median_ratio": 0.025,
    "output_tok_per_s_max_ratio": 0.11,
    "ttft_p95_ms_median_ratio": 0.05,
    "ttft_p50_ms_median_ratio": 0.10,
    "predicted_output_tok_per_s_max_ratio": 0.04,
    "predicted_ttft_p50_ms_max_ratio": 0.12,
}
SLOT_TEST_S = {
    ("tcp", 2): (6.7, 1.4),
    ("rdma", 2): (3.5, 0.22),
    ("tcp", 4): (2.7, 2.7),
    ("rdma", 4): (0.35, 0.35),
}
"""Transport, width: TTFT p50 at concurrency 64 that an earlier model gives for 16 and 64 slots."""


def table(transport: str) -> list[Cell]:
    """The 12 cells of one transport."""
    return captures.read(CAPTURES / f"h100-dsv2lite-elastic-ep-{transport}.csv")


def shipped(transport: str) -> tuple[Profile, Workload]:
    """The shipped profile, and the requests that its fit found."""
    profile = profiles.load(f"h100-dsv2lite-elastic-ep-{transport}")
    return profile, Workload(**profile.fit["workload"])


def errors_of(comparisons: list[report.Comparison], metric: str) -> list[float]:
    """Absolute relative errors of one metric."""
    return [abs(e[metric]) for c in comparisons if metric in (e := c.errors())]


def predicted(transport: str) -> list[report.Comparison]:
    """Concurrency 64, by a fit that saw the cells up to 32."""
    cells = table(transport)
    seen = [c for c in cells if c.concurrency <= 32]
    fit = tables.fit(seen, elastic_ep_base(transport), priors=PRIORS[transport])
    unseen = [c for c in cells if c.concurrency > 32]
    return report.compare(unseen, fit.profile, fit.workload)


def slot_test(transport: str) -> list[dict[str, Any]]:
    """TTFT p50 at concurrency 64 with 16 and with 64 slots a rank, beside the measured one."""
    profile, workload = shipped(transport)
    rows = []
    for cell in table(transport):
        if cell.concurrency != 64:
            continue
        row: dict[str, Any] = {"transport": transport, "width": cell.width}
        for slots, earlier_s in zip((16, 64), SLOT_TEST_S[transport, cell.width], strict=True):
            with_slots = replace(profile, slots_per_rank=slots)
            (comparison,) = report.compare([cell], with_slots, workload)
            ttft_s = comparison.fitted["ttft_p50_ms"] / 1e3
            row[f"slots_{slots}_ttft_p50_s"] = round(ttft_s, 3)
            row[f"slots_{slots}_earlier_model_s"] = earlier_s
        row["measured_16_ttft_p50_s"] = round(cell.measured["ttft_p50_ms"] / 1e3, 3)
        rows.append(row)
    return rows


def h100() -> dict[str, Any]:
    """Everything about the H100 tables."""
    predictions = Parallel(n_jobs=2)(delayed(predicted)(t) for t in TRANSPORTS)
    by_transport = {t: report.compare(table(t), *shipped(t)) for t in TRANSPORTS}
    pooled = [c for cs in by_transport.values() for c in cs]
    kept = [
        c
        for t, cs in by_transport.items()
        for c in cs
        if (t, c.cell.width, c.cell.concurrency) != OUTLIER
    ]
    unseen = [c for cs in predictions for c in cs]
    reached = {
        "itl_p50_ms_max_ratio": max(errors_of(pooled, "itl_p50_ms")),
        "output_tok_per_s_median_ratio": np.median(errors_of(pooled, "output_tok_per_s")),
        "output_tok_per_s_max_ratio": max(errors_of(pooled, "output_tok_per_s")),
        "ttft_p95_ms_median_ratio": np.median(errors_of(kept, "ttft_p95_ms")),
        "ttft_p50_ms_median_ratio": np.median(errors_of(pooled, "ttft_p50_ms")),
        "predicted_output_tok_per_s_max_ratio": max(errors_of(unseen, "output_tok_per_s")),
        "predicted_ttft_p50_ms_max_ratio": max(errors_of(unseen, "ttft_p50_ms")),
    }
    return {
        "targets": {
            name: {
                "target": target,
                "reached": round(float(reached[name]), 4),
                "met": bool(reached[name] <= target),
            }
            for name, target in TARGETS.items()
        },
        "summary": {t: report.summary(cs) for t, cs in by_transport.items()},
        "cells": [{"transport": t} | c.to_dict() for t, cs in by_transport.items() for c in cs],
        "concurrency_64_predicted_from_32": [
            {"transport": t} | c.to_dict()
            for t, cs in zip(TRANSPORTS, predictions, strict=True)
            for c in cs
        ],
        "slot_test": [row for t in TRANSPORTS for row in slot_test(t)],
    }


def main() -> None:
    """Print the result as JSON."""
    started_s = time.perf_counter()
    runs_of = [profiles.load(name) for name in (runs.MOE, runs.H200)]
    result = {"h100": h100(), "runs": fidelity_runs.report(*runs_of)}
    print(json.dumps(result | {"wall_s": round(time.perf_counter() - started_s, 1)}, indent=1))


if __name__ == "__main__":
    main()
