"""Measured against fitted, cell by cell: for people, for JSON, and for the profile itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoscaler.calibrate.captures import METRICS, Cell
from autoscaler.calibrate.tables import Fit, simulate
from autoscaler.calibrate.workload import Workload, uniform_numbers
from autoscaler.profile import Profile


@dataclass(frozen=True, slots=True)
class Comparison:
    """One cell.

    Args:
        cell: as measured.
        fitted: metric name: what the model says, the median over draws.
    """

    cell: Cell
    fitted: Mapping[str, float]

    def errors(self) -> dict[str, float]:
        """Metric name: fitted / measured - 1."""
        return {m: self.fitted[m] / v - 1.0 for m, v in self.cell.measured.items()}

    def to_dict(self) -> dict[str, Any]:
        """``{width, concurrency, <metric>: {measured, fitted, error_ratio}, ...}``."""
        errors = self.errors()
        return {"width": self.cell.width, "concurrency": self.cell.concurrency} | {
            metric: {
                "measured": value,
                "fitted": float(f"{self.fitted[metric]:.5g}"),
                "error_ratio": round(errors[metric], 4),
            }
            for metric, value in self.cell.measured.items()
        }


def compare(
    cells: Sequence[Cell], profile: Profile, workload: Workload, *, draws: int = 200, seed: int = 1
) -> list[Comparison]:
    """Every cell simulated with the profile, ascending by width and concurrency.

    The draws are other ones than those that a fit with the default seed looks at.
    """
    return [
        Comparison(
            cell,
            simulate(
                cell,
                profile.physics(cell.width),
                workload,
                uniform_numbers(cell.requests, draws, seed),
            ),
        )
        for cell in sorted(cells, key=lambda c: (c.width, c.concurrency, c.prompt_tokens))
    ]


def summary(comparisons: Sequence[Comparison]) -> dict[str, dict[str, float]]:
    """Metric name: ``{median_ratio, max_ratio}`` of the absolute relative errors."""
    result = {}
    for metric in METRICS:
        errors = [abs(e[metric]) for c in comparisons if metric in (e := c.errors())]
        if errors:
            result[metric] = {
                "median_ratio": round(float(np.median(errors)), 4),
                "max_ratio": round(max(errors), 4),
            }
    return result


def text(comparisons: Sequence[Comparison]) -> str:
    """A table: one line a cell and metric, and the summary."""
    lines = [
        f"{'width':>5} {'conc.':>5} {'metric':<17} {'measured':>10} {'fitted':>10} {'error':>8}"
    ]
    for comparison in comparisons:
        errors = comparison.errors()
        for metric, value in comparison.cell.measured.items():
            lines.append(
                f"{comparison.cell.width:>5} {comparison.cell.concurrency:>5} {metric:<17} "
                f"{value:>10.2f} {comparison.fitted[metric]:>10.2f} {errors[metric]:>+8.1%}"
            )
    lines.append("")
    for metric, both in summary(comparisons).items():
        lines.append(f"{metric:<17} median {both['median_ratio']:.1%}, max {both['max_ratio']:.1%}")
    return "\n".join(lines)


def workload_dict(workload: Workload) -> dict[str, float]:
    """The arguments of ``Workload``, for a profile to keep."""
    return {"cap_share": workload.cap_share, "mean_share": round(workload.mean_share, 4)}


def described(fit: Fit, comparisons: Sequence[Comparison], captures: Sequence[str]) -> Profile:
    """The fitted profile with what the fit says about itself.

    Args:
        fit: of ``tables.fit``.
        comparisons: of the cells it was fitted to.
        captures: file names, without folders, so that a profile is the same on every machine.
    """
    content = {
        "captures": list(captures),
        "seed": fit.effort.seed,
        "workload": workload_dict(fit.workload),
        "pooled": {
            "token_s": fit.fitted.token_s,
            "network_token_s": fit.fitted.network_token_s,
            "rank_token_s": fit.fitted.rank_token_s,
        },
        "errors": summary(comparisons),
        "cells": [c.to_dict() for c in comparisons],
    }
    return replace(fit.profile, fit=content)
