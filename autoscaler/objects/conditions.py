"""What one tick says of an object: widths, the decision, and four conditions as the HPA has them.

Pure. Reasons are stable words for machines, one a situation; messages are for people. An unknown
code, such as a third party's, becomes its own reason in CamelCase.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from autoscaler.convergence import ConvergenceState, Progress
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Metrics, Observation, Proposal, SetOutcome, SetResult, Stage

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; when it became so is ``status``'s part."""

    type: str
    status: Truth
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What there is to tell of one object now.

    Args:
        generation: of the spec that this speaks of.
        conditions: in a fixed order.
        proposed, desired, effective, stable: widths; None: not known now.
        code, reason: of the last decision; "": there was none.
    """

    generation: int
    conditions: tuple[Condition, ...]
    proposed: int | None = None
    desired: int | None = None
    effective: int | None = None
    stable: int | None = None
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """What a loop knew after a tick; None: unknown, or none yet."""

    decision: Decision
    obs: Observation | None
    outcome: SetOutcome | None
    progress: Progress | None
    proposal: Proposal | None


_UNABLE: Mapping[str, str] = {
    "target_unreadable": "TargetUnreadable",
    "forbidden": "WriteForbidden",
    "refused": "WidthRefused",
    "timed_out": "ResizeTimedOut",
    "timed_out_hold": "ResizeTimedOut",
    "scaled_to_zero": "ScaledToZero",
    "nothing_permitted": "NoWidthPermitted",
}
"""Code of a decision: why no width could be written although one might be wanted."""

_SWITCHED_OFF: Mapping[str, str] = {
    "scaled_to_zero": "ScaledToZero",
    "paused": "Paused",
    "overridden": "Overridden",
    "fight": "OtherWriter",
}
"""Code of a decision: what of somebody else's doing keeps everything as it is."""

_OUTCOMES: Mapping[SetResult, tuple[Truth, str]] = {
    SetResult.APPLIED: ("True", "WidthWritten"),
    SetResult.CONFLICT: ("True", "WriteConflict"),
    SetResult.REFUSED: ("False", "WidthRefused"),
    SetResult.AMBIGUOUS: ("Unknown", "WriteUnclear"),
    SetResult.FORBIDDEN: ("False", "WriteForbidden"),
    SetResult.SKIPPED: ("False", "WriteSkipped"),
}
_CONVERGED: Mapping[ConvergenceState, tuple[Truth, str]] = {
    ConvergenceState.IDLE: ("True", "WidthServes"),
    ConvergenceState.CONVERGED: ("True", "WidthServes"),
    ConvergenceState.RESIZING: ("False", "Resizing"),
    ConvergenceState.REFUSED: ("False", "WidthRefused"),
    ConvergenceState.FAILED: ("False", "ResizeFailed"),
    ConvergenceState.TIMED_OUT: ("False", "ResizeTimedOut"),
}
_LIMITS: Mapping[str, str] = {
    "min_width": "AtMinWidth",
    "max_width": "AtMaxWidth",
    "gpu_budget": "GpuBudget",
    "no_capacity": "CapacityMissing",
    "cooldown_up": "CoolingDown",
    "cooldown_down": "CoolingDown",
    "scale_down_window": "ScaleDownStabilized",
}
_LIMITING = ("guards", "controller")
_NEEDED = ("ttft_p95_s", "queue_depth")


def after(loop: ControlLoop) -> Tick | None:
    """What a loop knows, in its own thread after a tick; None: there was none yet."""
    if loop.decision is None:
        return None
    controller = loop.controller
    return Tick(
        loop.decision, loop.observation, loop.outcome, controller.progress, controller.proposal
    )


def report(tick: Tick, generation: int) -> Report:
    """What there is to tell after a tick."""
    conditions = (_able(tick), _active(tick), _limited(tick), _converged(tick))
    code, reason = tick.decision.code, tick.decision.reason
    if tick.obs is None:
        return Report(generation, conditions, code=code, reason=reason)
    width, proposal = tick.obs.width, tick.proposal
    return Report(
        generation,
        conditions,
        None if proposal is None else proposal.width,
        width.desired,
        width.effective,
        width.stable,
        code,
        reason,
    )


