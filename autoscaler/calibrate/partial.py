"""Profiles from a handful of cells: a neighbour's step costs, scaled.

Three factors are fitted, on decode steps, on the flat cost of a step that prefills, and on the
cost of prompt tokens. Everything else is the neighbour's, and the profile says so.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.parameters import Prior
from autoscaler.calibrate.search import Vector, rounded, search
from autoscaler.calibrate.tables import Effort, cell_cost, simulate
from autoscaler.calibrate.workload import Workload, uniform_numbers
from autoscaler.profile import Profile
from autoscaler.steps import Steps

SCALES = ("decode", "prefill_flat", "prefill_token")


def scaled(steps: Steps, scales: Sequence[float]) -> Steps:
    """Step costs with the three scales of ``SCALES`` applied."""
    decode, flat, token = scales
    flat_s, token_s, rank_s = rounded(
        np.array(
            [
                flat * steps.prefill_flat_s,
                token * steps.prefill_token_s,
                token * steps.prefill_rank_token_s,
            ]
        )
    )
    return replace(
        steps,
        decode_ms=tuple((batch, float(f"{decode * ms:.5g}")) for batch, ms in steps.decode_ms),
        prefill_flat_s=flat_s,
        prefill_token_s=token_s,
        prefill_rank_token_s=rank_s,
    )


def fit_scales(
    cells: Sequence[Cell], base: Profile, workload: Workload, effort: Effort, *, factor: float
) -> tuple[Profile, dict[str, float]]:
    """The base profile with the scales that explain the cells best, and the scales.

    Args:
        cells: all at the one width of the base profile.
        base: its steps are the neighbour's.
        workload: of the benchmark.
        effort: of the search.
        factor: how far off the neighbour's costs may well be; few cells leave a lot open, and
            without it the search would go anywhere to please them.
    """
    (width,) = base.known_widths

    def profile(vector: Vector) -> Profile:
        scales = rounded(np.exp(vector), 4)
        return replace(base, widths={width: scaled(base.widths[width], scales)})

    def cost(vector: Vector) -> float:
        physics = profile(vector).physics(width)
        known = sum(Prior(1.0, factor).cost(scale) for scale in np.exp(vector))
        return known + sum(
            cell_cost(
                cell,
                simulate(
                    cell,
                    physics,
                    workload,
                    uniform_numbers(cell.requests, effort.draws, effort.seed),
                ),
            )
            for cell in cells
        )

    limit = 3.0 * float(np.log(factor))
    best = search(
        cost,
        [(-limit, limit)] * len(SCALES),
        generations=effort.generations,
        population=effort.population,
        refinements=effort.refinements,
    )
    return profile(best), dict(zip(SCALES, rounded(np.exp(best), 4), strict=True))
