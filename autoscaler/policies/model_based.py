"""Looks ahead with the engine: the cheapest width that will hold the objective until it can change.

Demand is foretold over the time that a resize takes; what each width bears of the present mix of
lengths is found by playing the engine, and corrected by what the deployment shows of itself.
"""

import math
from dataclasses import dataclass
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.foresight import backlog
from autoscaler.foresight.correction import Correction
from autoscaler.foresight.curves import Curve, Curves, Mix
from autoscaler.foresight.forecast import Forecast, Line
from autoscaler.foresight.lead import Hold, LeadTime
from autoscaler.model import Observation, Proposal, Tristate
from autoscaler.parameters import require_number
from autoscaler.ports import PolicyContext
from autoscaler.profile import Profile
from autoscaler.window import elapsed

_PLAYS_A_TICK = 2
_PLAYS_AT_FIRST = 6
"""Points found a tick: about 3 ms each. More while it is not known what the widths bear."""


@dataclass(frozen=True, slots=True)
class Params:
    """How far it looks, how sure it wants to be, and what a breach is worth.

    Args:
        lead_s: from the write of a larger width until it serves, s, > 0, supposed until a growth
            was seen. Larger: grows earlier, costs GPU-hours.
        settle_s: after a resize in which nothing can be decided (the guards' settle_s), s, >= 0.
            Larger: widths are chosen to last longer.
        quantile: of the forecast's own past error that is planned for, >= 0.5, < 1. Larger:
            fewer breaches, more GPU-hours.
        error_memory_s: how long such errors are remembered, s, > 0. Larger: bursts are prepared
            for longer.
        prior_error_ratio: error supposed while there is no history, share of demand, >= 0.
            Larger: more cautious in the first half hour.
        wait_ratio: share of the TTFT objective that waiting may cost before it counts as a
            breach, > 0, <= 1. Larger: grows later, with less in hand.
        length_cv: spread supposed of lengths (standard deviation / mean), >= 0: only means can
            be observed. Larger: more cautious about queues.
        mix_memory_s: how long the mean lengths are averaged over, s, > 0. Larger: steadier,
            follows a drift later.
        correction_gain: how fast the profile is corrected by what is observed, weight a tick,
            >= 0, <= 1; 0: not at all. Larger: sooner right, noisier.
        spare_widths: what a narrower width has to have in hand while little is known of how demand
            steps, units of width, >= 0; fades as the memory for errors fills. Larger: safer in the
            first hour, more GPU-hours.
        hold_s: how long a wish to shrink is held before it is granted (the guards'
            scale_down_window_s), s, >= 0, supposed until a shrink was seen; wishes speak of the
            demand by then. Larger: shrinks sooner in a decline; too large, too soon.
        dwell_s: how long a narrower width has to be safe before it is wished for, s, >= 0.
            Larger: fewer reversals, more GPU-hours.
        down_margin_ratio: what a narrower width has to have to spare, share of what it bears,
            >= 0, < 1. Larger: fewer reversals, more GPU-hours.
        breach_cost_ratio: seconds of the whole deployment that one second of a resize's own
            interruption is worth, >= 0. Larger: fewer and wider resizes where they interrupt.
        catch_up_ratio: the same for a second that a backlog takes to be served off, >= 0.
            Larger: wider after a burst, back in the objective sooner.
        trend_s: how long at most a trend is believed to go on, s, >= 0; for such resizes.
            Larger: jumps further at once.
        extrapolate: whether widths beyond those that the profile knows may be used. True: goes
            where nobody has measured.
    """

    lead_s: float = 120.0
    settle_s: float = 30.0
    quantile: float = 0.95
    error_memory_s: float = 3600.0
    prior_error_ratio: float = 0.05
    wait_ratio: float = 0.4
    length_cv: float = 0.6
    mix_memory_s: float = 60.0
    correction_gain: float = 0.03
    spare_widths: float = 0.8
    hold_s: float = 300.0
    dwell_s: float = 120.0
    down_margin_ratio: float = 0.0
    breach_cost_ratio: float = 100.0
    catch_up_ratio: float = 5.0
    trend_s: float = 1800.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for name in ("lead_s", "error_memory_s", "mix_memory_s"):
            require_number(name, getattr(self, name), 0, above=True)
        for name in ("settle_s", "prior_error_ratio", "length_cv", "spare_widths", "trend_s"):
            require_number(name, getattr(self, name), 0)
        for name in ("hold_s", "dwell_s", "breach_cost_ratio", "catch_up_ratio"):
            require_number(name, getattr(self, name), 0)
        require_number("quantile", self.quantile, 0.5, 0.9999)
        require_number("wait_ratio", self.wait_ratio, 0, 1, above=True)
        require_number("correction_gain", self.correction_gain, 0, 1)
        require_number("down_margin_ratio", self.down_margin_ratio, 0, 0.9999)


