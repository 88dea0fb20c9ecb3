"""Carries one election out: a thread that looks, claims and renews, and answers whoever asks.

What is asked of it is answered by the clock and never waits for a call that hangs: leadership ends
when its time is over, whether the thread has noticed or not.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autoscaler.clock import wall_s
from autoscaler.cluster.answers import Gone
from autoscaler.errors import TargetConflict, TargetError
from autoscaler.leadership.election import Election, Phase
from autoscaler.leadership.last_resort import KernelTimer
from autoscaler.leadership.lease import Lease, stamp
from autoscaler.ports import Clock

_SETTLED = 3
"""So many conflicts in a row are somebody else's business: the next attempt looks again."""


class Elector:
    """One candidate for one lease, in a thread of its own.

    Args:
        lease: the Lease; this object's own.
        election: the candidate; this object's own.
        clock: monotonic.
        last_resort: ends the process should all else fail; None: nothing does.
        wall: Unix seconds, for the time stamps that people read.

    Attributes:
        failure: the defect that ended the thread; None: none did.
        problem: why the last attempt failed; "": it did not.
    """

    def __init__(
        self,
        lease: Lease,
        election: Election,
        clock: Clock,
        last_resort: KernelTimer | None = None,
        wall: Callable[[], float] = wall_s,
    ) -> None:
        self._lease, self._election, self._clock = lease, election, clock
        self._last_resort, self._wall = last_resort, wall
        self.failure: BaseException | None = None
        self.problem = ""
        self._calls = threading.Lock()  # one call at a time; held while one hangs
        self._state = threading.Lock()  # the election and what follows; never held during a call
        self._closed = False
        self._writing = 0
        self._wake = threading.Event()
        self._answered_at_s = -math.inf
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def start(self) -> None:
        """Stand for election from now on."""
        self._thread.start()

    @property
    def identity(self) -> str:
        """Of this candidate, as it is in the Lease."""
        return self._election.identity

    @property
    def holder(self) -> str:
        """Who holds the lease as last seen; "": nobody."""
        with self._state:
            record = self._election.record
            return "" if record is None else record.holder

    @property
    def leads(self) -> bool:
        """Whether work may go on now."""
        with self._state:
            return self._election.leads(self._clock.now_s())

    @property
    def lost(self) -> str:
        """Why leadership was lost; "": it was not."""
        with self._state:
            self._election.expire(self._clock.now_s())
            return self._election.reason

    @property
    def silent_s(self) -> float:
        """How long ago the API server last gave a usable answer, s; infinite: it never did."""
        return self._clock.now_s() - self._answered_at_s

    def attempt(self) -> None:
        """One attempt to get the lease or to keep it; the thread makes one after the other."""
        with self._calls:
            try:
                self._attempt()
            except TargetError as error:
                self.problem = str(error)
            else:
                self.problem = ""
        _ = self.lost  # notices that the time is over

    def due_at_s(self, began_s: float) -> float:
        """When the attempt is due that follows one begun at ``began_s``."""
        timing = self._election.timing
        with self._state:
            if self._election.phase is Phase.LEADING:
                return began_s + timing.retry_period_s
            next_s, free_s = began_s + timing.look_period_s, self._election.free_at_s
            now_s = self._clock.now_s()
            return free_s if now_s < free_s < next_s else next_s

    @contextmanager
    def writing(self, lasts_s: float) -> Iterator[str]:
        """Room for one write; gives the reason why it may not be sent, "": it may.

        Renews right now. That is one conditional write, which shows that nobody else holds the
        lease, and makes everybody wait anew.

        Args:
            lasts_s: the longest that the write lasts, s.
        """
        with self._state:
            refusal = self._refusal()
            self._writing += not refusal
        try:
            yield refusal or self._confirmed(lasts_s)
        finally:
            if not refusal:
                with self._state:
                    self._writing -= 1

    def release(self, timeout_s: float) -> str:
        """Free the lease for whoever waits for it, once and for all.

        Loops must have stopped; writes are refused from here on.

        Args:
            timeout_s: how long it may take, s.

        Returns:
            Why it was not freed, so that it has to run out; "": it is free, or was not ours.
        """
        with self._state:
            over = self._election.phase in (Phase.LOST, Phase.RELEASED)
            self._closed = True
            writing = self._writing
        self._wake.set()
        if over:
            return ""
        if writing:
            return "a write was under way"
        answer = ["the API server did not answer in time"]

        def work() -> None:
            with self._calls:
                try:
                    self._release()
                    answer[0] = ""
                except TargetError as error:
                    answer[0] = str(error)

        # In a thread that can be left behind: a call may hang where no deadline reaches it, in the
        # look-up of a name for example.
        thread = threading.Thread(target=work, name="release", daemon=True)
        thread.start()
        thread.join(timeout_s)
        return answer[0]

    def _run(self) -> None:
        try:
            while not self._closed and self._election.phase in (Phase.STANDBY, Phase.LEADING):
                began_s = self._clock.now_s()
                self.attempt()
                self._wake.wait(max(self.due_at_s(began_s) - self._clock.now_s(), 0.0))
        except BaseException as error:  # noqa: BLE001  # the main thread raises it
            self.failure = error

    def _attempt(self) -> None:
        """Look if need be, and claim if it may be; calls are ours."""
        for conflicts in range(_SETTLED):
            with self._state:
                look = self._election.phase is not Phase.LEADING or conflicts > 0
            if look:
                self._look()
            try:
                self._claim()
            except (TargetConflict, Gone):
                continue
            return
        self._look()

    def _look(self) -> None:
        record = self._lease.read()
        with self._state:
            self._election.observe(record, self._now_answered())

    def _claim(self) -> None:
        with self._state:
            sent_s = self._clock.now_s()
            if self._closed or not self._election.may_claim(sent_s):
                return
            claim = self._election.claim(self._stamp())
        stored = self._lease.write(claim)
        with self._state:
            self._election.granted(stored, sent_s, self._now_answered())
            if self._last_resort is not None and self._election.phase is Phase.LEADING:
                # Before anybody is told that we lead; whoever asks is answered by the clock.
                self._last_resort.set(self, self._election.end_at_s)

    def _confirmed(self, lasts_s: float) -> str:
        """Why a write that lasts so long may not be sent; "": the lease is ours for longer."""
        if not self._calls.acquire(timeout=self._election.timing.call_timeout_s):
            return "the API server does not answer"
        try:
            self._attempt()
        except TargetError as error:
            return f"the lease could not be confirmed: {error}"
        finally:
            self._calls.release()
        with self._state:
            refusal = self._refusal()
            left_s = self._election.end_at_s - self._clock.now_s()
        if refusal or left_s > lasts_s:
            return refusal
        return f"the lease ends in {left_s:.1f} s, and a write may last {lasts_s:g} s"

    def _refusal(self) -> str:
        if self._closed:
            return "the program is about to end"
        if self._election.leads(self._clock.now_s()):
            return ""
        return self._election.reason or "not leading"

    def _release(self) -> None:
        for conflicts in range(_SETTLED):
            if conflicts:
                self._look()
            with self._state:
                freed = self._election.release(self._stamp())
            if freed is None:
                break
            try:
                stored = self._lease.write(freed)
            except (TargetConflict, Gone):
                continue
            with self._state:
                self._election.end()
                self._election.observe(stored, self._now_answered())
            break
        with self._state:
            self._election.end()
        if self._last_resort is not None:
            self._last_resort.clear(self)

    def _now_answered(self) -> float:
        self._answered_at_s = self._clock.now_s()
        return self._answered_at_s

    def _stamp(self) -> str:
        record = self._election.record
        return stamp(self._wall(), "" if record is None else record.renewed)
