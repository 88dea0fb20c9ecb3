"""The same closed loop many times over, with other output lengths each time, in one call.

A benchmark table holds one draw of the output lengths, which nobody knows; a closed loop is
chaotic enough for that to matter. So what a model says of a cell is a distribution over draws.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import ITL_FINE_FLOOR_S, ITL_FINE_LOG_STEP
from autoscaler.engine.loop import advance
from autoscaler.engine.physics import Physics


@dataclass(frozen=True, slots=True)
class Draws:
    """What one closed loop gave, draw by draw.

    Args:
        arrival_s, first_s, finish_s: float64[draws, n]: sent, first token, last token.
        output_tokens: int32[draws, n].
        itl_fine: int64[ITL_FINE_BINS], gaps between tokens of all draws by ``layout``'s fine bins.
    """

    arrival_s: npt.NDArray[np.float64]
    first_s: npt.NDArray[np.float64]
    finish_s: npt.NDArray[np.float64]
    output_tokens: npt.NDArray[np.int32]
    itl_fine: npt.NDArray[np.int64]

    def ttft_s(self, percentile: float) -> npt.NDArray[np.float64]:
        """float64[draws]: percentile (0..100) of the time to first token, as numpy interpolates."""
        return percentile_rows(self.first_s - self.arrival_s, percentile)

    def tpot_s(self, percentile: float) -> npt.NDArray[np.float64]:
        """float64[draws]: percentile (0..100) over requests of the mean gap between tokens."""
        gaps = np.maximum(self.output_tokens - 1, 1)
        return percentile_rows((self.finish_s - self.first_s) / gaps, percentile)

    def itl_s(self, percentile: float) -> float:
        """Percentile (0..100) over all gaps between tokens of all draws, within 0.1 %."""
        below = np.cumsum(self.itl_fine)
        at = int(np.searchsorted(below, below[-1] * (percentile / 100)))
        return float(ITL_FINE_FLOOR_S * np.exp((at + 0.5) * ITL_FINE_LOG_STEP))

    def output_tokens_per_s(self) -> npt.NDArray[np.float64]:
        """float64[draws]: all output tokens over the time from the start to the last token."""
        return np.asarray(self.output_tokens.sum(axis=1) / self.finish_s.max(axis=1))


def percentile_rows(values: npt.NDArray[np.float64], percentile: float) -> npt.NDArray[np.float64]:
    """What ``np.percentile(values, percentile, axis=1)`` gives, at a tenth of its overhead.

    Args:
        values: float64[rows, n], n >= 1.
        percentile: 0..100, linear between neighbours.

    Returns:
        float64[rows].
    """
    ordered = np.sort(values, axis=1)
    position = percentile / 100 * (values.shape[1] - 1)
    below = int(position)
    above = min(below + 1, values.shape[1] - 1)
    share = position - below
    return np.asarray(ordered[:, below] + share * (ordered[:, above] - ordered[:, below]))


def closed_loop(
    physics: Physics,
    clients: int,
    prompt_tokens: npt.NDArray[np.int32],
    output_tokens: npt.NDArray[np.int32],
) -> Draws:
    """Serve every draw to its end, each on an empty fleet; all clients start at time 0.

    Args:
        physics: the step model.
        clients: requests outstanding at once.
        prompt_tokens: int32[n].
        output_tokens: int32[draws, n], >= 1.
    """
    draws, n = output_tokens.shape
    # A copy: every draw is written there in turn.
    load = Load(np.zeros(n), prompt_tokens, output_tokens[0].copy())
    engine = Engine(load, physics, clients=clients)
    times_s = np.zeros((3, draws, n))
    _run(output_tokens, times_s, engine._arguments)  # noqa: SLF001  # the same package
    return Draws(times_s[0], times_s[1], times_s[2], output_tokens, engine.itl_fine)


# Not cached: numba would not notice that the loop it calls has changed.
@njit(nogil=True, error_model="numpy")
def _run(output_tokens, times_s, arguments):  # type: ignore[no-untyped-def]
    (
        state, physics, ranks, arrival_s, prompt, output, first_s, finish_s, outcome, link,
        slots, heap, first_request, first_rank, decode_s, ttft_bounds, ttft_counts,
        itl_bounds, itl_counts, itl_fine,
    ) = arguments  # fmt: skip
    state_0 = state.copy()
    ranks_0 = ranks.copy()
    slots_0 = slots.copy()
    arrival_0 = arrival_s.copy()
    for draw in range(output_tokens.shape[0]):
        state[:] = state_0
        ranks[:] = ranks_0
        slots[:] = slots_0
        arrival_s[:] = arrival_0
        output[:] = output_tokens[draw]
        outcome[:] = 0
        link[:] = -1
        advance(
            np.inf, state, physics, ranks, arrival_s, prompt, output, first_s, finish_s, outcome,
            link, slots, heap, first_request, first_rank, decode_s, ttft_bounds, ttft_counts,
            itl_bounds, itl_counts, itl_fine,
        )  # fmt: skip
        times_s[0, draw] = arrival_s
        times_s[1, draw] = first_s
        times_s[2, draw] = finish_s
