"""The resize as a state, advanced once a tick: never a blocking wait.

    idle -> resizing -> converged | refused | failed | timed_out

It believes layers and generations, never a phase: a width has converged only when the status
speaks of the spec that was read, and desired, effective and every known layer show it. An unread
layer is "not yet", never zero. It writes nothing and decides no width; it says whether one may be
asked for now, and why not.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.memory import Memory
from autoscaler.model import Resize, SetOutcome, SetResult, WidthStatus
from autoscaler.parameters import require_number, require_whole
from autoscaler.proof import blocking, blocking_layer, converged, known, proof
from autoscaler.window import elapsed


class ConvergenceState(StrEnum):
    """Where the last resize stands."""

    IDLE = "idle"
    """no resize since the start"""
    RESIZING = "resizing"
    """one is in flight: ours, somebody else's, or a boot at the spec's width"""
    CONVERGED = "converged"
    REFUSED = "refused"
    """the operator refused the desired width for good; nothing helps until something changes"""
    FAILED = "failed"
    """the resize is over and did not reach its width; the real width is what counts now"""
    TIMED_OUT = "timed_out"
    """not over in time and perhaps never: reported once, then held"""


@dataclass(frozen=True, slots=True)
class Params:
    """Limits of patience.

    Args:
        timeout_s: how long a resize may take, s, > 0. Measured on GPUStack: 167 to 189 s when it
            works, and up to 16 min (5 attempts of 150 s and 225 s of waits) until the operator
            gives up. 1200 s lies beyond both, so that a definite refusal is never mistaken for a
            time-out. Larger: a stuck resize is reported later. The operator has no limit itself.
        lost_after_reads: consecutive reads without proof of the width after which it counts as
            lost, >= 1. A proving pass takes about 15 s and its result is re-read until the next,
            so 12 reads, 5 s apart, are four failed passes. Larger: slower to notice a lost rank.
        ambiguous_hold_s: how long an unchanged desired width has to be read back after an
            ambiguous write before it counts as not applied, s, > 0. The Kubernetes API server
            drops a request after 60 s, so that after 90 s it can no longer take effect.
        capacity_wait_s: how long new members may lack quota or GPUs before the resize is said to
            wait for capacity, s, >= 0. Recorded on GPUStack: admitted after 5 s, in Ray after 13 s.
            Larger: a short wait for a node is not told, a long one is told later.
    """

    timeout_s: float = 1200.0
    lost_after_reads: int = 12
    ambiguous_hold_s: float = 90.0
    capacity_wait_s: float = 60.0

    def __post_init__(self) -> None:
        require_number("convergence.timeout_s", self.timeout_s, 0, above=True)
        require_whole("convergence.lost_after_reads", self.lost_after_reads, 1)
        require_number("convergence.ambiguous_hold_s", self.ambiguous_hold_s, 0, above=True)
        require_number("convergence.capacity_wait_s", self.capacity_wait_s, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one tick's reading showed.

    Args:
        state: where the resize stands.
        code: short stable word: which transition, or why it stays.
        reason: for people.
        may_write: whether a width may be asked for now.
        resize: the resize that is not over yet; None: there is none.
        ours: whether this controller asked for it.
        changed: whether the state was entered, or a new resize begun, in this very tick: what is
            to be reported once.
        ended: the resize that was over in this very tick, however it went; None: none was.
        foreign: whether somebody else has set the width since the last tick.
    """

    state: ConvergenceState
    code: str
    reason: str
    may_write: bool
    resize: Resize | None = None
    ours: bool = False
    changed: bool = False
    ended: Resize | None = None
    foreign: bool = False


_MEMBERS = {
    "admitted": "waiting_for_capacity",  # quota
    "allocated": "waiting_for_capacity",  # GPUs
    "ray": "waiting_for_ray",
}
"""Layers in which new members may be lacking for good, and what such a wait is called. Others take
their time: an engine's commit 150 s, a model's start more than ten minutes."""

_STEADY = Progress(ConvergenceState.CONVERGED, "steady", "the width serves as desired", True)
_STEADY_IDLE = Progress(ConvergenceState.IDLE, "steady", "the width serves as desired", True)


