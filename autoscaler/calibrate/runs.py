"""The two deployments that were measured request by request: fitted, checked, written.

``python -m autoscaler.calibrate.runs`` fits both profiles anew from ``simulations/captures`` and
writes them to ``simulations/profiles``: the same input gives the same bytes.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler import profiles
from autoscaler.calibrate.cells import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    QUANTITIES,
    pooled,
    read_cells,
    read_sent,
)
from autoscaler.calibrate.h200 import errors, fit_h200
from autoscaler.calibrate.replay import MeasuredRun, fit_moe, judge, read_run, replay, with_moe
from autoscaler.engine.fleet import Engine, Load
from autoscaler.profile import Profile
from autoscaler.steps import Steps

H200 = "h200-dsv2lite-shape-elastic-ep"
MOE = "qwen3-30b-a3b-dp2-ep"
MOE_WIDTH = 2
FITTED, JUDGED = slice(20, 150), slice(150, 300)
"""Requests of the MoE run whose outcomes the fit sees, and those it is judged on. The first 20, two
seconds, meet kernels that are compiled on first use: no steady state explains their TTFT."""

_UNFITTED = Steps(decode_ms=((1, 1.0),))
_DRAWS = 16

H200_SHAPE = Profile(
    name=H200,
    kind="fitted",
    layout="elastic_ep",
    provenance=(
        "Fitted by autoscaler.calibrate.runs to a run measured for this project: vLLM 0.25.0, two "
        "H200, DeepSeek-V2-Lite shape with dummy weights, TP 1, 16 slots a rank, CUDA graphs, "
        "closed loop, 1,024 prompt and 256 output tokens. kv_token_s and prefill_token2_s are "
        "priors from the model's shape and the GPU's data sheet, not measured; the token budget "
        "is vLLM's default."
    ),
    slots_per_rank=16,
    load_refresh_s=0.1,
    schedule_ahead=True,
    widths={1: _UNFITTED},
)

MOE_SHAPE = Profile(
    name=MOE,
    kind="fitted",
    layout="elastic_ep",
    provenance=(
        "Fitted by autoscaler.calibrate.runs to requests 20 to 149 of 300 of a vLLM 0.19.0 "
        "run, Qwen3-30B-A3B, DP 2 with EP, published by casys-kaist/LLMServingSim (MIT). One "
        "width; at others this is a guess."
    ),
    slots_per_rank=128,
    token_budget=2048,
    load_refresh_s=0.1,
    schedule_ahead=True,
    widths={MOE_WIDTH: _UNFITTED},
)


def moe_report(profile: Profile, run: MeasuredRun) -> dict[str, Any]:
    """The replay of the MoE run against what was measured, by part of the run."""
    predicted = replay(profile, MOE_WIDTH, run)
    parts = {"fitted": FITTED, "judged": JUDGED, "all": slice(0, len(run.queued_s))}
    return {
        f"{name} (requests {part.start} to {part.stop - 1})": judge(run, predicted, part)
        for name, part in parts.items()
    }


def h200_report(profile: Profile, captures: Path) -> dict[str, Any]:
    """Errors of the H200 cells, and summaries of their absolute values."""
    cells = read_cells(captures / f"{H200}.csv")
    ratios = errors(profile, cells, _DRAWS)
    summary = {
        name: {
            "median": round(float(np.median(np.abs(column))), 4),
            "max": round(float(np.max(np.abs(column))), 4),
        }
        for name, column in zip(QUANTITIES, ratios.T, strict=True)
    }
    rows = {
        f"width {cell.width}, concurrency {cell.clients}": {
            name: {
                "measured": round(float(value), 5),
                "predicted": round(float(value * (1 + ratio)), 5),
                "error_ratio": round(float(ratio), 4),
            }
            for name, value, ratio in zip(QUANTITIES, cell.values(), row, strict=True)
        }
        for cell, row in zip(cells, ratios, strict=True)
    }
    return {"absolute_error_ratio": summary, "cells": rows}


def held_out_report(profile: Profile, captures: Path) -> dict[str, Any]:
    """Closed-loop runs around the resizes, which the fit has not seen: TTFT of concurrency 8.

    They show how much of an error is the model's and how much is chance: the same width and
    concurrency was measured several times over.
    """
    sent = read_sent(captures / "h200-dsv2lite-shape-requests.csv")
    report: dict[str, Any] = {}
    runs = sorted({r.run for r in sent if r.clients == 8 or not r.run.startswith("curve")})
    for run in runs:
        for width in profile.known_widths:
            ttft_s = [r.ttft_s for r in sent if (r.run, r.width, r.clients) == (run, width, 8)]
            if not ttft_s:
                continue
            n = len(ttft_s)
            load = Load(np.zeros(n), np.full(n, PROMPT_TOKENS, np.int32), _outputs(n))
            engine = Engine(load, profile.physics(width), clients=8)
            engine.run()
            predicted_s = engine.first_s - engine.arrival_s
            report[f"{run}, width {width}"] = {
                "requests": n,
                **{
                    f"ttft_p{p}_s": {
                        "measured": round(float(np.percentile(ttft_s, p)), 4),
                        "predicted": round(float(np.percentile(predicted_s, p)), 4),
                    }
                    for p in (50, 95)
                },
            }
    return report


def open_loop_report(profile: Profile, requests: int = 2000, seed: int = 1) -> dict[str, Any]:
    """Poisson arrivals at shares of the closed loop's best rate, and prompts of other lengths.

    Nothing is measured here: it shows what the profile says beyond its cells.

    Returns:
        By width: closed-loop requests/s at concurrency 64, and TTFT p50 and p95 by share of it
        (1,024 tokens) and of a lone request by prompt length.
    """
    report: dict[str, Any] = {}
    for width in profile.known_widths:
        physics = profile.physics(width)
        load = Load(np.zeros(512), np.full(512, PROMPT_TOKENS, np.int32), _outputs(512))
        closed = Engine(load, physics, clients=64)
        closed.run()
        closed_rps = 512 / float(closed.finish_s.max())
        by_share = {}
        for share in (0.25, 0.5, 0.75, 1.0):
            generator = np.random.default_rng(seed)
            arrival_s = np.cumsum(generator.exponential(1 / (share * closed_rps), requests))
            prompts = np.full(requests, PROMPT_TOKENS, np.int32)
            engine = Engine(Load(arrival_s, prompts, _outputs(requests)), physics)
            engine.run()
            p50_s, p95_s = np.percentile(engine.first_s - arrival_s, (50, 95))
            by_share[share] = {
                "ttft_p50_s": round(float(p50_s), 3),
                "ttft_p95_s": round(float(p95_s), 3),
            }
        alone = {}
        for tokens in (256, 512, 1024, 2048, 4096, 8000):
            lone = Load(np.arange(16.0) * 10, np.full(16, tokens, np.int32), _outputs(16))
            engine = Engine(lone, physics)
            engine.run()
            alone[tokens] = round(float(np.median(engine.first_s - lone.arrival_s)), 4)
        report[f"width {width}"] = {
            "closed_loop_rps": round(closed_rps, 2),
            "poisson_by_share_of_closed_loop": by_share,
            "lone_ttft_p50_s_by_prompt_tokens": alone,
        }
    return report


def _outputs(requests: int) -> Any:
    return np.full(requests, OUTPUT_TOKENS, np.int32)


def fit_all(captures: Path) -> list[Profile]:
    """Both profiles, fitted anew; each says in ``fit`` how well it does."""
    run = read_run(captures / f"{MOE}-requests.csv")
    moe = with_moe(MOE_SHAPE, MOE_WIDTH, fit_moe(run, FITTED, MOE_SHAPE, MOE_WIDTH))
    sent = read_sent(captures / "h200-dsv2lite-shape-requests.csv")
    h200 = fit_h200(pooled(read_cells(captures / f"{H200}.csv"), sent), H200_SHAPE)
    return [
        replace(moe, fit=moe_report(moe, run)),
        replace(h200, fit=h200_report(h200, captures)),
    ]


def main() -> None:
    """Fit both profiles and write them to the checkout."""
    simulations = Path(__file__).parents[2] / "simulations"
    for profile in fit_all(simulations / "captures"):
        path = simulations / "profiles" / f"{profile.name}.yaml"
        profiles.write(
            profile, path, header="Written by python -m autoscaler.calibrate.runs; do not edit."
        )
        sys.stderr.write(f"{path.name} written\n")


if __name__ == "__main__":
    main()
