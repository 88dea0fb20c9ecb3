"""Fits a profile to closed-loop tables: every cell is simulated, as often as it takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.parameters import Fitted, Prior, bounds, staircases
from autoscaler.calibrate.search import Vector, search
from autoscaler.calibrate.workload import EARLY_STOP_MEAN_SHARE, Workload, uniform_numbers
from autoscaler.engine.draws import closed_loop, percentile_rows
from autoscaler.engine.physics import Physics
from autoscaler.errors import ConfigError
from autoscaler.profile import SCHEMA, Profile
from autoscaler.steps import Steps

WEIGHTS = {
    "ttft_p50_ms": 1.5,
    "ttft_p95_ms": 1.5,
    "tpot_p50_ms": 1.0,
    "itl_p99_ms": 0.5,
    "output_tok_per_s": 5.0,
}
"""By metric: how much an error counts. Throughput is repeatable, a closed loop's TTFT is not.
ITL p50 is absent: it is read off, see ``staircases``."""

_SMALL_ERROR = 0.05
"""Relative errors below count as their square, above as themselves: one odd cell is just that."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search.

    Args:
        generations, population, refinements: as in ``search``.
        draws: of the output lengths, a cell and evaluation.
        judged_draws: of others, to report with.
        seed: of the draws; equal seeds give equal profiles.
    """

    generations: int = 60
    population: int = 8
    refinements: int = 500
    draws: int = 16
    judged_draws: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted profile and what it was fitted to.

    Args:
        profile: without provenance of the fit; ``report.described`` adds it.
        fitted: the parameters.
        workload: what the requests are taken to be like.
        effort: of the search.
        cost: of the best parameters.
    """

    profile: Profile
    fitted: Fitted
    workload: Workload
    effort: Effort
    cost: float


def unfitted(name: str, layout: str, provenance: str, **given: object) -> Profile:
    """A profile with everything but its costs."""
    return Profile.from_dict(
        {
            "schema": SCHEMA,
            "name": name,
            "kind": "fitted",
            "layout": layout,
            "provenance": provenance,
            "widths": {1: Steps(((1, 1.0),)).to_dict()},
            **given,
        },
        name,
    )


def simulate(
    cell: Cell,
    physics: Physics,
    workload: Workload,
    uniform: npt.NDArray[np.float64],
) -> dict[str, float]:
    """What the model says of a cell: each metric's median over draws of the output lengths.

    Args:
        cell: how many clients and requests, and how long the prompts are.
        physics: the step model at the cell's width.
        workload: how long the outputs are.
        uniform: from ``uniform_numbers`` for the cell's requests.
    """
    if cell.output_tokens_mean is not None:
        workload = replace(workload, mean_share=cell.output_tokens_mean / cell.output_tokens)
    outputs = workload.output_tokens(cell.output_tokens, uniform)
    prompts = np.full(cell.requests, cell.prompt_tokens, np.int32)
    draws = closed_loop(physics, cell.concurrency, prompts, outputs)
    return {
        "ttft_p50_ms": _median(draws.ttft_s(50)) * 1e3,
        "ttft_p95_ms": _median(draws.ttft_s(95)) * 1e3,
        "tpot_p50_ms": _median(draws.tpot_s(50)) * 1e3,
        "itl_p50_ms": draws.itl_s(50) * 1e3,
        "itl_p99_ms": draws.itl_s(99) * 1e3,
        "output_tok_per_s": _median(draws.output_tokens_per_s()),
    }


def _median(values: Vector) -> float:
    return float(percentile_rows(values[np.newaxis], 50)[0])


def fit(
    cells: Sequence[Cell],
    base: Profile,
    *,
    early_stops: bool = True,
    priors: Mapping[str, Prior] | None = None,
    effort: Effort | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """The profile whose simulated cells come closest to the measured ones.

    Args:
        cells: all of one deployment.
        base: name, layout, TP, slots and the like; its costs are replaced.
        early_stops: whether outputs may stop before the cap.
        priors: what is known of parameters, by their name in ``parameters.NAMES``.
        effort: of the search.
        progress: is told the number of evaluations so far.

    Raises:
        ConfigError: a width without a single ITL p50, or no cell at all.
    """
    effort = effort or Effort()
    priors = priors or {}
    widths = sorted({c.width for c in cells})
    ranks_of = {w: 1 if base.layout == "wide_tp" else w for w in widths}
    knots = staircases(cells, base.slots_per_rank, ranks_of)
    for width in widths:
        if not knots[width]:
            raise ConfigError(f"width {width}: needs a cell with itl_p50_ms; got none")
    mean_share = EARLY_STOP_MEAN_SHARE if early_stops else 1.0
    uniform = {
        n: uniform_numbers(n, effort.draws, effort.seed) for n in {c.requests for c in cells}
    }
    evaluations = 0

    def cost(vector: Vector) -> float:
        nonlocal evaluations
        evaluations += 1
        if progress is not None:
            progress(evaluations)
        fitted = Fitted.from_vector(vector, widths)
        physics = _physics(fitted.apply(base, knots), widths)
        workload = fitted.workload(mean_share)
        known = sum(prior.cost(getattr(fitted, name)) for name, prior in priors.items())
        return known + sum(
            cell_cost(cell, simulate(cell, physics[cell.width], workload, uniform[cell.requests]))
            for cell in cells
        )

    best = search(
        cost,
        bounds(cells, priors, early_stops=early_stops),
        generations=effort.generations,
        population=effort.population,
        refinements=effort.refinements,
    )
    fitted = Fitted.from_vector(best, widths)
    return Fit(fitted.apply(base, knots), fitted, fitted.workload(mean_share), effort, cost(best))


def cell_cost(cell: Cell, simulated: Mapping[str, float]) -> float:
    """How far a simulated cell is from the measured one; 0: equal.

    Left out are ITL p99 where prompts are too few to make up a hundredth of the gaps, and TTFT
    p95 of a single client, which is the machine's own noise: the model's requests are all alike.
    """
    total = 0.0
    for metric, weight in WEIGHTS.items():
        if metric not in cell.measured:
            continue
        if metric == "itl_p99_ms" and cell.concurrency < 8:
            continue
        if metric == "ttft_p95_ms" and cell.concurrency < 2:
            continue
        error = np.log(simulated[metric] / cell.measured[metric]) / _SMALL_ERROR
        total += weight * float(np.sqrt(1.0 + error**2) - 1.0)
    return total


def evaluations(effort: Effort, cells: Sequence[Cell]) -> int:
    """About how many evaluations a fit takes, for a progress bar."""
    parameters = 7 + len({c.width for c in cells})
    return (effort.generations + 1) * effort.population * parameters + effort.refinements


def _physics(profile: Profile, widths: Sequence[int]) -> dict[int, Physics]:
    return {width: profile.physics(width) for width in widths}
