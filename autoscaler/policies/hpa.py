"""The Kubernetes HPA's arithmetic on any signal: what it would have done, offline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import Range, from_mapping, require_number
from autoscaler.ports import PolicyContext
from autoscaler.ratio_scaling import (
    Behaviour,
    Direction,
    Metric,
    RatioScaler,
    rates,
    require_select,
)


@dataclass(frozen=True, slots=True)
class Params:
    """Metrics, tolerance and behaviour, with the defaults of autoscaling/v2.

    Args:
        signal: any signal of an observation, e.g. running, queue_depth, ttft_p95_s.
        target: what it is to be held at, > 0, in the signal's unit. Larger: fewer GPU-hours,
            more load a width.
        per_width: true: the target is for one unit of width and the signal a total (the HPA's
            AverageValue); false: the target is for the signal itself (Value), as with latencies.
        also: further metrics, each a mapping of signal, target and per_width; the largest wish
            wins.
        tolerance: share of the target by which a signal may be off without a change, >= 0.
            Larger: fewer changes, further from the target.
        period_s: time between two evaluations, s, >= 0. Larger: slower.
        up_window_s: how long a higher wish has to last, s, >= 0. Larger: ignores longer peaks.
        up_rates: limits of growth: {percent: P, period_s: T} or {width: N, period_s: T}.
        up_select: which of them decides: max (the larger change), min, or disabled (no growth).
        down_window_s: how long a lower wish has to last, s, >= 0. Larger: more GPU-hours, fewer
            reversals.
        down_rates: limits of shrinking, as up_rates.
        down_select: as up_select.
    """

    signal: str = "running"
    target: Annotated[float, Range(2.0, 15.0)] = 12.0
    per_width: bool = True
    also: tuple[Mapping[str, bool | float | str], ...] = ()
    tolerance: Annotated[float, Range(0.0, 0.3)] = 0.1
    period_s: float = 15.0
    up_window_s: Annotated[float, Range(0.0, 60.0)] = 0.0
    up_rates: tuple[Mapping[str, float], ...] = (
        {"percent": 100.0, "period_s": 15.0},
        {"width": 4.0, "period_s": 15.0},
    )
    up_select: str = "max"
    down_window_s: Annotated[float, Range(0.0, 1200.0)] = 300.0
    down_rates: tuple[Mapping[str, float], ...] = ({"percent": 100.0, "period_s": 15.0},)
    down_select: str = "max"

    def __post_init__(self) -> None:
        self.metrics()
        self.behaviour()
        for name in ("tolerance", "period_s", "up_window_s", "down_window_s"):
            require_number(name, getattr(self, name), 0)

    def metrics(self) -> tuple[Metric, ...]:
        """All metrics, the first one first.

        Raises:
            ConfigError: an unknown signal, key or value.
        """
        try:
            further = tuple(from_mapping(Metric, m, f"also[{i}]") for i, m in enumerate(self.also))
            return Metric(self.signal, self.target, self.per_width), *further
        except TypeError as error:
            raise ConfigError(f"also: must be a list of mappings; {error}") from error

    def behaviour(self) -> Behaviour:
        """Windows and rates that have seen nothing yet.

        Raises:
            ConfigError: an unusable rate or select.
        """
        require_select("up_select", self.up_select)
        require_select("down_select", self.down_select)
        return Behaviour(
            Direction(self.up_window_s, rates("up_rates", self.up_rates), self.up_select),
            Direction(self.down_window_s, rates("down_rates", self.down_rates), self.down_select),
        )


class Hpa:
    """width = ceil(width x signal / target), or ceil(total / target a width); then windows, rates.

    Modelled: the ratio at the serving width, the tolerance (both ends hold: the newer of two
    upstream rules), several metrics (the largest wish; no shrink while one is missing),
    stabilisation windows, rates by percent and by number, select policies, the period, the start
    from what is there.
    Not modelled: metrics a Pod and Pods that are not ready (an engine's signals are one number
    here), the cap of autoscaling/v1, container resources, separate tolerances. Minimum and
    maximum are the guards'.

    Overload: grows by the ratio, at most as the rates allow; with a signal that saturates (running
    requests do) several evaluations are needed. Quiet: the highest wish of the down window. A
    metric missing: no shrink. Idle: 0, which the guards make the minimum. Unlike the original,
    also no shrink while p95 TTFT or queue are unknown, whichever signal is used; and a signal
    known only to be at least so high (top bucket) may cause growth. And percentages of growth are
    of what serves, not of what was asked for.
    """

    def __init__(self, params: Params) -> None:
        self._scaler = RatioScaler(
            params.metrics(), params.tolerance, params.behaviour(), params.period_s
        )

    def propose(self, obs: Observation) -> Proposal:
        """The width the HPA would set now."""
        return self._scaler.propose(obs)

    def state(self) -> dict[str, Any]:
        """When it was evaluated last, and what came of it."""
        return self._scaler.state()


def build(params: Params, context: PolicyContext) -> Hpa:  # noqa: ARG001  # the plug-in's signature
    """The policy."""
    return Hpa(params)
