"""Applies the limits to what a policy wishes.

Order: bounds with GPU budget, lattice; for a shrink: unsupported, missing data, warm-up, scale-down
window, step, settling, cool-down, flap budget; for growth: step, settling, cool-down, flap budget,
GPUs that are there.
A limit either moves the wish or holds the present width. Nothing here decides *that* the width
should change, except that a width out of bounds is brought back into them.

What the guards promise, whatever the policy says: no width out of bounds or off the lattice, and
no shrink on missing data.
"""

from collections import deque
from dataclasses import replace

from autoscaler import limits
from autoscaler.limits import Params as Params
from autoscaler.memory import Memory, Step
from autoscaler.model import Capabilities, Observation, Proposal, Stage
from autoscaler.window import RollingMax

_GROWING = (
    limits.step,
    limits.settling,
    limits.cooldown,
    limits.flap_budget,
    limits.capacity,
)
_SHRINKING = (
    limits.shrink_unsupported,
    limits.missing_data,
    limits.warm_up,
    limits.window,
    limits.step,
    limits.settling,
    limits.cooldown,
    limits.flap_budget,
)


class Guards:
    """Applies the limits, and remembers what they need: wishes and real resizes.

    Call ``apply`` or ``remember`` in every tick (the former includes the latter), ``resized``
    when a resize was really begun, whoever asked for it, and ``settled`` when it was over.
    """

    def __init__(self, params: Params | None = None) -> None:
        self.params = params or Params()
        self._history = limits.History(self.params, RollingMax(self.params.scale_down_window_s))
        self._seen: Capabilities | None = None  # what _reach was computed from
        self._reach: Capabilities | None = None

    def retune(self, params: Params) -> None:
        """Go by other limits from now on, without forgetting resizes, reversals and wishes.

        A longer scale-down window is a new warm-up: the wishes that it lacks are gone.
        """
        history = self._history
        if params.scale_down_window_s > self.params.scale_down_window_s:
            history.started_at_s = None
        history.wishes.window_s = params.scale_down_window_s
        self.params = history.params = params
        self._seen = self._reach = None

    def resized(self, from_width: int, to_width: int, at_s: float) -> None:
        """A resize began. Refused and conflicting writes are none, and move no timer."""
        self.recall(self.remembered(Memory(), (from_width, to_width, at_s)))

    def settled(self, at_s: float) -> None:
        """A resize is over, however it went: cool-downs and quarantine count from here."""
        self._history.over_at_s = at_s

    def recall(self, memory: Memory) -> None:
        """Go on with the cool-downs and the flap budget of another process."""
        history = self._history
        history.over_at_s, history.direction = memory.over_at_s, memory.direction
        history.reversals = deque(memory.reversals)

    def remembered(self, memory: Memory, step: Step | None = None) -> Memory:
        """``memory`` with what ``recall`` goes on from.

        Args:
            memory: to be completed.
            step: a resize that is about to begin; None: none is.
        """
        history = self._history
        over_at_s, direction = history.over_at_s, history.direction
        reversals = tuple(history.reversals)
        if step is not None:
            from_width, to_width, over_at_s = step
            towards = (to_width > from_width) - (to_width < from_width)
            if towards * direction < 0:
                reversals = (*reversals, over_at_s)
            direction = towards or direction
        return replace(memory, over_at_s=over_at_s, direction=direction, reversals=reversals)

    def reach(self, capabilities: Capabilities) -> Capabilities:
        """What the target can do within these bounds: what policies get to see.

        Where nothing is permitted at all, ``min_width`` exceeds ``max_width``.
        """
        reach = self._reach
        if reach is not None and (capabilities is self._seen or capabilities == self._seen):
            return reach
        low = max(self.params.min_width, capabilities.min_width)
        high = limits.ceiling(self.params, capabilities)
        valid = capabilities.valid_widths
        if valid is not None:
            valid = tuple(w for w in valid if low <= w <= high)
            low, high = (valid[0], valid[-1]) if valid else (low, low - 1)
        reach = replace(capabilities, min_width=low, max_width=high, valid_widths=valid)
        self._seen, self._reach = capabilities, reach
        return reach

    def remember(self, proposal: Proposal, obs: Observation) -> None:
        """Enter a wish into the scale-down window although no width may be asked for now."""
        self._permitted(proposal, obs, [])

    def apply(self, proposal: Proposal, obs: Observation) -> tuple[Proposal, tuple[Stage, ...]]:
        """The width that may be asked for now, and what each limit that objected said.

        Args:
            proposal: the policy's wish; also NaN, infinite or absurdly large.
            obs: this tick's observation.

        Returns:
            The proposal itself where nothing objected, and one stage for each objection. A width
            equal to ``obs.width.present`` means "no change", which is always permitted; then code
            and reason are the last objection's, otherwise they stay the policy's.
        """
        stages: list[Stage] = []
        width = self._permitted(proposal, obs, stages)
        present = obs.width.present
        if width != present:
            # After a failed growth the spec is above the present width: going anywhere below the
            # spec is a decrease to the operator.
            growing = width > present and width >= obs.width.desired
            reach = self.reach(obs.capabilities)
            for limit in _GROWING if growing else _SHRINKING:
                verdict = limit(self._history, width, obs, reach)
                if verdict is not None:
                    width = verdict[0]
                    stages.append(Stage("guards", *verdict))
                    if width == present:
                        break
        if not stages:
            if type(proposal.width) is int:
                return proposal, ()
            return Proposal(width, proposal.code, proposal.reason), ()
        last = stages[-1]
        if width == present:
            return Proposal(width, last.code, last.reason), tuple(stages)
        reason = f"{proposal.reason}; {last.reason}"
        return Proposal(width, proposal.code, reason), tuple(stages)

    def _permitted(self, proposal: Proposal, obs: Observation, stages: list[Stage]) -> int:
        """The permitted width nearest to the wish, entered into the window."""
        history = self._history
        if history.started_at_s is None:
            history.started_at_s = obs.now_s
        width = proposal.width
        reach = self.reach(obs.capabilities)
        if type(width) is not int:
            width, verdict = limits.whole(width, obs, reach)
            if verdict is not None:
                stages.append(Stage("guards", *verdict))
        verdict = limits.bounds(history, width, obs, reach)
        if verdict is not None:
            width = verdict[0]
            stages.append(Stage("guards", *verdict))
        if reach.valid_widths is not None:
            verdict = limits.lattice(history, width, obs, reach)
            if verdict is not None:
                width = verdict[0]
                stages.append(Stage("guards", *verdict))
        history.wishes.add(obs.now_s, width)
        return width
