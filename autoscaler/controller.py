"""One tick's decision: convergence, then policy, then guards. Pure: no I/O, no clock.

The same object decides live and in simulation. It is told what was observed (``step``) and how
its write went (``on_outcome``); everything else it remembers itself.
"""

from dataclasses import replace

from autoscaler.convergence import Convergence, ConvergenceState, Progress
from autoscaler.guards import Guards
from autoscaler.memory import Memory, Step
from autoscaler.model import (
    WRITER,
    Capabilities,
    Decision,
    Observation,
    Proposal,
    Resize,
    SetOutcome,
    SetResult,
    Stage,
    Tristate,
)
from autoscaler.override import Override
from autoscaler.pause import Pause, paused
from autoscaler.ports import Policy
from autoscaler.proof import lacks_members
from autoscaler.refusals import Refusals

_NO_RESIZE_CODES = ("width_lost", "width_unknown", "restarted")
"""Beginnings that nobody asked for: they move no cool-down and count as no reversal."""

_FORBIDDEN_HOLD_S = 30.0
_FORBIDDEN_HOLD_MAX_S = 600.0


class Controller:
    """Decides once a tick whether a width is to be written, and which.

    Args:
        policy: what the width should be; asked in every tick, also during a resize.
        guards: the limits on its wishes; one of its own for each target.
        convergence: follows the resizes; one of its own for each target.
        watches: whether its widths are never written, as a shadow's are not: what others write
            is no override then, and a pause switch does not concern it.
        pause: what the configuration pauses: all, up, down; None: nothing.
    """

    def __init__(
        self,
        policy: Policy,
        guards: Guards | None = None,
        convergence: Convergence | None = None,
        *,
        watches: bool = False,
        pause: str | None = None,
    ) -> None:
        self.policy = policy
        self.guards = guards or Guards()
        self.convergence = convergence or Convergence()
        self.watches = watches
        self.pause = pause
        self.fights = 0
        """fights with another writer that have begun"""
        self.progress: Progress | None = None
        """what the last tick's reading showed of the resize; None before the first one"""
        self.proposal: Proposal | None = None
        """the policy's last wish; None before the first one"""
        self._tick: int | None = None
        # Most ticks say what the last one said, with the very same objects.
        self._told: tuple[Progress | None, Proposal | None] = None, None
        self._trail: tuple[Stage, ...] = ()
        self._counted: Resize | None = None  # the resize that the guards know of
        self._refusals = Refusals()
        self._override = Override()
        self._last: Step | None = None  # the last resize that the guards know of
        self._unproven: Resize | None = None  # a wait for proof, begun with a recalled memory
        self._recalled = False
        self._forbidden_until_s: float | None = None
        self._forbidden_hold_s = 0.0
        self._forbidden = ""

    @property
    def ready(self) -> bool:
        """Whether writes are permitted, as far as is known: false from a 403 to a good write."""
        return not self._forbidden

    @property
    def resize(self) -> Resize | None:
        """The resize in flight; None: there is none."""
        return None if self.progress is None else self.progress.resize

    def step(self, obs: Observation) -> Decision:
        """Decide one tick.

        Args:
            obs: what was read; its ``resize`` is filled in here, and its ``memory`` replaces what
                is known. Each tick number is decided once: asked again for the same one, the
                answer is to hold.

        Returns:
            The decision; its width is None unless a width is to be written now.
        """
        if obs.tick == self._tick:
            return self._hold(obs, "already_decided", f"tick {obs.tick} is decided", ())
        followed = self._tick is not None and obs.tick == self._tick + 1
        self._tick = obs.tick
        memory = obs.memory
        if memory is not None:
            self._recall(memory)

        progress = self.convergence.advance(obs.width, obs.now_s)
        self.progress = progress
        if progress.changed or progress.resize is not self._counted:
            self._note(progress, obs, followed=followed)

        seen = Observation(
            obs.tick,
            obs.now_s,
            obs.metrics,
            obs.width,
            self.guards.reach(obs.capabilities),
            obs.slo,
            progress.resize,
        )
        proposal = self.policy.propose(seen)
        self.proposal = proposal
        trail = self._tell(progress, proposal)
        if memory is not None:
            trail = (Stage("memory", memory.desired, *memory.told), *trail)
        if not progress.may_write:
            self.guards.remember(proposal, obs)
            held = self._hold(obs, progress.code, progress.reason, trail)
            return self._way_back(progress, obs, seen.capabilities, trail) or held

        if obs.width.desired == 0 and seen.capabilities.min_width > 0:
            # Nobody but a person scales to a width that is out of bounds: it means "off".
            self.guards.remember(proposal, obs)
            return self._hold(obs, "scaled_to_zero", "the desired width is 0: switched off", trail)

        pause = None if self.watches else paused(obs.width.pause, self.pause)
        switched = self._switched_off(pause, obs)
        if switched is not None:
            self.guards.remember(proposal, obs)
            return self._hold(obs, *switched, trail)

        allowed, objections = self.guards.apply(proposal, obs)
        if objections:
            trail += objections
        width = allowed.width
        if width == obs.width.present:
            return self._hold(obs, allowed.code, allowed.reason, trail)
        if width == obs.width.desired:
            return self._hold(obs, "already_desired", "the spec already says so", trail)
        objection = self._unwritable(width, obs, pause)
        if objection is not None:
            trail += (objection,)
            return self._hold(obs, objection.code, objection.reason, trail)
        return Decision(
            obs.tick, obs.now_s, width, obs.width.desired, allowed.code, allowed.reason, trail
        )

    def _tell(self, progress: Progress, proposal: Proposal) -> tuple[Stage, ...]:
        """The trail's first two stages."""
        if progress is not self._told[0] or proposal is not self._told[1]:
            self._trail = (
                Stage("convergence", None, progress.code, progress.reason),
                Stage("policy", proposal.width, proposal.code, proposal.reason),
            )
            self._told = progress, proposal
        return self._trail

    def on_outcome(self, decision: Decision, outcome: SetOutcome, obs: Observation) -> None:
        """Take the answer to the write that ``decision`` asked for into account.

        Args:
            decision: the one ``step`` returned, with a width.
            outcome: the target's answer.
            obs: the observation that the decision was made from.
        """
        width, expected = decision.width, decision.expected
        if width is None or expected is None:
            raise ValueError("on_outcome: the decision asked for no write")
        result = outcome.result
        self.convergence.on_written(width, expected, outcome, decision.at_s)
        if result is SetResult.FORBIDDEN:
            hold_s = self._forbidden_hold_s * 2 or _FORBIDDEN_HOLD_S
            self._forbidden_hold_s = min(hold_s, _FORBIDDEN_HOLD_MAX_S)
            self._forbidden_until_s = decision.at_s + self._forbidden_hold_s
            self._forbidden = outcome.detail or "writing the width is not permitted"
            return
        if result in (SetResult.APPLIED, SetResult.AMBIGUOUS):
            self._override.wrote(decision.at_s)
        if result in (SetResult.APPLIED, SetResult.REFUSED):
            self._forbidden, self._forbidden_until_s, self._forbidden_hold_s = "", None, 0.0
        if result is SetResult.APPLIED:
            self._counted = self.convergence.resize
            self._last = (expected, width, decision.at_s)
            self.guards.resized(*self._last)
        elif result is SetResult.REFUSED:
            self._refusals.add(width, outcome.detail or "refused", obs)

    def memory(self, asking: Decision | None = None, *, applied: bool = True) -> Memory:
        """What another process needs to go on from here: what ``Observation.memory`` takes.

        Args:
            asking: a decision whose width is about to be written; None: none is.
            applied: whether the memory is there exactly if the width is: both are written in one.
        """
        known = self.convergence.remembered()
        override = self._override
        step, wrote_at_s = None, override.wrote_at_s
        if asking is not None and asking.width is not None and asking.expected is not None:
            step = (asking.expected, asking.width, asking.at_s)
            desired = asking.width if applied else asking.expected
            known = Memory(desired, "resizing", step, True, True, applied)
            wrote_at_s = asking.at_s
        elif not known.in_flight:
            known = replace(known, resize=self._last)
        refused, refused_in = self._refusals.remembered()
        known = replace(
            known,
            refused=refused,
            refused_in=refused_in,
            foreign_at_s=override.at_s,
            foreign_width=override.width,
            foreign_by=override.by,
            answered=override.answered,
            unanswered_at_s=wrote_at_s,
        )
        return self.guards.remembered(known, step if applied else None)

    def _recall(self, memory: Memory) -> None:
        """Go on from what another process left behind."""
        if memory.blank:
            return
        self.convergence.recall(memory)
        self.guards.recall(memory)
        resize = self.convergence.resize
        # What the guards are told of when it turns out to have happened, or were told already.
        self._counted = resize if memory.applied else None
        self._last = memory.resize if memory.applied else None
        self._refusals.recall(memory)
        self._override = Override(
            memory.foreign_at_s,
            memory.foreign_width,
            memory.foreign_by,
            memory.answered,
            memory.unanswered_at_s,
        )
        self._recalled = True

    def _note(self, progress: Progress, obs: Observation, *, followed: bool) -> None:
        """Tell the guards of resizes that began or were over, ours or somebody else's.

        Args:
            progress: what convergence says.
            obs: what it says it of.
            followed: whether the tick before could be observed too.
        """
        now_s = obs.now_s
        if progress.foreign and not self.watches:
            by = obs.width.writer
            # Where no object keeps the width, an engine that was away may have come back with one.
            if by != WRITER and (obs.width.kept or followed):
                params = self.guards.params
                self.fights += self._override.foreign(obs.width.desired, by, now_s, params)
        if self._recalled and progress.code == "width_unknown":
            self._unproven = progress.resize or progress.ended
        begun = progress.resize or progress.ended
        if begun is not None and begun is not self._counted and progress.code != "ambiguous":
            self._counted = begun
            if progress.code not in _NO_RESIZE_CODES:
                self._last = (begun.from_width, begun.to_width, begun.requested_at_s)
                self.guards.resized(*self._last)
        if progress.ended is not None and progress.ended is not self._unproven:
            self.guards.settled(now_s)
        if progress.resize is None:
            self._counted = None

    def _way_back(
        self,
        progress: Progress,
        obs: Observation,
        reach: Capabilities,
        trail: tuple[Stage, ...],
    ) -> Decision | None:
        """Back to the width that serves, after a growth of ours whose members never came.

        Members that wait for GPUs for good would keep the spec from ever following the load down,
        and the next growth from being looked at. None: no way back, or not wanted: what an engine
        is still at is never interrupted, and what a person asked for is the person's to take back.
        """
        width, back = obs.width, obs.width.present
        given_up = progress.state is ConvergenceState.TIMED_OUT and progress.ours
        if not given_up or not lacks_members(width) or width.resizing or not width.current:
            return None
        if obs.capabilities.can_shrink is not Tristate.YES or not reach.permits(back):
            return None
        pause = None if self.watches else paused(width.pause, self.pause)
        switched = self._switched_off(pause, obs) is not None
        if back >= width.desired or switched or self._unwritable(back, obs, pause) is not None:
            return None
        reason = f"back to the width that serves: {progress.reason}"
        return Decision(obs.tick, obs.now_s, back, width.desired, "reverted", reason, trail)

    def _unwritable(self, width: int, obs: Observation, pause: Pause | None) -> Stage | None:
        """Why this width is not to be asked for although policy and guards agree on it."""
        if pause is not None and pause.forbids(width, obs.width.present, obs.width.desired):
            code = "paused_up" if pause.up else "paused_down"
            return Stage("controller", None, code, pause.reason)
        if self._forbidden_until_s is not None and obs.now_s < self._forbidden_until_s:
            return Stage("controller", None, "forbidden", self._forbidden)
        return self._refusals.objection(width, obs)

    def _switched_off(self, pause: Pause | None, obs: Observation) -> tuple[str, str] | None:
        """Code and reason why nothing at all is to be written; None: there is none."""
        if pause is not None and pause.up and pause.down:
            return "paused", pause.reason
        if self.watches:
            return None
        return self._override.objection(obs.now_s, self.guards.params)

    @staticmethod
    def _hold(obs: Observation, code: str, reason: str, trail: tuple[Stage, ...]) -> Decision:
        return Decision(obs.tick, obs.now_s, None, obs.width.desired, code, reason, trail)
