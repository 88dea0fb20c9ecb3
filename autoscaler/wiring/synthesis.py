"""The synthetic load of a scenario to a trace: reads its files, draws its requests."""

import numpy as np
import numpy.typing as npt

from autoscaler.errors import ConfigError
from autoscaler.synthetic import Synth
from autoscaler.traces import Lengths, RateProfile, Trace, load, load_curve, synth


def rate_of(recipe: Synth) -> RateProfile:
    """The rate over time, from second 0 on.

    Raises:
        ConfigError: a rate that no load can have.
        TraceError: the curve's file is unusable.
    """
    if recipe.curve is not None:
        return _curve(recipe.curve, recipe)
    pieces = recipe.rate * recipe.repeat
    edges = np.concatenate(([0.0], np.cumsum([piece.duration_s for piece in pieces])))
    return RateProfile(
        edges,
        np.array([piece.begin_rps for piece in pieces]),
        np.array([piece.end_rps for piece in pieces]),
    )


def draw(recipe: Synth, seed: int) -> Trace:
    """The requests; equal recipes and seeds give equal traces.

    Args:
        recipe: the load.
        seed: where the recipe has none of its own.

    Raises:
        ConfigError, TraceError: see ``rate_of``; also an unusable trace of lengths.
    """
    rng = np.random.default_rng(seed if recipe.seed is None else recipe.seed)
    return synth(
        rate_of(recipe),
        rng,
        cv=recipe.cv,
        requests=recipe.requests,
        prompt=Lengths(recipe.prompt_tokens, recipe.prompt_cv),
        output=Lengths(recipe.output_tokens, recipe.output_cv),
        lengths_of=None if recipe.lengths_from is None else load(recipe.lengths_from),
    )


def _curve(path: str, recipe: Synth) -> RateProfile:
    curve = load_curve(path, scale=recipe.rate_scale)
    curve = curve.clipped(recipe.curve_start_s, recipe.curve_duration_s)
    edges = curve.edges_s - float(curve.edges_s[0])
    if recipe.curve_mean_s is None:
        return RateProfile(edges / recipe.time_scale, curve.from_rps, curve.to_rps)
    count = int(float(edges[-1]) / recipe.curve_mean_s)
    if count < 2:
        raise ConfigError(
            f"curve_mean_s: must go at least twice into the curve's {edges[-1]:g} s; "
            f"got {recipe.curve_mean_s:g}"
        )
    bounds = recipe.curve_mean_s * np.arange(count + 1, dtype=np.float64)
    means = np.diff(_integral(edges, curve, bounds)) / recipe.curve_mean_s
    middles = (bounds[:-1] + bounds[1:]) / 2
    return RateProfile((middles - middles[0]) / recipe.time_scale, means[:-1], means[1:])


def _integral(
    edges: npt.NDArray[np.float64], curve: RateProfile, at_s: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Requests by each of ``at_s``; the curve is constant between its edges."""
    total = np.concatenate(([0.0], np.cumsum(curve.from_rps * np.diff(edges))))
    return np.interp(at_s, edges, total)
