"""What a benchmark's requests are like: prompts of one length, outputs with a cap and early stops.

Tables give the cap only. Early stops matter: requests that reach the cap together come back
together, and their prompts are prefilled in one step.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EARLY_STOP_MEAN_SHARE = 237 / 256
"""Mean output over the cap in the H100 tables, from output tokens/s against TTFT and TPOT."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Output lengths: a share at the cap, the others uniform from some length to the cap.

    Args:
        cap_share: share of requests that reach the cap, 0..1; 1: no early stops.
        mean_share: mean output over the cap; fixes where the others begin.
    """

    cap_share: float = 0.6
    mean_share: float = EARLY_STOP_MEAN_SHARE

    def shortest(self, cap: int) -> float:
        """Tokens from which early stops are spread up to the cap, >= 1."""
        if self.cap_share >= 1.0:
            return float(cap)
        below = 2.0 * cap * (1.0 - self.mean_share) / (1.0 - self.cap_share)
        return max(cap - below, 1.0)

    def output_tokens(self, cap: int, uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Lengths from given random numbers, so that a fit compares like with like.

        Args:
            cap: tokens at most.
            uniform: float64[2, draws, n] in 0..1: who stops early, and where.

        Returns:
            int32[draws, n].
        """
        low = self.shortest(cap)
        early = np.floor(low + uniform[1] * (cap - low))
        return np.where(uniform[0] < self.cap_share, cap, early).astype(np.int32)


def uniform_numbers(requests: int, draws: int, seed: int) -> npt.NDArray[np.float64]:
    """float64[2, draws, requests] for ``Workload.output_tokens``; equal seeds, equal numbers."""
    return np.random.default_rng([seed, requests]).random((2, draws, requests))
