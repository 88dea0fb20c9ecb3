"""Global, then local search for the parameters that explain a measurement best."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution, minimize

Vector = npt.NDArray[np.float64]


def robust(residuals: Vector) -> float:
    """Sum of soft absolute values, 2 (sqrt(1 + r^2) - 1): an outlier counts, but not its square.

    Args:
        residuals: any shape, in units of what counts as a small error.
    """
    return float(np.sum(2.0 * (np.sqrt(1.0 + np.square(residuals)) - 1.0)))


def search(
    cost: Callable[[Vector], float],
    bounds: Sequence[tuple[float, float]],
    *,
    generations: int,
    population: int,
    refinements: int,
    starts: int = 1,
) -> Vector:
    """The argument of the least cost: differential evolution, then Nelder-Mead from its best.

    A replay is a step function of its parameters, so neither may use gradients. Equal calls give
    equal results.

    Args:
        cost: of one parameter vector.
        bounds: lower and upper limit of each parameter.
        generations: of the evolution.
        population: of the evolution, a multiple of the number of parameters.
        refinements: evaluations for the local search.
        starts: searches, each with a seed of its own; the least cost of all counts.
    """
    found = []
    for seed in range(1, starts + 1):
        globally = differential_evolution(
            cost, bounds, maxiter=generations, popsize=population, tol=1e-6, seed=seed, polish=False
        )
        locally = minimize(
            cost,
            globally.x,
            method="Nelder-Mead",
            bounds=bounds,
            options={"maxfev": refinements, "xatol": 1e-12, "fatol": 1e-6},
        )
        found += [globally, locally]
    best = min(found, key=lambda result: result.fun)
    return np.asarray(best.x, np.float64)


def rounded(values: Vector, digits: int = 5) -> list[float]:
    """Parameters to so many significant digits, so that a file says no more than it knows."""
    return [float(f"{value:.{digits}g}") for value in values]