@dataclass(frozen=True, slots=True)
class _Bears:
    """What a width bears, corrected: requests a second, and requests that may wait."""

    width: int
    rps: float
    waiting: float
    curve: Curve


class ModelBased:
    """Grows when, at the present width, requests would wait too long before a resize begun later
    could help; to the least width that holds until the next resize after that.

    Steady: stays. Ramp: one resize ahead of the demand. Burst: at once, sized for the backlog as
    well. Quiet: down to the least width that is safe for a resize and the dwell time, with the
    error of the forecast on top. Data missing: never a shrink; growth on a queue that is known.
    No width holds: the one that bears most, and it says so; a wider one that bears no more is not
    gone to. A target that cannot shrink: the expected demand decides, not its upper quantile,
    unless requests wait already.
    """  # noqa: D205  # the rule comes first, and it is two lines long

    def __init__(self, params: Params, context: PolicyContext, profile: Profile) -> None:
        self.params = params
        self._slo = context.slo
        self._tick_s = context.tick_s
        self._curves = Curves(profile, context.slo, params.length_cv, params.extrapolate)
        self._forecast = Forecast(
            context.slo.window_s, params.quantile, params.error_memory_s, params.prior_error_ratio
        )
        self._lead = LeadTime(params.lead_s)
        self._correction = Correction(params.correction_gain)
        self._mix: Mix | None = None
        prompt, output = profile.reference_prompt_tokens, profile.reference_output_tokens
        if prompt is not None and output is not None:
            self._mix = Mix(float(prompt), float(output))
        self._mix_seen = False
        self._mix_since_s: float | None = None
        self._complete = False
        self._waited = 0.0
        self._over_s: float | None = None  # when the last resize was over
        self._wanted_since_s: float | None = None  # growth, without a break
        self._leave = LeadTime(0.0, up=False)
        self._hold = Hold(params.hold_s)
        self._last: tuple[int, float] | None = None
        self._hurt: dict[int, tuple[float, float]] = {}

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now."""
        self._lead.observe(obs)
        self._leave.observe(obs)
        self._hold.observe(obs)
        self._learn(obs)
        width = obs.width.present
        if obs.resize is not None:
            self._over_s, self._wanted_since_s = obs.now_s, None
            wish = self._kept(obs, obs.resize.to_width)
            return Proposal(wish, "resizing", "a resize is in flight")
        line, mix = self._forecast.line, self._mix
        lost_s = self._forecast.age_s(obs.now_s)
        if line is None or mix is None or lost_s > self._lead.value_s + 4 * self._slo.window_s:
            return self._blind(obs, width)
        present = self._bears(width, mix)
        if present is None:
            return self._blind(obs, width)
        waiting = obs.metrics.queue_depth.at_least or 0.0
        proposal = self._grow(obs, line, present, waiting, mix)
        if proposal is None:
            self._wanted_since_s = None
            proposal = self._shrink(obs, line, present, waiting, mix)
        self._hold.wished(proposal.width, width, obs.now_s)
        if proposal.code != "unknown":
            self._last = proposal.width, obs.now_s
        return proposal

    def _kept(self, obs: Observation, width: int) -> int:
        """The last wish that was made on data, if it is a recent one and below ``width``.

        A scrape lost, or the silence of a resize, is no news: dropping the wish would restart the
        guards' window (one scrape in five lost, and nothing ever shrank). They refuse a shrink
        while data is missing, so that nothing is done on the strength of this.
        """
        if self._last is None:
            return width
        wish, at_s = self._last
        recent = 0 <= obs.now_s - at_s <= self._lead.value_s + 2 * self._slo.window_s
        return min(wish, width) if recent else width

    def state(self) -> dict[str, Any]:
        """What was learned: demand, error, mix, correction, lead time."""
        line, mix = self._forecast.line, self._mix
        return {
            "demand_rps": None if line is None else _rounded(line.level_rps),
            "slope_rps_per_s": None if line is None else _rounded(line.slope_rps_per_s),
            "error_rps": _rounded(self._forecast.error_rps),
            "prompt_tokens": None if mix is None else _rounded(mix.prompt_tokens),
            "output_tokens": None if mix is None else _rounded(mix.output_tokens),
            "correction": _rounded(self._correction.factor),
            "lead_s": _rounded(self._lead.value_s),
        }

    def _learn(self, obs: Observation) -> None:
        metrics = obs.metrics
        self._learn_mix(obs)
        if self._mix is not None:
            plays = _PLAYS_A_TICK if self._complete else _PLAYS_AT_FIRST
            complete = self._curves.refine(self._order(obs), self._mix, plays)
            self._complete = self._complete or complete
            width = obs.width.effective
            if width is not None:
                curve = self._curves.curve(width, self._mix)
                self._correction.observe(obs.now_s, width, metrics, curve)
        arrivals = metrics.arrival_rps.value
        if arrivals is not None and arrivals >= 0:
            self._forecast.add(obs.now_s, arrivals, self._lead.value_s)

    def _learn_mix(self, obs: Observation) -> None:
        """Follow the mean lengths, as far as they can be read.

        Tokens of requests that still run count, the requests do not: while an engine fills up, the
        mean output length is read too large, at first many times over.
        """
        metrics = obs.metrics
        prompt, output = metrics.prompt_tokens_mean.value, metrics.output_tokens_mean.value
        came, went = metrics.arrival_rps.value, metrics.completion_rps.value
        if prompt is None or output is None or prompt < 0 or output < 0:
            return
        if self._mix_since_s is None or self._mix_since_s > obs.now_s:
            self._mix_since_s = obs.now_s
        filling = came is not None and went is not None and went < 0.8 * came
        mix = self._mix
        if filling:
            if mix is not None or not elapsed(self._mix_since_s, obs.now_s, 3 * self._slo.window_s):
                return
        share = 1.0 - math.exp(-self._tick_s / self.params.mix_memory_s)
        if not self._mix_seen:
            mix, share, self._mix_seen = Mix(prompt, output), 1.0, True
        if mix is not None:
            self._mix = Mix(
                max(mix.prompt_tokens + share * (prompt - mix.prompt_tokens), 1.0),
                max(mix.output_tokens + share * (output - mix.output_tokens), 1.0),
            )

    def _order(self, obs: Observation) -> list[int]:
        """Permitted widths, the nearest to the present one first."""
        present = obs.width.present
        found = {present, *_permitted(obs)}
        return sorted(found, key=lambda w: (abs(w - present), -w))

    def _bears(self, width: int, mix: Mix) -> _Bears | None:
        curve = self._curves.curve(width, mix)
        if curve is None:
            return None
        factor = self._correction.factor
        # Arrivals more irregular than Poisson's queue sooner; the curves know Poisson's.
        beyond = (min(self._forecast.dispersion, 9.0) - 1.0) / self._slo.ttft_p95_s
        rps = factor * max(curve.bearable_rps - beyond, 0.5 * curve.bearable_rps)
        # Where latency and not the queue is the limit, nothing may wait at all.
        limited = curve.bearable_rps < 0.8 * curve.capacity_rps
        capacity_rps = factor * curve.capacity_rps
        waiting = 0.0 if limited else self.params.wait_ratio * self._slo.ttft_p95_s * capacity_rps
        return _Bears(width, rps, max(waiting, 1.0), curve)

    def _blind(self, obs: Observation, width: int) -> Proposal:
        """Demand or capacity unknown: growth on what hurts already, never a shrink."""
        metrics = obs.metrics
        ttft_s, waiting = metrics.ttft_p95_s.at_least, metrics.queue_depth.at_least
        hurts = (ttft_s is not None and ttft_s > self._slo.ttft_p95_s) or (
            waiting is not None and waiting > 16 * max(width, 1)
        )
        fresh = self._over_s is not None and obs.now_s - self._over_s < 3 * self._slo.window_s
        wish = obs.capabilities.neighbour(width, 1) if hurts and not fresh else width
        if wish > width:
            what = f"p95 TTFT {_show(ttft_s)} s, {_show(waiting)} waiting"
            return Proposal(wish, "hurts_unmodelled", f"{what}; demand or capacity unknown")
        return Proposal(width, "unknown", "demand or capacity at this width is not known (yet)")

    def _grow(
        self, obs: Observation, line: Line, present: _Bears, waiting: float, mix: Mix
    ) -> Proposal | None:
        """The growth that cannot wait any longer; None: it can."""
        lead_s, error_rps = self._lead.value_s, self._forecast.error_rps
        pause_s = obs.capabilities.pause_s or 0.0
        stuck = obs.capabilities.can_shrink is Tristate.NO
        interrupts = pause_s > self._slo.ttft_p95_s
        patient = (stuck or interrupts) and waiting < present.waiting / 2
        if patient:
            error_rps = 0.0
        if waiting > max(present.waiting / 4, self._waited):
            # What waits, and ever more, came: at least what the width bears, whatever the lines say.
            line = Line(max(line.level_rps, present.rps), line.slope_rps_per_s)
        self._waited = waiting
        upper = Line(line.level_rps, line.slope_rps_per_s + error_rps / lead_s)
        breach_s = backlog.breach_s(waiting, upper, present.rps, present.waiting)
        confirm_s = 2 * self._slo.window_s if patient else 0.0
        if breach_s > lead_s + 2 * self._tick_s + confirm_s:
            return None
        spare_rps = present.rps - max(upper.at(0.0), upper.at(lead_s))
        excess = waiting - present.waiting / 2
        if spare_rps > 0 and excess < spare_rps * lead_s:
            return None  # the backlog is gone before a resize could help
        if self._wanted_since_s is None or self._wanted_since_s > obs.now_s:
            self._wanted_since_s = obs.now_s
        seen = (
            f"{line.level_rps:.3g} rps now, {upper.at(lead_s):.3g} expected in {lead_s:.0f} s, "
            f"width {present.width} bears {present.rps:.3g}, {waiting:.0f} waiting"
        )
        if not elapsed(self._wanted_since_s, obs.now_s, confirm_s):
            return Proposal(present.width, "confirming", f"{seen}; for less than {confirm_s:.0f} s")
        then = Line(upper.at(lead_s), line.slope_rps_per_s)
        queue = backlog.after(waiting, upper, present.rps, lead_s) + pause_s * then.level_rps
        likely = backlog.after(waiting, line, present.rps, lead_s) + pause_s * line.at(lead_s)
        cover_s = self._cover_s(present, line, pause_s)
        best, chosen, least_cost = present, None, math.inf
        for width in _permitted(obs):
            bears = self._bears(width, mix)
            if bears is None:
                continue
            if bears.rps > best.rps * 1.02:
                best = bears
            if width <= present.width or bears.rps <= present.rps:
                continue
            drain_s = _drain_s(bears, line.at(lead_s), likely)
            held_s = max(cover_s, self.params.trend_s if stuck else 0.0)
            cost = width * held_s + self.params.catch_up_ratio * present.width * min(
                drain_s, 3600.0
            )
            queue_then = min(queue, bears.waiting / 2)
            lasts_s = backlog.breach_s(queue_then, then, bears.rps, bears.waiting)
            if lasts_s >= cover_s and cost < least_cost:
                chosen, least_cost = bears, cost
        if chosen is not None:
            self._hurt[present.width] = (obs.now_s, line.level_rps)
            reason = f"{seen}; width {chosen.width} bears {chosen.rps:.3g}"
            return Proposal(chosen.width, "demand_ahead", reason)
        if not self._complete:
            return Proposal(present.width, "unknown", f"{seen}; wider widths not looked at yet")
        if best.width == present.width:
            code = "widening_does_not_help"
            if present.width >= obs.capabilities.max_width:
                code = "slo_infeasible"
            return Proposal(present.width, code, f"{seen}; no other width bears more")
        return Proposal(
            best.width,
            "slo_infeasible",
            f"{seen}; no width holds the objective, {best.width} bears most: {best.rps:.3g}",
        )

    def _cover_s(self, present: _Bears, line: Line, pause_s: float) -> float:
        """How long the next width has to last: at least until the resize after it can serve."""
        least_s = self.params.settle_s + self._lead.value_s + 2 * self._tick_s
        if pause_s <= self._slo.ttft_p95_s or line.slope_rps_per_s <= 0:
            return least_s
        # A resize that interrupts is worth avoiding: the square root of 2 x cost / growth of the
        # cost of holding balances both, as with the lot size of an order.
        cost = self._breach_cost(present.width, pause_s)
        widths_per_s = line.slope_rps_per_s / max(present.rps / max(present.width, 1), 1e-9)
        return max(least_s, min(math.sqrt(2.0 * cost / widths_per_s), self.params.trend_s))

    def _breach_cost(self, width: int, pause_s: float) -> float:
        """What a resize costs by interrupting service, in width x seconds."""
        if pause_s <= self._slo.ttft_p95_s:
            return 0.0
        return self.params.breach_cost_ratio * width * (pause_s + self._slo.window_s)

    def _shrink(
        self, obs: Observation, line: Line, present: _Bears, waiting: float, mix: Mix
    ) -> Proposal:
        """The least width that is safe long enough, or the present one and why."""
        metrics, width = obs.metrics, present.width
        level = f"{line.level_rps:.3g} rps, width {width} bears {present.rps:.3g}"
        stay = Proposal(width, "steady", level)
        if metrics.queue_depth.value is None or metrics.arrival_rps.value is None:
            wish = self._kept(obs, width)
            return Proposal(wish, "unknown", f"{level}; queue or arrivals unknown: no new shrink")
        if metrics.ttft_p95_s.value is None and not obs.idle:
            wish = self._kept(obs, width)
            return Proposal(wish, "unknown", f"{level}; p95 TTFT unknown: no new shrink")
        if obs.capabilities.can_shrink is Tristate.NO:
            return stay
        lead_s, margin = self._lead.value_s, self.params.down_margin_ratio
        per_width = present.rps / max(width, 1)
        unknown_rps = (1.0 - self._forecast.experience) * self.params.spare_widths * per_width
        error_rps = max(self._forecast.error_rps, unknown_rps)
        held_s = self._hold.value_s + self._leave.value_s
        level_rps = min(line.at(held_s), line.level_rps)
        upper = Line(level_rps + error_rps, line.slope_rps_per_s)
        recurring_rps = self._forecast.recurring_rps(obs.now_s)
        if recurring_rps > upper.level_rps:
            upper = Line(recurring_rps, 0.0)
        pause_s = obs.capabilities.pause_s or 0.0
        for wish in _permitted(obs):
            if wish >= width:
                break
            bears = self._bears(wish, mix)
            if bears is None or waiting > bears.waiting / 2:
                continue
            safe_s = backlog.breach_s(0.0, upper, bears.rps * (1.0 - margin), bears.waiting / 2)
            if safe_s < lead_s + self.params.dwell_s:
                continue
            hurt = self._hurt.get(wish)
            if hurt is not None and obs.now_s - hurt[0] < 3600 and upper.level_rps > 0.9 * hurt[1]:
                continue
            cost = self._breach_cost(width, pause_s)
            saved = (width - wish) * min(safe_s, 4 * 3600.0)
            if saved < cost:
                continue
            reason = (
                f"{level}; width {wish} bears {bears.rps:.3g}, at most {upper.level_rps:.3g} "
                f"expected: safe for {_long(safe_s)}"
            )
            return Proposal(wish, "demand_fits", reason)
        return stay


def _drain_s(bears: _Bears, arrival_rps: float, queue: float) -> float:
    """How long a width takes until what waits is within bounds, s."""
    excess = queue - bears.waiting
    if excess <= 0:
        return 0.0
    spare_rps = bears.rps - arrival_rps
    return excess / spare_rps if spare_rps > 0 else math.inf


def _permitted(obs: Observation) -> list[int]:
    """Permitted widths, ascending."""
    can = obs.capabilities
    if can.valid_widths is not None:
        return [w for w in can.valid_widths if can.min_width <= w <= can.max_width]
    return list(range(max(can.min_width, 1), min(can.max_width, 64) + 1))


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _long(duration_s: float) -> str:
    return "as far as can be seen" if duration_s > 86_400 else f"{duration_s:.0f} s"


def build(params: Params, context: PolicyContext) -> ModelBased:
    """The policy.

    Raises:
        ConfigError: there is no profile.
    """
    if not isinstance(context.profile, Profile):
        raise ConfigError(
            "policy model_based: profile: must be given (targets: … profile: NAME|FILE; "
            "`autoscaler calibrate` makes one); got nothing"
        )
    return ModelBased(params, context, context.profile)
