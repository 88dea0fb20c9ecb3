"""One tick's decision: convergence, then policy, then guards. Pure: no I/O, no clock.

The same object decides live and in simulation. It is told what was observed (``step``) and how
its write went (``on_outcome``); everything else it remembers itself.
"""

from autoscaler.convergence import Convergence, Progress
from autoscaler.guards import Guards
from autoscaler.model import (
    Capabilities,
    Decision,
    Observation,
    Proposal,
    Resize,
    SetOutcome,
    SetResult,
    Stage,
)
from autoscaler.ports import Policy

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
    """

    def __init__(
        self, policy: Policy, guards: Guards | None = None, convergence: Convergence | None = None
    ) -> None:
        self.policy = policy
        self.guards = guards or Guards()
        self.convergence = convergence or Convergence()
        self.progress: Progress | None = None
        """what the last tick's reading showed of the resize; None before the first one"""
        self.proposal: Proposal | None = None
        """the policy's last wish; None before the first one"""
        self._tick: int | None = None
        # Most ticks say what the last one said, with the very same objects.
        self._told: tuple[Progress | None, Proposal | None] = None, None
        self._trail: tuple[Stage, ...] = ()
        self._counted: Resize | None = None  # the resize that the guards know of
        self._refused: dict[int, str] = {}
        self._refused_in: tuple[int, int | None, str, Capabilities] | None = None
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
            obs: what was read; its ``resize`` is filled in here. Each tick number is decided
                once: asked again for the same one, the answer is to hold.

        Returns:
            The decision; its width is None unless a width is to be written now.
        """
        if obs.tick == self._tick:
            return self._hold(obs, "already_decided", f"tick {obs.tick} is decided", ())
        self._tick = obs.tick

        progress = self.convergence.advance(obs.width, obs.now_s)
        self.progress = progress
        if progress.changed or progress.resize is not self._counted:
            self._note(progress, obs.now_s)

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
        trail = self._trail
        if progress is not self._told[0] or proposal is not self._told[1]:
            trail = self._trail = (
                Stage("convergence", None, progress.code, progress.reason),
                Stage("policy", proposal.width, proposal.code, proposal.reason),
            )
            self._told = progress, proposal
        if not progress.may_write:
            self.guards.remember(proposal, obs)
            return self._hold(obs, progress.code, progress.reason, trail)

        if obs.width.desired == 0 and seen.capabilities.min_width > 0:
            # Nobody but a person scales to a width that is out of bounds: it means "off".
            self.guards.remember(proposal, obs)
            return self._hold(obs, "scaled_to_zero", "the desired width is 0: switched off", trail)

        allowed, objections = self.guards.apply(proposal, obs)
        if objections:
            trail += objections
        width = allowed.width
        if width == obs.width.present:
            return self._hold(obs, allowed.code, allowed.reason, trail)
        if width == obs.width.desired:
            return self._hold(obs, "already_desired", "the spec already says so", trail)
        objection = self._unwritable(width, obs)
        if objection is not None:
            trail += (objection,)
            return self._hold(obs, objection.code, objection.reason, trail)
        return Decision(
            obs.tick, obs.now_s, width, obs.width.desired, allowed.code, allowed.reason, trail
        )

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
        if result in (SetResult.APPLIED, SetResult.REFUSED):
            self._forbidden, self._forbidden_until_s, self._forbidden_hold_s = "", None, 0.0
        if result is SetResult.APPLIED:
            self._counted = self.convergence.resize
            self.guards.resized(expected, width, decision.at_s)
        elif result is SetResult.REFUSED:
            self._refused_in = _situation(obs)
            self._refused[width] = outcome.detail or "refused"

    def _note(self, progress: Progress, now_s: float) -> None:
        """Tell the guards of resizes that began or were over, ours or somebody else's."""
        begun = progress.resize or progress.ended
        if begun is not None and begun is not self._counted and progress.code != "ambiguous":
            self._counted = begun
            if progress.code not in _NO_RESIZE_CODES:
                self.guards.resized(begun.from_width, begun.to_width, begun.requested_at_s)
        if progress.ended is not None:
            self.guards.settled(now_s)
        if progress.resize is None:
            self._counted = None

    def _unwritable(self, width: int, obs: Observation) -> Stage | None:
        """Why this width is not to be asked for although policy and guards agree on it."""
        if self._forbidden_until_s is not None and obs.now_s < self._forbidden_until_s:
            return Stage("controller", None, "forbidden", self._forbidden)
        if not self._refused:
            return None
        if self._refused_in != _situation(obs):
            self._refused.clear()  # something changed: worth asking again
            return None
        if width in self._refused:
            reason = f"{width} was refused and nothing has changed: {self._refused[width]}"
            down = width < obs.width.desired
            return Stage("controller", None, "shrink_unsupported" if down else "refused", reason)
        if width < obs.width.desired and min(self._refused) < obs.width.desired:
            reason = "another decrease was refused and nothing has changed"
            return Stage("controller", None, "shrink_unsupported", reason)
        return None

    @staticmethod
    def _hold(obs: Observation, code: str, reason: str, trail: tuple[Stage, ...]) -> Decision:
        return Decision(obs.tick, obs.now_s, None, obs.width.desired, code, reason, trail)


def _situation(obs: Observation) -> tuple[int, int | None, str, Capabilities]:
    """What has to change before a refused width is worth asking for again."""
    width = obs.width
    return width.desired, width.effective, width.incarnation, obs.capabilities
