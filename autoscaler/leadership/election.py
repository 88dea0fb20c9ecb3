"""The election as a state machine. No I/O, no clock: instants come in, claims go out.

All instants are of the observer's own monotonic clock. Time stamps in a record are compared for
being equal and nothing else: somebody else's clock proves nothing, and one's own may be set.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoscaler.leadership.timing import Timing


class Phase(StrEnum):
    """Where a candidate is; LOST and RELEASED are final."""

    STANDBY = "standby"
    LEADING = "leading"
    LOST = "lost"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says.

    Args:
        holder: identity of who holds it; "": nobody.
        lease_duration_s: how long the others have to wait after each renewal, > 0.
        acquired: time stamp as written; "": none.
        renewed: time stamp as written; "": none.
        transitions: how often it has changed hands, >= 0.
        version: of the stored object, which the next write is conditional on. No part of what the
            record says: an annotation on the Lease is no renewal.
    """

    holder: str
    lease_duration_s: float
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    version: str = field(default="", compare=False)


class Election:
    """One candidate's view of one lease.

    Args:
        identity: unique to this process, never empty.
        timing: the lease's times.

    Attributes:
        phase: where it is.
        record: as last read or written; None: there is none, or it was not looked at yet.
        reason: why leadership was lost; "": it was not.
    """

    def __init__(self, identity: str, timing: Timing) -> None:
        self.identity = identity
        self.timing = timing
        self.phase = Phase.STANDBY
        self.record: Record | None = None
        self.reason = ""
        self._looked = False
        self._seen_at_s = 0.0
        self._renewed_at_s: float | None = None

    def observe(self, record: Record | None, now_s: float) -> None:
        """Take up what a read has found.

        Args:
            record: None: there is no Lease.
            now_s: when the answer had come. Later than the renewal in it, so that waiting from
                here on is waiting long enough.
        """
        if not self._looked or record != self.record:
            self._seen_at_s = now_s
        self.record, self._looked = record, True
        if self.phase is Phase.LEADING:
            if record is None:
                self._lose("the lease is gone")
            elif record.holder != self.identity:
                self._lose(f"the lease is held by {record.holder or 'nobody'}")

    def may_claim(self, now_s: float) -> bool:
        """Whether a claim may be sent: to renew, or to take a lease that nobody holds."""
        if self.phase is Phase.LEADING:
            return self.leads(now_s)
        return self.phase is Phase.STANDBY and self._looked and now_s >= self.free_at_s

    @property
    def free_at_s(self) -> float:
        """When the lease as it was seen is free to take; in the past: now.

        Counted from when this very record was first seen, and for as long as its holder said.
        """
        record = self.record
        if record is None or record.holder in ("", self.identity):
            return self._seen_at_s
        return self._seen_at_s + record.lease_duration_s

    def claim(self, stamp: str) -> Record:
        """The record that makes or keeps this candidate the holder.

        Args:
            stamp: time of renewal, for people; differs from the one before.
        """
        lease_s = float(self.timing.lease_duration_s)
        record = self.record
        if record is None:
            return Record(self.identity, lease_s, stamp, stamp)
        if record.holder == self.identity:
            return replace(record, lease_duration_s=lease_s, renewed=stamp)
        transitions = record.transitions + 1
        return Record(self.identity, lease_s, stamp, stamp, transitions, record.version)

    def granted(self, record: Record, sent_at_s: float, now_s: float) -> None:
        """The server has stored a claim of ours.

        Args:
            record: as stored, with its new version.
            sent_at_s: when the claim was sent. The lease counts from here: the others may have
                seen it from this instant on, however late the answer came.
            now_s: when the answer had come.
        """
        self.record, self._looked, self._seen_at_s = record, True, now_s
        self.expire(now_s)
        if self.phase is Phase.STANDBY:
            # An answer that took longer than the deadline, or a process that was frozen meanwhile:
            # what was granted is over.
            if now_s < sent_at_s + self.timing.renew_deadline_s:
                self.phase, self._renewed_at_s = Phase.LEADING, sent_at_s
        elif self.phase is Phase.LEADING:
            self._renewed_at_s = sent_at_s

    def leads(self, now_s: float) -> bool:
        """Whether work may go on at this instant."""
        if self.phase is not Phase.LEADING or self._renewed_at_s is None:
            return False
        return now_s < self._renewed_at_s + self.timing.renew_deadline_s

    def expire(self, now_s: float) -> None:
        """Lose a leadership that was not renewed in time; it does not come back."""
        if self.phase is Phase.LEADING and not self.leads(now_s):
            deadline_s = self.timing.renew_deadline_s
            self._lose(f"the lease could not be renewed for {deadline_s:g} s")

    @property
    def end_at_s(self) -> float:
        """When nothing of this leader may be left; minus infinity: it never led."""
        renewed_at_s = self._renewed_at_s
        return float("-inf") if renewed_at_s is None else renewed_at_s + self.timing.end_s

    def release(self, stamp: str) -> Record | None:
        """The record that frees the lease; None: it is not ours to free.

        Says one second, as client-go's does: who knows no empty holder waits no longer.
        """
        record = self.record
        if record is None or record.holder != self.identity:
            return None
        return replace(record, holder="", lease_duration_s=1.0, renewed=stamp)

    def end(self) -> None:
        """Claim nothing from now on."""
        if self.phase in (Phase.STANDBY, Phase.LEADING):
            self.phase = Phase.RELEASED

    def _lose(self, reason: str) -> None:
        self.phase, self.reason = Phase.LOST, reason
