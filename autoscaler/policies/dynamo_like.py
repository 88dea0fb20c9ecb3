"""The published decision rules of NVIDIA Dynamo's SLA planner: a fast path over a slow floor."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from autoscaler.averages import RollingMean
from autoscaler.errors import ConfigError
from autoscaler.evidence import grounded
from autoscaler.model import Observation, Proposal, SignalStatus
from autoscaler.parameters import Range, require_number, require_whole
from autoscaler.ports import PolicyContext
from autoscaler.window import RollingMin, elapsed

PREDICTORS = ("constant", "linear")

_FLOOR_WINDOW_S = 600.0
"""How long the quickest first token of late is remembered: what prefill alone takes."""
_LARGEST = 1e9
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Params:
    """Both paths, with the planner's documented defaults.

    Args:
        load_interval_s: time between two decisions of the fast path, s, >= 0. Larger: slower.
        throughput_interval_s: time between two of the slow path, s, > 0, and the stretch of
            arrivals that each looks at. Larger: calmer, later.
        down_sensitivity_ratio: share of the objective under which the fast path shrinks, >= 0,
            <= 1; 0: never. Larger: shrinks sooner, reverses more often.
        min_observations: decisions of the fast path before it acts, >= 1. Larger: later.
        predictor: next interval's arrivals: constant (as the last) or linear (the line through
            the last ones, never below 0).
        history: intervals that the line goes through, >= 2. Larger: smoother, later.
        rps_per_width: requests a second that one unit of width bears, > 0; None: from the
            profile, and without one there is no slow path. Larger: a lower floor.
    """

    load_interval_s: Annotated[float, Range(5.0, 60.0, log=True)] = 5.0
    throughput_interval_s: Annotated[float, Range(30.0, 600.0, log=True)] = 180.0
    down_sensitivity_ratio: Annotated[float, Range(0.0, 1.0)] = 0.8
    min_observations: Annotated[int, Range(1, 20)] = 5
    predictor: str = "constant"
    history: Annotated[int, Range(2, 10)] = 5
    rps_per_width: float | None = None

    def __post_init__(self) -> None:
        require_number("load_interval_s", self.load_interval_s, 0)
        require_number("throughput_interval_s", self.throughput_interval_s, 0, above=True)
        require_number("down_sensitivity_ratio", self.down_sensitivity_ratio, 0, 1)
        require_whole("min_observations", self.min_observations, 1)
        if self.predictor not in PREDICTORS:
            rule = f"must be one of {', '.join(PREDICTORS)}"
            raise ConfigError(f"predictor: {rule}; got {self.predictor!r}")
        require_whole("history", self.history, 2)
        require_number("rps_per_width", self.rps_per_width, 0, above=True)


class DynamoLike:
    """Fast: +1 if the estimated TTFT or the ITL > objective; -1 if both < objective x sensitivity
    x (width - 1) / width. Slow: never below ceil(predicted arrivals / capacity of one unit).

    The estimate is the wait that the queue will cost the newest request plus what prefill alone
    takes: the quickest p95 with an empty queue of late. The factor (width - 1) / width stands for
    the load on one engine less. +1 and -1 are places on the lattice of permitted widths.

    Modelled (aggregated mode, both paths on): both intervals, the sensitivity, one step a decision,
    no decision while a change is in progress, the slow path as a floor, constant prediction and
    a linear trend.
    Not modelled: forward-pass metrics of each engine and the regressions on them ("all engines"
    are one here, and the estimate is this module's own), ARIMA, Kalman and Prophet, prefill and
    decode as roles, correction factors, KV hit rates, speculation, budgets (guards have one), the
    modes on queue and KV thresholds. Capacity is computed from the profile, not measured: the
    decode batch that meets the ITL objective (all slots without one), with each prompt's prefill
    holding up all ranks, in proportion to the width; the TTFT objective does not lower it.

    Overload: one step each fast interval; to the floor at once where arrivals say so. Quiet: one
    step down each interval, to the floor. Signals missing: no step on them, and the last floor
    stays. Unlike the original: no shrink while p95 TTFT or queue are unknown, and the width at
    the start is the floor until the slow path has decided once.
    """  # noqa: D205  # the formula comes first, and it is two lines long

    def __init__(self, params: Params, context: PolicyContext) -> None:
        self.params = params
        self._profile = context.profile
        self._slow = params.rps_per_width is not None or context.profile is not None
        self._prefill = RollingMin(_FLOOR_WINDOW_S)
        self._arrivals = RollingMean(params.throughput_interval_s)
        self._rates: deque[float] = deque(maxlen=params.history)
        self._fast_at_s: float | None = None
        self._slow_at_s: float | None = None
        self._seen = 0
        self._floor: int | None = None
        self._floor_reason = "the width at the start"
        self._width: int | None = None  # that the last decision was made at
        self._said: Proposal | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now."""
        now_s, width = obs.now_s, obs.width.present
        self._look(obs)
        if obs.resize is not None:
            return Proposal(obs.resize.to_width, "resizing", "a resize is in flight")
        floor = width if self._floor is None else self._floor
        if width < floor:
            return Proposal(floor, "floor", self._floor_reason)
        if (
            self._said is None
            or width != self._width
            or _due(self._fast_at_s, now_s, self.params.load_interval_s)
        ):
            self._fast_at_s, self._width = now_s, width
            self._seen += 1
            if self._seen < self.params.min_observations:
                return Proposal(width, "warming_up", f"only {self._seen} observations")
            self._said = self._fast(obs, width, floor if self._slow else 0)
        return grounded(self._said, obs)

    def state(self) -> dict[str, Any]:
        """The floor (None: none yet), the rates of the last intervals, observations so far."""
        return {"floor": self._floor, "rates_rps": list(self._rates), "observations": self._seen}

    def estimate_s(self, obs: Observation) -> float | None:
        """TTFT of a request that arrives now, s; None: unknown."""
        metrics = obs.metrics
        wait_s = metrics.queue_wait_s.at_least
        if metrics.queue_depth.value == 0:
            wait_s = 0.0
        if wait_s is None:
            return None
        return wait_s + (self._prefill.value(obs.now_s) or 0.0)

    def predicted_rps(self) -> float:
        """Arrivals of the next interval, >= 0, from at least one interval."""
        rates = self._rates
        if self.params.predictor == "constant" or len(rates) < 2:
            return rates[-1]
        slope, start = np.polyfit(np.arange(len(rates)), np.array(rates), 1)
        # A falling line crosses zero; fewer requests than none do not arrive.
        return max(float(start + slope * len(rates)), 0.0)

    def _fast(self, obs: Observation, width: int, floor: int) -> Proposal:
        ttft_s, itl_s = self.estimate_s(obs), obs.metrics.itl_p95_s.at_least
        objective_s, itl_objective_s = obs.slo.ttft_p95_s, obs.slo.itl_p95_s
        seen = f"a request now would wait {_show(ttft_s)} s"
        slow_ttft = ttft_s is not None and ttft_s > objective_s
        slow_itl = itl_objective_s is not None and itl_s is not None and itl_s > itl_objective_s
        if slow_ttft or slow_itl:
            wish = obs.capabilities.neighbour(width, 1)
            code = "at_max_width" if wish == width else "load"
            return Proposal(wish, code, f"{seen}, ITL {_show(itl_s)} s")
        if ttft_s is None or (itl_objective_s is not None and self._itl_unknown(obs)):
            return Proposal(width, "unknown", f"{seen}, ITL {_show(itl_s)} s")
        wish = obs.capabilities.neighbour(width, -1)
        if wish == width:
            return Proposal(width, "at_min_width", seen)
        if wish < floor:
            return Proposal(width, "floor", f"{seen}; {self._floor_reason}")
        share = self.params.down_sensitivity_ratio * wish / width
        if ttft_s >= objective_s * share or (
            itl_objective_s is not None and (itl_s or 0.0) >= itl_objective_s * share
        ):
            return Proposal(width, "within_band", f"{seen}: no room for width {wish}")
        return Proposal(wish, "spare", seen)

    @staticmethod
    def _itl_unknown(obs: Observation) -> bool:
        signal = obs.metrics.itl_p95_s
        return signal.value is None and signal.status is not SignalStatus.NO_OBSERVATIONS

    def _look(self, obs: Observation) -> None:
        """Take the signals in; decide the floor when its time has come."""
        now_s, metrics = obs.now_s, obs.metrics
        ttft_s, arrivals_rps = metrics.ttft_p95_s.value, metrics.arrival_rps.value
        if ttft_s is not None and metrics.queue_depth.value == 0:
            self._prefill.add(now_s, ttft_s)
        if arrivals_rps is not None:
            self._arrivals.add(now_s, arrivals_rps)
        if not self._slow:
            return
        if self._floor is None:
            self._floor, self._slow_at_s = obs.width.present, now_s
        if not _due(self._slow_at_s, now_s, self.params.throughput_interval_s):
            return
        self._slow_at_s = now_s
        rate_rps, unit_rps = self._arrivals.value(now_s), self._unit_rps(obs)
        if rate_rps is None or unit_rps is None:
            return
        self._rates.append(rate_rps)
        predicted_rps = self.predicted_rps()
        self._floor = math.ceil(min(predicted_rps / unit_rps, _LARGEST) - _ROUNDING)
        self._floor_reason = f"{predicted_rps:.3g} rps predicted, {unit_rps:.3g} rps a width"

    def _unit_rps(self, obs: Observation) -> float | None:
        """What one unit of width bears of the present mix, requests/s; None: unknown."""
        profile = self._profile
        if self.params.rps_per_width is not None or profile is None:
            return self.params.rps_per_width
        prompt = obs.metrics.prompt_tokens_mean.value or profile.reference_prompt_tokens
        output = obs.metrics.output_tokens_mean.value or profile.reference_output_tokens
        if prompt is None or output is None:
            return None
        known = profile.known_widths
        physics = profile.physics(min(max(obs.width.present, known[0]), known[-1]))
        batch = physics.slots_per_rank
        itl_objective_s = obs.slo.itl_p95_s
        if itl_objective_s is not None:
            fitting = [b for b in range(1, batch + 1) if physics.decode_s[b] <= itl_objective_s]
            batch = fitting[-1] if fitting else 1
        step_s = float(physics.decode_s[batch])
        prompt_s = (physics.prefill_token_s + physics.prefill_rank_token_s) * prompt
        prefill_s = physics.prefill_flat_s + prompt_s
        # A step that prefills holds up the decodes of all ranks, by less than its own length.
        overlap = 1.0 - physics.mixed_share
        stall_s = prefill_s - overlap * min(step_s, prefill_s)
        request_s = stall_s + output * step_s / (batch * physics.ranks)
        return 1.0 / (request_s * max(obs.width.present, 1)) if request_s > 0 else None


def _due(last_s: float | None, now_s: float, interval_s: float) -> bool:
    """Whether an interval is over; a clock that went back ends it."""
    return last_s is None or now_s < last_s or elapsed(last_s, now_s, interval_s)


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def build(params: Params, context: PolicyContext) -> DynamoLike:
    """The policy."""
    return DynamoLike(params, context)
