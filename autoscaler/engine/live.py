"""Requests that come while the engine runs: columns that grow, and what each request has so far.

An ``Engine`` serves a load that is known beforehand; this view of one lets requests be added,
watched and given up. The compiled loop is the same and costs the same.
"""

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import COMPLETED, OFF_QUEUE, SLOT_BITS
from autoscaler.engine.loop import cancel

# ruff: noqa: SLF001  # the same package: this is the part of an engine that grows

_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "first_s", "finish_s", "outcome")
_SLOT_MASK = (1 << SLOT_BITS) - 1


def room(requests: int = 4096) -> Load:
    """A load to build the engine (or the fleet) on: nothing in it, and room for so many."""
    return Load(np.zeros(requests), np.zeros(requests, np.int32), np.zeros(requests, np.int32))


class LiveLoad:
    """The open-ended load of one engine.

    Args:
        engine: built on ``room``, nothing played yet.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._to_go = np.zeros(len(engine.arrival_s), np.int64)
        engine.state["known"] = 0
        engine._admit_until(-np.inf)

    def __len__(self) -> int:
        """Requests so far."""
        return int(self._engine.state["known"])

    def push(
        self, arrival_s: float, prompt_tokens: int, output_tokens: int, rank: int | None = None
    ) -> int:
        """Let one request arrive; returns its index.

        Args:
            arrival_s: not before the last one's, nor before what was played last.
            prompt_tokens: >= 0; below 1 is served as 1.
            output_tokens: >= 0; below 1 is served as 1.
            rank: the rank to serve it; None: as the dispatcher decides. One that takes no
                requests counts as None.
        """
        engine = self._engine
        index = len(self)
        if index == len(engine.arrival_s):
            self._grow()
        engine.arrival_s[index] = arrival_s
        engine.prompt_tokens[index] = prompt_tokens
        engine.output_tokens[index] = output_tokens
        if rank is not None:
            engine._link[index] = OFF_QUEUE - rank
        engine.state["known"] = index + 1
        if int(engine.state["next_arrival"]) == index:
            engine._admit_until(-np.inf)  # it is the next one: when does it get in?
        return index

    def produced(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Output tokens of these requests at the end of the last step played.

        Of a request that was cut off: what it had when this was last asked while it ran.
        """
        engine = self._engine
        keys = engine._heap[: int(engine.state["heap"])]
        running = engine._slots[keys & _SLOT_MASK, 0]
        self._to_go[running] = (keys >> SLOT_BITS) - int(engine.state["step"])
        all_of_it = np.maximum(engine.output_tokens[indices].astype(np.int64), 1)
        ended = engine.outcome[indices] == COMPLETED
        begun = np.isfinite(engine.first_s[indices])
        so_far = np.where(begun, all_of_it - self._to_go[indices], 0)
        return np.where(ended, all_of_it, so_far)

    def ranks(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rank that serves each of these requests; -1: not admitted yet."""
        linked = self._engine._link[indices].astype(np.int64)
        waits = (linked > OFF_QUEUE) | (indices >= int(self._engine.state["next_arrival"]))
        return np.where(waits, -1, OFF_QUEUE - linked)

    def cancel(self, index: int) -> None:
        """Give a request up, as when its client hangs up: its slot is free a step later.

        What waits ends at once as ABORTED; what runs ends as COMPLETED, cut to the tokens it has.
        """
        e = self._engine
        cancel(
            index, e._state, e.ranks, e.output_tokens, e.finish_s, e.outcome, e._link, e._slots,
            e._heap,
        )  # fmt: skip

    def next_s(self) -> float:
        """Instant at which the engine next has something new to show; inf: nothing is known."""
        state = self._engine.state
        if state["in_step"] == 1:
            return float(state["step_end_s"])
        busy = state["decoding"] > 0 or state["waiting"] > 0 or state["partial"] > 0
        if busy:
            return float(state["now_s"])
        return float(max(state["ready_s"], state["now_s"]))

    def _grow(self) -> None:
        engine = self._engine
        n = len(engine.arrival_s)
        for name in _COLUMNS:
            old = getattr(engine, name)
            setattr(engine, name, np.concatenate((old, np.zeros(n, old.dtype))))
        engine.first_s[n:] = engine.finish_s[n:] = np.nan
        engine._link = np.concatenate((engine._link, np.full(n, -1, np.int32)))
        self._to_go = np.concatenate((self._to_go, np.zeros(n, np.int64)))
        engine._bind()