class Convergence:
    """Follows one target's resizes.

    Call ``advance`` once a tick with what was read, ``on_written`` after each write. Equal
    sequences of calls give equal answers; times matter by their differences only.
    """

    def __init__(self, params: Params | None = None) -> None:
        self.params = params or Params()
        self.state = ConvergenceState.IDLE
        self.resize: Resize | None = None
        """the resize that is not over yet"""
        self._ours = False
        self._desired: int | None = None  # as last read or successfully written; None: first tick
        self._proven: int | None = None  # width that served last
        self._incarnation = ""
        self._unproven_reads = 0
        self._settled: WidthStatus | None = None  # the very reading that was found steady last
        self._seen = True  # whether our own write has shown up in a read
        self._generation: int | None = None  # the one our write made
        self._undecided = False  # our write's answer was ambiguous and nothing settled it yet
        self._recalled = False  # whether this goes on from another process, and has seen nothing
        self._short: tuple[str, int, float] | None = None  # layer that lacks members, where, since

    def advance(self, status: WidthStatus, now_s: float) -> Progress:
        """Take one reading into account.

        Args:
            status: what the target showed in this tick.
            now_s: the loop's clock.
        """
        if status is self._settled:
            return _STEADY_IDLE if self.state is ConvergenceState.IDLE else _STEADY
        self._settled = None
        if self._desired is None:
            return self._start(status, now_s)
        if self._recalled and not self._go_on(status):
            return self._begin(status, now_s, "width_unknown", status.present)
        if status.incarnation and status.incarnation != self._incarnation:
            if self._incarnation:
                return self._restart(status, now_s)
            self._incarnation = status.incarnation
        if self._undecided:
            return self._settle_ambiguity(status, now_s)
        if not self._seen and not self._own_write_visible(status, now_s):
            return self._waiting(status, now_s, "not_visible", "the write is not visible yet")
        if status.desired != self._desired:
            return self._adopt(status, now_s, "foreign_write", self._last_proven(status))
        if self.state is ConvergenceState.RESIZING:
            return self._resizing(status, now_s)
        if converged(status, status.desired):
            return self._steady(status)
        return self._unsteady(status, now_s)

    def on_written(self, width: int, expected: int, outcome: SetOutcome, now_s: float) -> None:
        """Take the answer to a write into account.

        Applied and ambiguous writes begin a resize; a conflict, a refusal and a lack of
        permission leave the deployment, and so the state, as they were.
        """
        if outcome.result not in (SetResult.APPLIED, SetResult.AMBIGUOUS):
            return
        self.state = ConvergenceState.RESIZING
        self.resize = Resize(expected, width, now_s)
        self._settled = None
        self._ours = True
        self._short = None
        self._unproven_reads = 0
        self._seen = False
        self._generation = outcome.generation
        self._undecided = outcome.result is SetResult.AMBIGUOUS
        # An ambiguous write must not make the old width look like somebody else's change.
        self._desired = expected if self._undecided else width

    def recall(self, memory: Memory) -> None:
        """Go on where another process has stopped, in place of whatever is known.

        Args:
            memory: what it left behind; one without a desired width is none.
        """
        if memory.desired is None:
            return
        self.state = ConvergenceState(memory.state)
        in_flight = memory.in_flight and memory.resize is not None
        self.resize = Resize(*memory.resize) if in_flight and memory.resize else None
        self._ours = in_flight and memory.ours
        self._desired, self._proven, self._incarnation = memory.desired, None, ""
        self._undecided = self._ours and not memory.applied
        self._seen, self._generation, self._settled = True, None, None
        self._unproven_reads = 0
        self._recalled = True

    def remembered(self) -> Memory:
        """What ``recall`` goes on from; a resize from a width to itself is none."""
        resize = self.resize
        if resize is None or resize.from_width == resize.to_width:
            over = self.state not in (ConvergenceState.RESIZING, ConvergenceState.TIMED_OUT)
            return Memory(self._desired, self.state.value if over else ConvergenceState.IDLE.value)
        step = (resize.from_width, resize.to_width, resize.requested_at_s)
        applied = not self._undecided
        return Memory(self._desired, self.state.value, step, True, self._ours, applied)

    @property
    def desired(self) -> int | None:
        """The desired width as last read or written; None: not read yet."""
        return self._desired

    # One method a situation; each returns what the tick showed.

    def _go_on(self, status: WidthStatus) -> bool:
        """What the first reading says of a memory; False: the width has to be proven first."""
        self._recalled = False
        resize = self.resize
        if resize is not None:
            # No object keeps the wish: what the engine has now is what became of it, not somebody.
            if not status.kept and status.desired == resize.from_width:
                self._undecided, self._desired = True, status.desired
            return True
        idle = self.state in (ConvergenceState.IDLE, ConvergenceState.CONVERGED)
        unproven = idle and status.desired == self._desired == status.present
        return not unproven or converged(status, status.desired)

    def _start(self, status: WidthStatus, now_s: float) -> Progress:
        self._desired, self._incarnation = status.desired, status.incarnation
        if converged(status, status.desired):
            self._proven = status.desired
            return _STEADY_IDLE
        # In flight since before this process: or not proven yet, which also has to wait.
        code = "width_unknown" if status.present == status.desired else "adopted"
        return self._begin(status, now_s, code, status.present)

    def _restart(self, status: WidthStatus, now_s: float) -> Progress:
        """The instance was replaced: it boots at the spec's width, whatever was in flight."""
        self._incarnation, self._desired = status.incarnation, status.desired
        self._undecided, self._seen = False, True
        return self._begin(status, now_s, "restarted", status.desired)

    def _adopt(self, status: WidthStatus, now_s: float, code: str, origin: int) -> Progress:
        """A resize that somebody else asked for, or one that a lost width amounts to."""
        self._desired = status.desired
        progress = self._begin(status, now_s, code, origin)
        return replace(progress, foreign=True) if code == "foreign_write" else progress

    def _begin(self, status: WidthStatus, now_s: float, code: str, origin: int) -> Progress:
        self.state = ConvergenceState.RESIZING
        self.resize = Resize(origin, status.desired, now_s)
        self._ours, self._short = False, None
        self._unproven_reads = 0
        progress = self._resizing(status, now_s)
        resize = progress.resize
        # The first tick is named after what began; where it is over at once, that stays visible.
        if progress.state is ConvergenceState.RESIZING or progress.code == "converged":
            reason = f"{code}: {origin} -> {status.desired}; {progress.reason}"
            over = progress.ended
            may_write = progress.may_write
            return Progress(progress.state, code, reason, may_write, resize, False, True, over)
        return progress

    def _settle_ambiguity(self, status: WidthStatus, now_s: float) -> Progress:
        resize = self.resize
        assert resize is not None  # noqa: S101  # only set together, in on_written
        if status.desired == resize.to_width:
            self._undecided, self._seen, self._desired = False, True, status.desired
            return self._resizing(status, now_s)
        if status.desired != resize.from_width:
            self._undecided, self._seen = False, True
            return self._adopt(status, now_s, "foreign_write", self._last_proven(status))
        held = elapsed(resize.requested_at_s, now_s, self.params.ambiguous_hold_s)
        if held and not status.resizing and status.current:
            self._undecided, self._seen = False, True
            self.state, self.resize, self._ours = ConvergenceState.IDLE, None, False
            reason = f"read back: the width is still {status.desired}, the write never happened"
            return Progress(self.state, "not_applied", reason, False, changed=True)
        return self._waiting(status, now_s, "ambiguous", "unclear whether the write happened")

    def _own_write_visible(self, status: WidthStatus, now_s: float) -> bool:
        """Whether this read is newer than our write; an older one must not pass for a change."""
        resize = self.resize
        if self._generation is not None and status.generation is not None:
            self._seen = status.generation >= self._generation
        elif resize is not None and status.desired == resize.from_width:
            # Without generations, the old width read for so long is somebody's, not a cache's.
            self._seen = elapsed(resize.requested_at_s, now_s, self.params.ambiguous_hold_s)
        else:
            self._seen = True
        return self._seen

    def _resizing(self, status: WidthStatus, now_s: float) -> Progress:
        if converged(status, status.desired):
            return self._over(ConvergenceState.CONVERGED, "converged", proof(status), True)
        if status.current and status.failure is not None:
            return self._over(ConvergenceState.FAILED, "failed", status.failure, _at_rest(status))
        if status.current and status.refusal is not None:
            return self._over(ConvergenceState.REFUSED, "refused", status.refusal, False)
        if not status.current:
            return self._waiting(status, now_s, "status_stale", "the status is of an older spec")
        return self._waiting(status, now_s, *self._blocked(status, now_s))

    def _blocked(self, status: WidthStatus, now_s: float) -> tuple[str, str]:
        """What the resize waits for, and since when where members are lacking."""
        layer = blocking_layer(status)
        code = "" if layer is None else _MEMBERS.get(layer.name, "")
        if layer is None or not code or layer.value is None or layer.value >= status.desired:
            return "resizing", blocking(status)  # an unread layer is passing, and no new wait
        if self._short is None or self._short[:2] != (layer.name, layer.value):
            self._short = layer.name, layer.value, now_s
        since_s = self._short[2]
        if not elapsed(since_s, now_s, self.params.capacity_wait_s):
            return "resizing", blocking(status)
        detail = layer.detail or status.detail
        minutes = (now_s - since_s) / 60
        reason = f"{layer.name} {layer.value} of {status.desired} for {minutes:.0f} min"
        return code, reason + (f": {detail}" if detail else "")

    def _waiting(self, status: WidthStatus, now_s: float, code: str, reason: str) -> Progress:
        resize = self.resize
        assert resize is not None  # noqa: S101  # RESIZING and TIMED_OUT always have one
        if self.state is ConvergenceState.TIMED_OUT:
            pass
        elif elapsed(resize.requested_at_s, now_s, self.params.timeout_s):
            self.state = ConvergenceState.TIMED_OUT
            self._undecided = False
            self._seen, self._desired = True, status.desired
            reason = f"not over after {now_s - resize.requested_at_s:.0f} s: {reason}"
            return Progress(self.state, "timed_out", reason, False, resize, self._ours, True)
        return Progress(self.state, code, reason, False, resize, self._ours)

    def _over(self, state: ConvergenceState, code: str, reason: str, may_write: bool) -> Progress:
        changed = self.state is not state
        ours, ended = self._ours, self.resize
        self.state, self.resize, self._ours = state, None, False
        self._unproven_reads = 0
        if state is ConvergenceState.CONVERGED:
            self._proven = self._desired
        return Progress(state, code, reason, may_write, None, ours, changed, ended)

    def _last_proven(self, status: WidthStatus) -> int:
        return status.present if self._proven is None else self._proven

    def _steady(self, status: WidthStatus) -> Progress:
        self._unproven_reads = 0
        if self.state is ConvergenceState.IDLE:
            self._settled = status
            return _STEADY_IDLE
        if self.state is ConvergenceState.CONVERGED:
            self._settled = status
            return _STEADY
        # Late success after a refusal, a failure or a time-out.
        return self._over(ConvergenceState.CONVERGED, "converged", proof(status), True)

    def _unsteady(self, status: WidthStatus, now_s: float) -> Progress:
        """No resize was in flight, and yet this read does not prove the desired width."""
        state = self.state
        if state is ConvergenceState.TIMED_OUT:
            return self._waiting(status, now_s, "timed_out_hold", self._blocked(status, now_s)[1])
        if state is ConvergenceState.FAILED:
            if status.resizing and status.failure is None:
                return self._adopt(status, now_s, "adopted", status.present)
            reason = status.failure or "the last resize failed"
            return Progress(state, "failed", reason, _at_rest(status))
        if state is ConvergenceState.REFUSED:
            if status.current and status.refusal is None and status.failure is None:
                return self._adopt(status, now_s, "refusal_lifted", status.present)
            return Progress(state, "refused", status.refusal or "refused for good", False)
        return self._doubtful(status, now_s)

    def _doubtful(self, status: WidthStatus, now_s: float) -> Progress:
        """A width that has served is in doubt: a flaky probe, or a lost rank?"""
        origin = status.present
        if status.current and (status.resizing or status.failure or status.refusal):
            return self._adopt(status, now_s, "adopted", origin)
        if status.current and origin != status.desired:
            return self._adopt(status, now_s, "width_lost", origin)
        self._unproven_reads += 1
        if self._unproven_reads >= self.params.lost_after_reads:
            return self._adopt(status, now_s, "width_lost", origin)
        # Still the last proven width: probes fail under the very load that asks for growth.
        return Progress(self.state, "unproven", blocking(status), status.current)


def _at_rest(status: WidthStatus) -> bool:
    """Whether a width may be asked for after a failure.

    An engine that answers 503 after a failed commit is at it again, whatever it says of before.
    """
    return known(status) and not status.resizing
