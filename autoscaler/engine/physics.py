"""The step-time model of a serving fleet at one width: what a profile gives, what the loop uses."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.engine.layout import PHYSICS


@dataclass(frozen=True, slots=True)
class Physics:
    """How long a step takes, and who waits for whom, at one width.

    decode step  = decode_s[fullest rank's batch] + kv_token_s x cached tokens / ranks
    prefill step = prefill_flat_s + prefill_token_s x prompt tokens of all ranks
                   + prefill_rank_token_s x prompt tokens of the fullest rank
                   + prefill_token2_s x sum(chunk x (tokens before it + chunk / 2))
    prefill step >= prefill_floor_s + prefill_spread_s x u ** prefill_spread_power
    mixed step   = max(decode, prefill) + mixed_share x min(decode, prefill)
                   + mixed_kv_token_s x cached tokens / ranks

    Args:
        ranks: engines that step together, 1..64.
        slots_per_rank: requests in execution a rank at most (``max_num_seqs``).
        token_budget: tokens a rank and step (``max_num_batched_tokens``), prompts are chunked.
        decode_s: float64[slots_per_rank + 1], seconds by batch size; entry 0 is not used.
        prefill_flat_s, prefill_token_s, prefill_rank_token_s, prefill_token2_s: >= 0.
        prefill_floor_s, prefill_spread_s: least time of a step that prefills, >= 0: outside the
            CUDA graphs the host launches each kernel, and a small prompt waits for the host. u
            is uniform in 0..1, drawn anew for each such step from a fixed sequence.
        prefill_spread_power: > 0; 1: the spread is uniform, higher: short with a long tail.
        mixed_share: 0..1; 0: the longer of both hides the other, 1: they add up.
        kv_token_s: seconds a cached token of a rank adds to a decode step, >= 0.
        mixed_kv_token_s: what a cached token of a rank adds to a step that also prefills, where
            decoding requests go through the slower attention kernel of prompts, >= 0.
        api_servers: processes in front, each serving its requests one by one.
        api_serial_s: serial cost of a request in its API server.
        overhead_s: constant delay between arrival and queue, not serial.
        round_robin: dispatch in turn; otherwise to the least waiting_weight x waiting + running.
        waiting_weight: running requests that a waiting one counts for; vLLM: 4. Above 1, a burst
            goes to full ranks while others have slots; 1: the least requests in all.
        schedule_ahead: a step is put together while the one before it runs (asynchronous
            scheduling, the default from vLLM 0.14 on): a new request, or a freed slot, found at
            the end of a step counts from the step after next on.
        load_refresh_s: age of the loads that the dispatcher sees at most; 0: the true ones.
    """

    ranks: int
    slots_per_rank: int
    decode_s: npt.NDArray[np.float64]
    prefill_floor_s: float = 0.0
    prefill_spread_s: float = 0.0
    prefill_spread_power: float = 1.0
    prefill_flat_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_rank_token_s: float = 0.0
    prefill_token2_s: float = 0.0
    mixed_share: float = 0.0
    kv_token_s: float = 0.0
    mixed_kv_token_s: float = 0.0
    token_budget: int = 8192
    api_servers: int = 1
    api_serial_s: float = 0.0
    overhead_s: float = 0.0
    round_robin: bool = False
    load_refresh_s: float = 0.0
    waiting_weight: float = 4.0
    schedule_ahead: bool = False

    def __post_init__(self) -> None:
        """Refuse a table that the compiled loop would read beyond its end."""
        if self.decode_s.shape != (self.slots_per_rank + 1,):
            raise ValueError(
                f"decode_s: needs slots_per_rank + 1 = {self.slots_per_rank + 1} entries; "
                f"got shape {self.decode_s.shape}"
            )

    def record(self) -> npt.NDArray[np.void]:
        """The scalars as one PHYSICS record, shape (1,)."""
        record = np.zeros(1, PHYSICS)
        for name in PHYSICS.names or ():
            record[name] = getattr(self, name)
        return record
