"""The simulated fleet in real time: requests come in, tokens and accounts come out.

No HTTP, no thread, no event loop: whoever owns the world calls ``play`` often enough, at best
whenever ``next_wake_s`` says, and from one thread only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from autoscaler.clock import wall_s
from autoscaler.emulator.accounts import Accounts
from autoscaler.emulator.families import KV_CACHE_TOKENS
from autoscaler.engine.fleet import Load
from autoscaler.engine.layout import COMPLETED, PENDING
from autoscaler.engine.live import LiveLoad, room
from autoscaler.model import SetOutcome, WidthStatus
from autoscaler.ports import Clock
from autoscaler.profile import Profile
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.resize import ResizeModel

_RESIZE_POLL_S = 0.01
"""Real seconds between two looks at a resize in flight, whose events nobody announces."""


class End(StrEnum):
    """How a request ended."""

    LENGTH = "length"
    ABORT = "abort"
    """the client gave it up, or its rank was removed"""
    HANG = "hang"
    """its rank was removed and nobody told the client: no token and no end will come"""
    LOST = "lost"
    """the server went away under it"""


@dataclass(slots=True)
class Ticket:
    """One request in the world, as it goes on.

    Args:
        index: in the engine.
        arrived_s: simulated seconds.
        prompt_tokens, max_tokens: as asked for.
        notify: called when ``tokens`` or ``end`` has changed; None: nobody listens.
        rank: that serves it; -1: not admitted yet.
        scheduled_s: when it was seen admitted first.
        tokens: output tokens so far.
        end: None while it goes on.
        cancelled: whether its client gave it up.
    """

    index: int
    arrived_s: float
    prompt_tokens: int
    max_tokens: int
    notify: Callable[[], None] | None
    rank: int = -1
    scheduled_s: float = math.nan
    tokens: int = 0
    end: End | None = None
    cancelled: bool = False


class World:
    """A fleet, its clock and its accounts.

    Args:
        profile: step times by width.
        resize: the course of a resize, unless a request for one brings its own.
        width: the first width.
        max_width: the largest there is room for.
        clock: real time.
        time_scale: simulated seconds a real second, > 0. Everything the world says of time
            (metrics, resizes) is in simulated seconds.
        trace: a built-in load, from the start of the world on; None: none.
        seed: of the draws of the resize model.
        extrapolate: permit widths that the profile does not know.

    Attributes:
        accounts: what the engines have counted.
        open: whether requests are let in; the built-in load is turned away otherwise.
        turned_away: requests of the built-in load that came while it was shut.
        ended: requests that ended, by way of ending.
    """

    def __init__(
        self,
        profile: Profile,
        resize: ResizeModel,
        width: int,
        max_width: int,
        clock: Clock,
        *,
        time_scale: float = 1.0,
        trace: Load | None = None,
        seed: int = 0,
        extrapolate: bool = False,
    ) -> None:
        self.fleet = Fleet(
            room(), profile, resize, width, max_width, np.random.default_rng(seed),
            extrapolate=extrapolate,
        )  # fmt: skip
        self.resize = resize
        self.time_scale = time_scale
        self.accounts = Accounts(width, wall_s())
        self.open = True
        self.turned_away = 0
        self.ended = dict.fromkeys(End, 0)
        self._live = LiveLoad(self.fleet.engine)
        self._clock = clock
        self._start_s = clock.now_s()
        self._active: dict[int, Ticket] = {}
        self._trace = trace
        self._next_of_trace = 0
        self._itl = np.zeros_like(self.fleet.engine.itl_counts)
        self._itl_sum_s = 0.0
        self._step = 0

    def now_s(self) -> float:
        """Simulated seconds since the start of the world."""
        return (self._clock.now_s() - self._start_s) * self.time_scale

    @property
    def width(self) -> int:
        """The width that serves."""
        return self.fleet.serving

    @property
    def active(self) -> int:
        """Requests in the world that have not ended."""
        return len(self._active)

    @property
    def requests(self) -> int:
        """Requests that were let in since the start."""
        return len(self._live)

    def submit(
        self,
        prompt_tokens: int,
        max_tokens: int,
        rank: int | None = None,
        notify: Callable[[], None] | None = None,
    ) -> Ticket:
        """Let a request arrive now; ``rank`` as its client chose it, None: no choice."""
        now_s = self.now_s()
        self._let_trace_in(now_s)
        return self._push(now_s, prompt_tokens, max_tokens, rank, notify)

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up, as a client does that hangs up."""
        if ticket.end is None:
            ticket.cancelled = True
            ticket.notify = None
            self._live.cancel(ticket.index)

    def play(self) -> None:
        """Bring the world up to now, and tell everybody whose request went on."""
        now_s = self.now_s()
        self._let_trace_in(now_s)
        self.fleet.advance(now_s)
        self._account(now_s)

    def next_wake_s(self) -> float:
        """Instant on the real clock at which something new will be there; inf: nothing known."""
        wake_s = self._live.next_s()
        if self._trace is not None and self._next_of_trace < len(self._trace.arrival_s):
            wake_s = min(wake_s, float(self._trace.arrival_s[self._next_of_trace]))
        real_s = self._start_s + wake_s / self.time_scale
        if self.fleet.resizing:
            real_s = min(real_s, self._clock.now_s() + _RESIZE_POLL_S)
        return real_s

    def ask(self, width: int, resize: ResizeModel) -> SetOutcome:
        """Begin a resize that goes as ``resize`` says."""
        self.resize = resize
        now_s = self.now_s()
        self._let_trace_in(now_s)
        self.fleet.advance(now_s)
        return self.fleet.request(width, self.fleet.desired, now_s, resize)

    def status(self) -> WidthStatus:
        """The fleet's own view of its width."""
        return self.fleet.status()

    def rebuild_metrics(self, engines: int) -> None:
        """Begin every series anew, for so many engines."""
        self.accounts = Accounts(engines, wall_s())
        self._sync()

    def lose_everything(self) -> None:
        """Tell all clients that the server is gone."""
        for ticket in list(self._active.values()):
            self._end(ticket, End.LOST)

    def _push(
        self,
        arrived_s: float,
        prompt_tokens: int,
        max_tokens: int,
        rank: int | None,
        notify: Callable[[], None] | None,
    ) -> Ticket:
        index = self._live.push(arrived_s, prompt_tokens, max_tokens, rank)
        ticket = Ticket(index, arrived_s, prompt_tokens, max(max_tokens, 1), notify)
        self._active[index] = ticket
        return ticket

    def _let_trace_in(self, until_s: float) -> None:
        trace = self._trace
        if trace is None:
            return
        n = len(trace.arrival_s)
        while self._next_of_trace < n and trace.arrival_s[self._next_of_trace] <= until_s:
            i = self._next_of_trace
            self._next_of_trace += 1
            if not self.open:
                self.turned_away += 1
                continue
            prompt, output = int(trace.prompt_tokens[i]), int(trace.output_tokens[i])
            self._push(float(trace.arrival_s[i]), prompt, output, None, None)

    def _sync(self) -> None:
        engine = self.fleet.engine
        self._itl = engine.itl_counts.copy()
        self._itl_sum_s = float(engine.state["itl_sum_s"])
        self._step = int(engine.state["step"])

    def _account(self, now_s: float) -> None:
        engine, accounts = self.fleet.engine, self.accounts
        ranks = engine.physics.ranks
        accounts.extend(ranks)
        gained = np.zeros(accounts.engines, np.int64)
        cached = [0] * accounts.engines
        if self._active:
            self._follow(now_s, gained, cached)
        itl, sum_s = engine.itl_counts, float(engine.state["itl_sum_s"])
        if gained.any():
            accounts.gaps(gained, itl - self._itl, sum_s - self._itl_sum_s)
            self._count_steps(gained)
        self._sync()
        self._gauge(ranks, cached)

    def _follow(self, now_s: float, gained: npt.NDArray[np.int64], cached: list[int]) -> None:
        """Look at every request that goes on; what it made is added to ``gained``, by engine."""
        engine = self.fleet.engine
        index = np.fromiter(self._active, np.int64, len(self._active))
        columns = (
            list(self._active.values()),
            self._live.produced(index).tolist(),
            self._live.ranks(index).tolist(),
            engine.first_s[index].tolist(),
            engine.outcome[index].tolist(),
        )
        for ticket, tokens, rank, first_s, outcome in zip(*columns, strict=True):
            if rank >= 0 and ticket.rank < 0:
                ticket.rank = min(rank, len(cached) - 1)
                ticket.scheduled_s = min(now_s, first_s) if first_s == first_s else now_s
            if tokens > ticket.tokens:
                gained[ticket.rank] += tokens - max(ticket.tokens, 1)
                if ticket.tokens == 0:
                    ttft_s = first_s - ticket.arrived_s
                    self.accounts.first_token(ticket.rank, ttft_s, ticket.prompt_tokens)
                self.accounts.counters["generation_tokens"][0][ticket.rank] += (
                    tokens - ticket.tokens
                )
                ticket.tokens = tokens
                if outcome == PENDING and ticket.notify is not None:
                    ticket.notify()
            if outcome != PENDING:
                self._ended(ticket, outcome, first_s, now_s)
            elif ticket.rank >= 0:
                cached[ticket.rank] += ticket.prompt_tokens + tokens

    def _ended(self, ticket: Ticket, outcome: int, first_s: float, now_s: float) -> None:
        finish_s = float(self.fleet.engine.finish_s[ticket.index])
        if outcome == COMPLETED:
            end = End.ABORT if ticket.cancelled else End.LENGTH
            self.accounts.finished(
                ticket.rank,
                end.value,
                arrived_s=ticket.arrived_s,
                scheduled_s=min(ticket.scheduled_s, first_s),
                first_s=first_s,
                finished_s=finish_s,
                prompt_tokens=ticket.prompt_tokens,
                output_tokens=ticket.tokens,
                max_tokens=ticket.max_tokens,
            )
        elif ticket.cancelled:
            end = End.ABORT
        elif self.resize.in_flight == "fail":
            end = End.LOST
        else:
            end = End.HANG if finish_s > now_s else End.ABORT
        self._end(ticket, end)

    def _end(self, ticket: Ticket, end: End) -> None:
        ticket.end = end
        self.ended[end] += 1
        self._active.pop(ticket.index, None)
        if ticket.notify is not None:
            ticket.notify()

    def _count_steps(self, gained: npt.NDArray[np.int64]) -> None:
        """Tokens a step: the same for all steps since the last look, which is nearly so."""
        steps = int(self.fleet.engine.state["step"]) - self._step
        if steps > 0:
            held = self.accounts.distributions["iteration_tokens_total"]
            for engine, tokens in enumerate(gained.tolist()):
                if tokens:
                    held.observe(engine, tokens / steps, steps)

    def _gauge(self, ranks: int, cached: list[int]) -> None:
        if self.fleet.silent:
            return  # no step since the growth: a real engine's gauges still say 0
        seen = self.fleet.engine.ranks[:ranks]
        waiting, running = seen["waiting"].tolist(), seen["admitted"].tolist()
        for rank in range(ranks):
            usage = cached[rank] / KV_CACHE_TOKENS
            self.accounts.load(rank, running[rank], waiting[rank], usage)
