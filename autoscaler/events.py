"""What is worth a Kubernetes Event: one a change, not one a tick. Pure: no I/O, no clock.

Reasons are stable words that people and alerts filter by; messages are for people.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.model import Decision, Observation, Resize, SetOutcome, SetResult, SignalStatus
from autoscaler.window import elapsed

_QUIET_S = 600.0
"""A warning that comes back within so long is counted, and told with the next one."""

_REMIND_S = 3600.0
"""What is still so is told again: API servers forget Events after an hour."""

_OVER_S = 60.0
"""A state counts as left after so long: what comes and goes from tick to tick is one state."""

_LOST_S = 30.0
"""One late scrape is no lost signal, nor is one answer of an API server that is restarting."""


@dataclass(frozen=True, slots=True)
class Event:
    """One Event: a stable reason, whether it is a warning, and a message for people."""

    reason: str
    warning: bool
    message: str


@dataclass(frozen=True, slots=True)
class _Kind:
    """Reasons while something goes on and once it is over; "": its end is not told."""

    reason: str
    warning: bool
    over: str = ""
    grace_s: float = 0.0


_STATES: dict[str, _Kind] = {
    # by code of a stage or a decision
    "paused": _Kind("ScalingPaused", False, "ScalingResumed"),
    "paused_up": _Kind("ScalingPaused", False, "ScalingResumed"),
    "paused_down": _Kind("ScalingPaused", False, "ScalingResumed"),
    "overridden": _Kind("ManualOverride", False),
    "fight": _Kind("WriterFight", True),
    "flap_budget": _Kind("FlapBudgetSpent", True),
    "no_capacity": _Kind("CapacityMissing", True),
    "waiting_for_capacity": _Kind("CapacityMissing", True),
    "slo_infeasible": _Kind("SloInfeasible", True),
    "forbidden": _Kind("WriteForbidden", True),
    "signal_lost": _Kind("SignalLost", True, "SignalRecovered", _LOST_S),
    "target_unreadable": _Kind("TargetUnreadable", True, "TargetReadable", _LOST_S),
}

_TURNS: dict[str, tuple[str, bool]] = {
    # code of convergence, told when it is entered
    "failed": ("ResizeFailed", True),
    "refused": ("ResizeRefused", True),
    "timed_out": ("ResizeTimedOut", True),
    "not_applied": ("ResizeNotApplied", True),
    "foreign_write": ("ResizeAdopted", False),
    "adopted": ("ResizeAdopted", False),
    "refusal_lifted": ("ResizeAdopted", False),
    "restarted": ("InstanceReplaced", True),
    "width_lost": ("WidthLost", True),
}

_WRITES: dict[SetResult, tuple[str, bool]] = {
    SetResult.APPLIED: ("ResizeRequested", False),
    SetResult.AMBIGUOUS: ("WriteUnclear", True),
    SetResult.REFUSED: ("ResizeRefused", True),
}

_LOST = (
    SignalStatus.NO_SERIES,
    SignalStatus.NON_FINITE,
    SignalStatus.AMBIGUOUS,
    SignalStatus.STALE,
)
"""Nobody knows the quantity. The other reasons (few samples, a reset, ...) say why there is none
just now, which is in order."""


@dataclass(slots=True)
class _State:
    """Something that goes on. ``told_at_s`` None: not told yet."""

    since_s: float
    seen_at_s: float
    told_at_s: float | None = None


class Events:
    """Follows one target's decisions.

    Call ``tell`` once a tick, with what a ``DecisionLog`` is given.
    """

    def __init__(self) -> None:
        self._turn = ""  # what convergence said last
        self._resize: Resize | None = None  # in flight after the last tick
        self._states: dict[str, _State] = {}
        self._warned: dict[tuple[str, str], tuple[float, int]] = {}  # when last, held back since

    def tell(
        self, decision: Decision, obs: Observation | None, outcome: SetOutcome | None
    ) -> list[Event]:
        """The Events that this tick is worth; most ticks are worth none."""
        now_s = decision.at_s
        told: list[Event] = []
        if obs is not None:
            told += self._of_resize(decision, obs, now_s)
        if outcome is not None and outcome.result in _WRITES:
            reason, warning = _WRITES[outcome.result]
            which = f"width {decision.expected} -> {decision.width}: "
            if warning:
                told += self._warn(reason, which, which + outcome.detail, now_s)
            else:
                told.append(_normal(reason, which + decision.reason))
        told += self._of_states(decision, obs, outcome)
        if obs is not None:
            self._resize = obs.resize
        return told

    def _of_resize(self, decision: Decision, obs: Observation, now_s: float) -> Iterator[Event]:
        """What became of a resize, if this is the tick in which it became so."""
        said = next((stage for stage in decision.trail if stage.name == "convergence"), None)
        if said is None:
            return
        before, self._turn = self._turn, said.code
        resize = self._resize
        if said.code == "converged" and resize is not None:
            if resize.from_width == resize.to_width:
                return  # a boot, or a read in doubt: nobody resized
            took_s = now_s - resize.requested_at_s
            text = f"width {resize.from_width} -> {obs.width.desired} serves after {took_s:.0f} s"
            yield _normal("ResizeConverged", text)
        elif said.code in _TURNS and said.code != before:
            reason, warning = _TURNS[said.code]
            over = obs.resize or resize
            which = "" if over is None else f"width {over.from_width} -> {over.to_width}: "
            text = which + said.reason.removeprefix(f"{said.code}: ")
            if warning:
                yield from self._warn(reason, which, text, now_s)
            else:
                yield _normal(reason, text)

    def _of_states(
        self, decision: Decision, obs: Observation | None, outcome: SetOutcome | None
    ) -> Iterator[Event]:
        """What goes on: told when it begins, once an hour while it lasts, and when it is over."""
        now_s = decision.at_s
        present = _going_on(decision, obs, outcome)
        for code, text in present.items():
            state = self._states.setdefault(code, _State(now_s, now_s))
            state.seen_at_s = now_s
            kind = _STATES[code]
            if state.told_at_s is None and elapsed(state.since_s, now_s, kind.grace_s):
                state.told_at_s = now_s
                if kind.warning:
                    yield from self._warn(kind.reason, code, text, now_s)
                else:
                    yield _normal(kind.reason, text)
            elif state.told_at_s is not None and elapsed(state.told_at_s, now_s, _REMIND_S):
                state.told_at_s = now_s
                minutes = (now_s - state.since_s) / 60
                yield Event(kind.reason, kind.warning, f"still so after {minutes:.0f} min: {text}")
        for code in [code for code in self._states if code not in present]:
            state, kind = self._states[code], _STATES[code]
            blind = obs is None or (code == "signal_lost" and obs.resize is not None)
            if blind and code != "target_unreadable":
                continue  # nobody can say that it is over
            if kind.grace_s or elapsed(state.seen_at_s, now_s, _OVER_S):
                del self._states[code]
                if kind.over and state.told_at_s is not None:
                    yield _normal(kind.over, f"after {now_s - state.since_s:.0f} s")

    def _warn(self, reason: str, key: str, text: str, now_s: float) -> Iterator[Event]:
        """A warning, unless the same one was told a short while ago: then it is counted."""
        last_s, held_back = self._warned.get((reason, key), (None, 0))
        if last_s is not None and not elapsed(last_s, now_s, _QUIET_S):
            self._warned[reason, key] = last_s, held_back + 1
            return
        self._warned[reason, key] = now_s, 0
        often = f" ({held_back} more since the last one)" if held_back else ""
        yield Event(reason, True, text + often)


def _going_on(
    decision: Decision, obs: Observation | None, outcome: SetOutcome | None
) -> dict[str, str]:
    """What is so in this tick, by code, with a text for people."""
    found = {stage.code: stage.reason for stage in decision.trail if stage.code in _STATES}
    if decision.code in _STATES:
        found[decision.code] = decision.reason
    if outcome is not None and outcome.result is SetResult.FORBIDDEN:
        found["forbidden"] = outcome.detail or "writing the width is not permitted"
    if obs is not None and obs.resize is None:  # an engine in its commit answers nothing
        for name in ("queue_depth", "ttft_p95_s"):
            signal = getattr(obs.metrics, name)
            if signal.status in _LOST:
                detail = f" ({signal.detail})" if signal.detail else ""
                found["signal_lost"] = f"{name}: {signal.status.value}{detail}"
                break
    return found


def _normal(reason: str, text: str) -> Event:
    return Event(reason, False, text)