def refusal(generation: int, code: str, message: str) -> Report:
    """What there is to tell of a spec that is not gone by.

    Args:
        generation: of the spec.
        code: invalid_spec | already_steered.
        message: for people.
    """
    able = Condition("AbleToScale", "False", camel(code), message)
    rest = ("ScalingActive", "ScalingLimited", "Converged")
    none = (Condition(kind, "Unknown", "NotSteered", "nothing steers it") for kind in rest)
    return Report(generation, (able, *none), code=code, reason=message)


def kept(ticked: Report, refused: Report) -> Report:
    """What there is to tell while a spec is refused and the one before it is still gone by."""
    first, *rest = ticked.conditions
    able = refused.conditions[0]
    goes_on = f"{able.message}; steered by the spec of generation {ticked.generation} until then"
    assert first.type == able.type  # noqa: S101  # both are made above, in one order
    conditions = (replace(able, message=goes_on), *rest)
    return replace(ticked, generation=refused.generation, conditions=conditions)


def _able(tick: Tick) -> Condition:
    decision, kind = tick.decision, "AbleToScale"
    if tick.outcome is not None:
        status, reason = _OUTCOMES[tick.outcome.result]
        return Condition(kind, status, reason, tick.outcome.detail or decision.reason)
    if decision.code in _UNABLE:
        return Condition(kind, "False", _UNABLE[decision.code], decision.reason)
    if tick.progress is not None and tick.progress.state is ConvergenceState.RESIZING:
        return Condition(kind, "True", "ResizeInFlight", tick.progress.reason)
    return Condition(kind, "True", "ReadyForNewWidth", "a width can be written")


def _active(tick: Tick) -> Condition:
    kind = "ScalingActive"
    if tick.obs is None:
        return Condition(kind, "Unknown", "TargetUnreadable", tick.decision.reason)
    if tick.decision.code in _SWITCHED_OFF:
        return Condition(kind, "False", _SWITCHED_OFF[tick.decision.code], tick.decision.reason)
    missing = _missing(tick.obs.metrics)
    if missing and not tick.obs.idle:
        return Condition(kind, "False", "MetricsUnavailable", missing)
    return Condition(kind, "True", "ValidMetrics", "the metrics say what the width should be")


def _missing(metrics: Metrics) -> str:
    """Which of the needed signals say nothing, and why; "": none."""
    signals = {name: getattr(metrics, name) for name in _NEEDED}
    return "; ".join(
        f"{name}: {signal.status.value}" + (f" ({signal.detail})" if signal.detail else "")
        for name, signal in signals.items()
        if signal.at_least is None
    )


def _limited(tick: Tick) -> Condition:
    kind = "ScalingLimited"
    stages: list[Stage] = [stage for stage in tick.decision.trail if stage.name in _LIMITING]
    if not stages:
        return Condition(kind, "False", "WithinLimits", "the proposed width is within all limits")
    last = stages[-1]
    return Condition(kind, "True", _LIMITS.get(last.code, camel(last.code)), last.reason)


def _converged(tick: Tick) -> Condition:
    kind, progress = "Converged", tick.progress
    if tick.obs is None or progress is None:
        return Condition(kind, "Unknown", "TargetUnreadable", tick.decision.reason)
    wrote = tick.outcome is not None and tick.outcome.result in (
        SetResult.APPLIED,
        SetResult.AMBIGUOUS,
    )
    if wrote:  # the reading was before the write
        return Condition(kind, "False", "Resizing", f"asked for width {tick.decision.width}")
    if progress.code == "unproven":
        return Condition(kind, "Unknown", "Unproven", progress.reason)
    status, reason = _CONVERGED[progress.state]
    return Condition(kind, status, reason, progress.reason)


def camel(code: str) -> str:
    """``step_limit`` as ``StepLimit``: a reason has to be a word without underscores."""
    return "".join(part[:1].upper() + part[1:] for part in code.split("_")) or "Unnamed"
