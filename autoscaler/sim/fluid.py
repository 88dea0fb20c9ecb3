"""Requests as a fluid: how much work they are at a width, and what no policy can do without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Load
from autoscaler.engine.physics import Physics
from autoscaler.model import Slo
from autoscaler.sim.resize import ResizeModel

Floats = npt.NDArray[np.float64]

_LATE_RATIO = 0.05
"""What a p95 leaves out."""

_SHORTEST_BLOCK_S = 60.0


@dataclass(frozen=True, slots=True)
class Bound:
    """What keeping the SLO costs at least.

    Args:
        gpu_seconds: by the best choice of blocks.
        infeasible: whether even the largest width is too little for one of the blocks.
    """

    gpu_seconds: float
    infeasible: bool


def request_seconds(physics: Physics, load: Load, *, alone: bool = False) -> Floats:
    """Engine time that each request takes at least.

    A step lasts max(d, p) + mixed_share x min(d, p) for its decode part d and its prefill part p,
    and so at least d + mixed_share x p. d is shared by all who decode, at best by full ranks; p
    by all who prefill, at best by full token budgets.

    Args:
        physics: of one width.
        load: the requests.
        alone: each prompt in a step of its own, as scattered arrivals have it, in place of the
            best case: an estimate then, no bound.

    Returns:
        float64[n], seconds.
    """
    batches = np.arange(1, physics.slots_per_rank + 1)
    token_s = float((physics.decode_s[1:] / batches).min()) / physics.ranks
    # The prefill itself yields the first token.
    decode_s = (np.maximum(load.output_tokens, 1) - 1) * token_s
    prompts = np.maximum(load.prompt_tokens, 1)
    prefill_s = prompts * (
        physics.prefill_token_s + physics.prefill_rank_token_s / (1 if alone else physics.ranks)
    )
    share = 1.0 if alone else prompts / (physics.token_budget * physics.ranks)
    prefill_s = prefill_s + physics.prefill_flat_s * share
    return np.asarray(decode_s + physics.mixed_share * prefill_s, np.float64)


def least_seconds(load: Load, physics: Mapping[int, Physics]) -> dict[int, Floats]:
    """By width, float64[n]: the engine time that each request takes at best."""
    return {w: request_seconds(p, load) for w, p in physics.items()}


def busy_seconds(
    load: Load, physics: Mapping[int, Physics], saturated_rps: Mapping[int, float]
) -> dict[int, Floats]:
    """By width, float64[n]: the engine time that each request takes where a queue never empties.

    Args:
        load: the requests.
        physics: by width.
        saturated_rps: of the same widths: what the engine serves of this mix with a full queue.
    """
    seconds = {}
    for width, rps in saturated_rps.items():
        alone = request_seconds(physics[width], load, alone=True)
        mean_s = float(alone.mean())
        even = np.ones(len(alone))
        seconds[width] = (alone / mean_s if mean_s > 0 else even) / rps
    return seconds


def lower_bound(
    load: Load,
    seconds: Mapping[int, Floats],
    gpus: Mapping[int, int],
    slots: int,
    slo: Slo,
    resize: ResizeModel,
    initial_width: int,
) -> Bound:
    """GPU-seconds that every policy needs which keeps the SLO in all windows.

    Time is cut into equal blocks. No request is served before it comes, and those that are in
    the system at the end of a block are few: all slots full, and a queue as long as the SLO
    permits. All other work of a block is done in it, at best by a mixture of widths, resizes for
    nothing. The best of several block lengths counts. Assumes that requests are served in the
    order they came, and that a block's mix of lengths is served at all of its widths alike.

    Args:
        load: what arrives, at least one request.
        seconds: of every permitted width, float64[n]: engine time of each request. With
            ``least_seconds`` no policy can beat the result; with ``busy_seconds`` it is higher,
            and only one whose requests come in step could.
        gpus: of every permitted width.
        slots: requests in execution at most, at any of the widths.
        slo: the objective.
        resize: says whether requests may fail instead of being served, and whether the width may
            fall below the first one.
        initial_width: the first one.
    """
    widths = sorted(seconds)
    if resize.scale_up_only:
        widths = [w for w in widths if w >= initial_width]
    duration_s = float(load.arrival_s[-1])
    order = seconds[widths[0]]
    # p95: the late ones of a window, and those that are not late yet.
    patience_s = slo.ttft_p95_s + _LATE_RATIO * slo.window_s
    kept = 1.0 if _serves_all(resize) else 1.0 - _LATE_RATIO
    best, infeasible = float(gpus[widths[0]] * duration_s), False
    count = 1
    while duration_s / count >= _SHORTEST_BLOCK_S:
        edges = np.linspace(0.0, duration_s, count + 1)
        cuts = np.searchsorted(load.arrival_s, edges)
        cuts[-1] = len(load.arrival_s)
        total = 0.0
        for begin, end, begin_s, end_s in zip(
            cuts[:-1], cuts[1:], edges[:-1], edges[1:], strict=True
        ):
            patient = end - np.searchsorted(load.arrival_s[:end], end_s - patience_s)
            own = _done(order[begin:end], slots + int(patient))
            needed = [kept * float(seconds[w][begin:end].sum()) * own for w in widths]
            cost, beyond = _cheapest(needed, [gpus[w] for w in widths], end_s - begin_s)
            total += cost
            infeasible |= beyond
        best = max(best, total)
        count *= 2
    return Bound(float(best), infeasible)


def _serves_all(resize: ResizeModel) -> bool:
    """Whether no resize ever turns a request away or cuts one off."""
    return (
        resize.new == "queue"
        and resize.in_flight == "keep"
        and resize.leaving == "drain"
        and not (resize.fail_probability and resize.failure_outage_s)
    )


def _done(work: Floats, left: int) -> float:
    """Share of a block's work that is left to it if its ``left`` heaviest requests are put off."""
    if left >= len(work):
        return 0.0
    heaviest = np.partition(work, len(work) - left)[len(work) - left :] if left else work[:0]
    total = float(work.sum())
    return (total - float(heaviest.sum())) / total if total > 0 else 0.0


def _cheapest(
    needed_s: Sequence[float], gpus: Sequence[int], length_s: float
) -> tuple[float, bool]:
    """Least GPU-seconds for the work of one block, and whether no width is enough.

    Two widths are enough for the best mixture: it lies on the lower hull of (share of the work
    done if the whole block went by at a width, GPUs).
    """
    done = [np.inf if s <= 0 else length_s / s for s in needed_s]
    cheapest = np.inf
    for low, low_gpus in zip(done, gpus, strict=True):
        if low >= 1.0:
            cheapest = min(cheapest, low_gpus)
            continue
        for high, high_gpus in zip(done, gpus, strict=True):
            if high >= 1.0:
                share = 0.0 if np.isinf(high) else (1.0 - low) / (high - low)
                cheapest = min(cheapest, low_gpus + share * (high_gpus - low_gpus))
    if np.isinf(cheapest):
        return max(gpus) * length_s, True
    return float(cheapest) * length_s, False
