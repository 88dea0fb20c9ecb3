"""Waiting requests over a threshold, as KEDA's users run it: more than 5 waiting, one more."""

from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.evidence import missing
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, require_number, require_whole
from autoscaler.ports import PolicyContext
from autoscaler.ratio_scaling import Behaviour, Direction, Metric, Rate, RatioScaler


@dataclass(frozen=True, slots=True)
class Params:
    """The trigger, and what the HPA behind it does.

    Args:
        threshold: waiting requests that one unit of width stands for, > 0. Larger: fewer
            GPU-hours, a longer queue.
        tolerance: share of it by which the queue may be off without a change, >= 0. Larger:
            fewer changes.
        period_s: time between two evaluations, s, >= 0. Larger: slower.
        down_window_s: how long a lower wish has to last, s, >= 0. Larger: more GPU-hours, fewer
            reversals.
        fallback_width: asked for where the queue has been unknown for long, >= 0; None: never.
            Larger: safer while blind, more GPU-hours.
        fallback_after: evaluations with an unknown queue after which that is so, >= 1.
    """

    threshold: Annotated[float, Range(0.1, 50.0, log=True)] = 5.0
    tolerance: Annotated[float, Range(0.0, 0.3)] = 0.1
    period_s: Annotated[float, Range(5.0, 60.0)] = 15.0
    down_window_s: Annotated[float, Range(0.0, 1200.0)] = 300.0
    fallback_width: int | None = None
    fallback_after: int = 3

    def __post_init__(self) -> None:
        require_number("threshold", self.threshold, 0, above=True)
        for name in ("tolerance", "period_s", "down_window_s"):
            require_number(name, getattr(self, name), 0)
        require_whole("fallback_width", self.fallback_width, 0)
        require_whole("fallback_after", self.fallback_after, 1)


class QueueThreshold:
    """width = ceil(waiting / threshold), windows and rates of an HPA with default behavior.

    Modelled: a KEDA Prometheus trigger on vLLM's waiting requests with its default metric type
    (the threshold is for one unit of width), the HPA that KEDA makes, and the fallback.
    Not modelled: activation from zero and the cool-down to zero, further triggers, polling apart
    from the HPA's period. Minimum and maximum are the guards'.

    Overload: as many units as the queue has thresholds, which says nothing about how long they
    will need. Keeping up: the queue is short and the wish with it falls to the minimum, whatever
    is in execution, so that the next lull is followed by the next queue. Queue unknown: no
    change; unlike the original's default, which reads an empty answer as 0. The fallback only
    ever adds: never below the present width. TTFT unknown: no shrink, unlike the original.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        # The behavior that an HPA has where none is given.
        fast = (Rate(100.0, True, 15.0), Rate(4.0, False, 15.0))
        self._scaler = RatioScaler(
            (Metric("queue_depth", params.threshold, per_width=True),),
            params.tolerance,
            Behaviour(Direction(0.0, fast), Direction(params.down_window_s, (fast[0],))),
            params.period_s,
        )
        self._unknown_since_s: float | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The width that the HPA behind the trigger would set now."""
        said = self._scaler.propose(obs)
        fallback = self.params.fallback_width
        if obs.metrics.queue_depth.at_least is not None:
            self._unknown_since_s = None
            return said
        if self._unknown_since_s is None or self._unknown_since_s > obs.now_s:
            self._unknown_since_s = obs.now_s
        blind_s = obs.now_s - self._unknown_since_s
        if fallback is None or blind_s < self.params.fallback_after * self.params.period_s:
            return said
        if fallback <= max(said.width, obs.width.present):
            return said
        return Proposal(fallback, "fallback", f"{missing(obs)} for {blind_s:.0f} s")

    def state(self) -> dict[str, Any]:
        """When it was evaluated last, its wish, and since when the queue has been unknown."""
        return {**self._scaler.state(), "unknown_since_s": self._unknown_since_s}


def build(params: Params, context: PolicyContext) -> QueueThreshold:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return QueueThreshold(params)
