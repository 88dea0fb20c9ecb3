"""The engine as an object: owns the arrays, plays time, changes width at a step boundary."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.engine.layout import (
    ITL_FINE_BINS,
    RANK,
    SLOT_BITS,
    STATE,
)
from autoscaler.engine.loop import admit_until, advance, drop_ranks, reject_until
from autoscaler.engine.physics import Physics

TTFT_BOUNDS_S = np.array(
    [
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ]
)
"""Upper bounds of vllm:time_to_first_token_seconds (vLLM 0.30 and 0.33, buckets.py)."""

ITL_BOUNDS_S = np.array(
    [
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0),
    ]
)
"""Upper bounds of vllm:inter_token_latency_seconds (vLLM 0.30 and 0.33, buckets.py)."""

_COUNTED = np.array(
    [
        list(STATE.names or ()).index(n)
        for n in ("completed", "prompt_tokens", "output_tokens", "uncounted")
    ]
)
"""Where these lie in a state record of 8-byte words: reading them by name costs ten times more."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to serve, as columns of equal length, ascending in ``arrival_s``.

    Args:
        arrival_s: float64[n].
        prompt_tokens, output_tokens: int32[n], >= 0; below 1 is served as 1.
    """

    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]


class Engine:
    """A fleet of ranks serving one load, from the load's time 0 on.

    Args:
        load: what arrives. In a closed loop its arrival times are ignored.
        physics: the step model at the first width.
        max_ranks: ranks to make room for.
        max_slots: slots to make room for; default: max_ranks x physics.slots_per_rank.
        clients: None: open loop. A number: closed loop, so many clients send at time 0 and again
            ``turnaround_s`` after each of their requests has ended.
        turnaround_s: see ``clients``.

    Attributes:
        first_s, finish_s: float64[n], NaN until the request got its first token or ended.
        waiting, admitted: int64[ranks], requests queued and in a slot now; views, for reading.
        outcome: int8[n]: PENDING, COMPLETED, REJECTED, ABORTED of ``layout``.
        ttft_counts, itl_counts: int64[bounds + 1], not cumulative, since the start.
    """

    def __init__(
        self,
        load: Load,
        physics: Physics,
        *,
        max_ranks: int | None = None,
        max_slots: int | None = None,
        clients: int | None = None,
        turnaround_s: float = 0.0,
    ) -> None:
        n = len(load.arrival_s)
        ranks = max(max_ranks or 0, physics.ranks)
        slots = max(max_slots or 0, ranks * physics.slots_per_rank)
        if slots >= 1 << SLOT_BITS:
            raise ValueError(f"slots: must stay under {1 << SLOT_BITS}; got {slots}")
        self.physics = physics
        self.arrival_s = load.arrival_s if clients is None else np.zeros(n)
        self.prompt_tokens = load.prompt_tokens
        self.output_tokens = load.output_tokens
        self.first_s = np.full(n, np.nan)
        self.finish_s = np.full(n, np.nan)
        self.outcome = np.zeros(n, np.int8)
        self.ttft_counts = np.zeros(len(TTFT_BOUNDS_S) + 1, np.int64)
        self.itl_counts = np.zeros(len(ITL_BOUNDS_S) + 1, np.int64)
        self.itl_fine = np.zeros(ITL_FINE_BINS, np.int64)
        self.ranks = np.zeros(ranks, RANK)
        self.ranks["head"] = self.ranks["tail"] = self.ranks["partial"] = -1
        self._state = np.zeros(1, STATE)
        self._link = np.full(n, -1, np.int32)
        self._slots = np.zeros((slots, 3), np.int32)
        self._slots[:, 2] = np.arange(slots)[::-1]
        self._heap = np.zeros(slots + 1, np.int64)
        self._first_request = np.zeros(slots, np.int32)
        self._first_rank = np.zeros(slots, np.int32)
        state = self._state[0]
        state["free"] = slots
        state["accepting"] = 1
        state["known"] = n if clients is None else min(clients, n)
        state["closed"] = clients is not None
        state["turnaround_s"] = turnaround_s
        self.state = state
        self._words = self._state.view(np.int64)
        self._use(physics)

    def _use(self, physics: Physics) -> None:
        self.physics = physics
        self._physics = physics.record()
        self._decode_s = np.ascontiguousarray(physics.decode_s, np.float64)
        self.state["dispatch_ranks"] = physics.ranks
        self.state["decode_stale"] = 1
        self.waiting = self.ranks["waiting"][: physics.ranks]
        self.admitted = self.ranks["admitted"][: physics.ranks]
        self._bind()
        self._admit_until(-np.inf)

    def _bind(self) -> None:
        self._arguments = (
            self._state, self._physics, self.ranks, self.arrival_s, self.prompt_tokens,
            self.output_tokens, self.first_s, self.finish_s, self.outcome, self._link,
            self._slots, self._heap, self._first_request, self._first_rank, self._decode_s,
            TTFT_BOUNDS_S, self.ttft_counts, ITL_BOUNDS_S, self.itl_counts, self.itl_fine,
        )  # fmt: skip

    def advance(self, until_s: float) -> None:
        """Play everything that is over by ``until_s``; a step that lasts longer is in progress."""
        advance(until_s, *self._arguments)

    def run(self) -> None:
        """Play until every request has ended."""
        self.advance(np.inf)

    def _admit_until(self, at_s: float) -> None:
        admit_until(at_s, self._state, self._physics, self.ranks, self.arrival_s, self._link)

    def counts(self) -> npt.NDArray[np.int64]:
        """What a metrics page counts, since the start.

        Returns:
            int64[ttft + itl + 4]: TTFT buckets, ITL buckets (not cumulative, +Inf last), then
            completed requests, prompt tokens, output tokens, and a 0 for failed requests.
        """
        return np.concatenate((self.ttft_counts, self.itl_counts, self._words[_COUNTED]))

    def finish_step(self) -> float:
        """Play the step in progress to its end; returns the boundary, where changes may be made."""
        if self.state["in_step"]:
            self.state["hold"] = 1
            self.advance(float(self.state["step_end_s"]))
            self.state["hold"] = 0
        return float(self.state["now_s"])

    def stall(self, until_s: float) -> None:
        """Stop the decode clock of all ranks until ``until_s``; arrivals go on and queue."""
        self.finish_step()
        self.state["now_s"] = max(float(self.state["now_s"]), until_s)

    def close(self, at_s: float) -> None:
        """Take in what arrived by ``at_s``; later arrivals stay outside until ``open``."""
        self._admit_until(at_s)
        self.state["accepting"] = 0

    def open(self, at_s: float, *, reject: bool) -> int:
        """Take new requests from ``at_s`` on; returns how many were turned away meanwhile.

        ``reject``: those that came while closed have failed at the moment they came; otherwise
        they are queued now.
        """
        self.state["accepting"] = 1
        if reject:
            return int(
                reject_until(
                    at_s,
                    self._state,
                    self._physics,
                    self.ranks,
                    self.arrival_s,
                    self.finish_s,
                    self.outcome,
                )
            )
        self._admit_until(at_s)
        return 0

    def drain(self, ranks: int) -> None:
        """Send nothing new to ranks ``ranks`` and up; what they have goes on."""
        self.state["dispatch_ranks"] = ranks

    @property
    def drained(self) -> bool:
        """Whether the ranks that take nothing new have nothing left."""
        leaving = self.ranks[int(self.state["dispatch_ranks"]) : self.physics.ranks]
        return not (leaving["admitted"].any() or leaving["waiting"].any())

    def drop(self, first_rank: int, failed_at_s: float) -> int:
        """Cut off all requests on ranks ``first_rank`` and up; returns their number.

        They count as failed at ``failed_at_s``, which lies in the future where a client would
        wait on an open stream until it gives up.
        """
        self.finish_step()
        return int(
            drop_ranks(
                first_rank,
                failed_at_s,
                self._state,
                self.ranks,
                self.prompt_tokens,
                self.output_tokens,
                self.finish_s,
                self.outcome,
                self._link,
                self._slots,
                self._heap,
            )
        )

    def change(self, physics: Physics) -> None:
        """Serve by another step model from the next step on; ranks that go must be empty."""
        self.finish_step()
        gone = self.ranks[physics.ranks :]
        if gone["admitted"].any() or gone["waiting"].any():
            raise ValueError(f"ranks: {physics.ranks} and up must be drained or dropped first")
        self._use(physics)
