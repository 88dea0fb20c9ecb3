"""How many requests a second a fleet bears open loop: the largest rate that keeps a TTFT target.

Closed-loop tables overstate it: their clients fall into step and are prefilled together, while
scattered arrivals cost a prefill step each. So the rate is searched with scattered arrivals.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.physics import Physics


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a fleet at capacity still achieves.

    Args:
        ttft_s: target of the percentile.
        percentile: of the time to first token over all requests, 0..100.
        duration_s: of the arrivals; the longer, the closer to the rate that lasts for ever.
    """

    ttft_s: float = 5.0
    percentile: float = 95.0
    duration_s: float = 3600.0


def poisson_load(
    rate_rps: float,
    duration_s: float,
    prompt_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    seed: int,
) -> Load:
    """Poisson arrivals whose lengths go round the given ones.

    Args:
        rate_rps: requests a second, > 0.
        duration_s: of the arrivals; there are rate x duration of them.
        prompt_tokens: int32[k], k >= 1: the mix of lengths.
        output_tokens: int32[k], pairwise.
        seed: equal seeds give the same arrivals, stretched to the rate.
    """
    n = max(round(rate_rps * duration_s), 1)
    gaps_s = np.random.default_rng(seed).exponential(1.0 / rate_rps, n)
    pick = np.arange(n) % len(prompt_tokens)
    return Load(
        np.cumsum(gaps_s),
        np.ascontiguousarray(prompt_tokens[pick], np.int32),
        np.ascontiguousarray(output_tokens[pick], np.int32),
    )


def holds(physics: Physics, load: Load, criterion: Criterion) -> bool:
    """Whether the fleet, empty at first, serves the load within the criterion."""
    engine = Engine(load, physics)
    engine.run()
    ttft_s = np.percentile(engine.first_s - engine.arrival_s, criterion.percentile)
    return bool(ttft_s < criterion.ttft_s)


def capacity_rps(
    physics: Physics,
    prompt_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
    *,
    criterion: Criterion | None = None,
    tolerance: float = 0.01,
    seed: int = 0,
) -> float:
    """The largest Poisson rate that the fleet bears, by bisection.

    Args:
        physics: the step model.
        prompt_tokens: int32[k]: the mix of lengths.
        output_tokens: int32[k], pairwise.
        criterion: what "bears" means; default: p95 TTFT under 5 s over an hour.
        tolerance: relative width of the last interval.
        seed: of the arrivals.

    Returns:
        The lower end of the last interval: a rate that was seen to hold; 0.0: not even the
        least rate tried does (one request in ten durations).
    """
    criterion = criterion or Criterion()

    def bears(rate_rps: float) -> bool:
        duration_s = criterion.duration_s
        load = poisson_load(rate_rps, duration_s, prompt_tokens, output_tokens, seed)
        return holds(physics, load, criterion)

    # Decode alone bounds the rate from above: all slots busy, no time for prompts.
    slots = physics.ranks * physics.slots_per_rank
    high = 1.01 * slots / (float(output_tokens.mean()) * float(physics.decode_s[-1])) + 1e-9
    low = 0.0
    while bears(high):
        low, high = high, 2.0 * high
    least = 0.1 / criterion.duration_s
    while high - low > tolerance * high and high > least:
        middle = 0.5 * (low + high)
        if bears(middle):
            low = middle
        else:
            high = middle
    return low


def saturated_rps(
    physics: Physics, prompt_tokens: npt.NDArray[np.int32], output_tokens: npt.NDArray[np.int32]
) -> float:
    """Requests a second that a fleet serves while its queue is never empty.

    Args:
        physics: the step model.
        prompt_tokens: int32[k], k >= 1: the mix of lengths, all there from the start.
        output_tokens: int32[k], pairwise.
    """
    engine = Engine(Load(np.zeros(len(prompt_tokens)), prompt_tokens, output_tokens), physics)
    engine.run()
    # The slots fill at once at the start, and empty one by one at the end: neither lasts.
    finish_s = np.sort(engine.finish_s)
    first, last = len(finish_s) // 5, len(finish_s) - 1 - len(finish_s) // 5
    span_s = float(finish_s[last] - finish_s[first])
    return (last - first) / span_s if span_s > 0 else len(finish_s) / float(finish_s[-1])
