"""Everything that was learned of one deployment: demand, mix, capacities, times."""

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.foresight.correction import Correction
from autoscaler.foresight.curves import SHARES, Curves, Mix
from autoscaler.foresight.forecast import Forecast
from autoscaler.foresight.lead import Hold, LeadTime
from autoscaler.foresight.mix import MixTracker
from autoscaler.foresight.sizing import Bears
from autoscaler.model import Observation
from autoscaler.ports import PolicyContext
from autoscaler.profile import Profile

_PLAYS_AT_FIRST = 3
_PLAY_EVERY_TICKS = 3
"""Points of curves, 2 to 5 ms each: some a tick at first, then one now and then for a drift."""
_MOST_DISPERSION = 9.0
_LATENCY_LIMITED = 0.8


@dataclass(frozen=True, slots=True)
class Priors:
    """What is supposed before it was learned; see the policy's parameters of the same names."""

    lead_s: float
    quantile: float
    error_memory_s: float
    prior_error_ratio: float
    wait_ratio: float
    length_cv: float
    mix_memory_s: float
    correction_gain: float
    extrapolate: bool


class Outlook:
    """Learns from each observation, and says what each width bears.

    Args:
        priors: what is supposed beforehand.
        profile: the physics.
        context: objective, distance of observations, patience of the guards.

    Attributes:
        forecast, correction, lead, leave, hold: the parts that learn; ``leave`` is the time that a
            shrink takes.
        complete: whether the curves of all permitted widths were found once.
    """

    def __init__(self, priors: Priors, profile: Profile, context: PolicyContext) -> None:
        self._slo = slo = context.slo
        self._wait_ratio = priors.wait_ratio
        self._curves = Curves(profile, slo, priors.length_cv, priors.extrapolate)
        self.forecast = Forecast(
            slo.window_s, priors.quantile, priors.error_memory_s, priors.prior_error_ratio
        )
        self.correction = Correction(priors.correction_gain)
        self.lead = LeadTime(priors.lead_s)
        self.leave = LeadTime(0.0, up=False)
        self.hold = Hold(context.scale_down_window_s)
        prompt, output = profile.reference_prompt_tokens, profile.reference_output_tokens
        known = prompt is not None and output is not None
        reference = Mix(float(prompt or 1), float(output or 1)) if known else None
        self._mix = MixTracker(priors.mix_memory_s, context.tick_s, reference)
        self.complete = False

    @property
    def mix(self) -> Mix | None:
        """The present mix of lengths; None: unknown."""
        return self._mix.mix

    def observe(self, obs: Observation) -> None:
        """Learn from one tick."""
        self.lead.observe(obs)
        self.leave.observe(obs)
        metrics = obs.metrics
        self._mix.observe(obs.now_s, metrics)
        mix, width = self.mix, obs.width.effective
        if mix is not None:
            if not self.complete:
                self.complete = self._curves.refine(_nearest(obs), mix, _PLAYS_AT_FIRST)
            elif obs.tick % _PLAY_EVERY_TICKS == 0:
                self._curves.refine(_nearest(obs), mix, 1)
            if width is not None:
                curve = self._curves.curve(width, mix)
                self.correction.observe(obs.now_s, width, metrics, curve)
        arrivals = metrics.arrival_rps.value
        if arrivals is not None and arrivals >= 0:
            age_s = metrics.age_s.value or 0.0
            self.forecast.add(obs.now_s, arrivals, self.lead.value_s, age_s)

    def bears(self, width: int) -> Bears | None:
        """What a width bears now; None: not known (yet)."""
        mix = self.mix
        curve = None if mix is None else self._curves.curve(width, mix)
        if curve is None:
            return None
        factor, slo_s = self.correction.factor, self._slo.ttft_p95_s
        # Arrivals more irregular than Poisson's queue sooner; the curves know Poisson's.
        beyond_rps = (min(self.forecast.dispersion, _MOST_DISPERSION) - 1.0) / slo_s
        rps = factor * max(curve.bearable_rps - beyond_rps, 0.5 * curve.bearable_rps)
        # Where latency and not the queue is the limit, nothing may wait at all.
        limited = curve.bearable_rps < _LATENCY_LIMITED * curve.capacity_rps
        most = 0.0 if limited else slo_s * factor * curve.capacity_rps
        demand_rps = self.forecast.line.level_rps if self.forecast.line else 0.0
        share = min(demand_rps / factor, SHARES[-1] * curve.capacity_rps)
        unqueued_s = curve.ttft_at(share) / factor
        return Bears(width, rps, max(self._wait_ratio * most, 1.0), max(most, 1.0), unqueued_s)

    def all_bear(self, widths: Iterable[int]) -> list[Bears]:
        """What each of these bears, as far as it is known."""
        found = (self.bears(width) for width in widths)
        return [bears for bears in found if bears is not None]


def permitted(obs: Observation) -> list[int]:
    """Permitted widths, ascending."""
    can = obs.capabilities
    if can.valid_widths is not None:
        return [w for w in can.valid_widths if can.min_width <= w <= can.max_width]
    return list(range(max(can.min_width, 1), min(can.max_width, 64) + 1))


def _nearest(obs: Observation) -> list[int]:
    """Permitted widths and the present one, the nearest first."""
    present = obs.width.present
    return sorted({present, *permitted(obs)}, key=lambda w: (abs(w - present), -w))
