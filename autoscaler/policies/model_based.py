"""Looks ahead with the engine: the cheapest width that will hold the objective until it can change.

Demand is foretold over the time that a resize takes; what each width bears of the present mix of
lengths is found by playing the engine, and corrected by what the deployment shows of itself.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any

from autoscaler.errors import ConfigError
from autoscaler.foresight import backlog
from autoscaler.foresight.caution import Caution
from autoscaler.foresight.outlook import Outlook, Priors, permitted
from autoscaler.foresight.sizing import Bears, Growth, cheapest, lot_s, settled
from autoscaler.foresight.trend import Line
from autoscaler.model import Observation, Proposal, Tristate
from autoscaler.parameters import Range, require_number
from autoscaler.ports import PolicyContext
from autoscaler.profile import Profile
from autoscaler.window import elapsed

_BEARS_MORE = 1.02
_NOISE_SIGMAS = 3.5
_DOUBT_SIGMAS = 2.0
_GROWS_AFTER_WINDOWS = 4
_COSTLY_AFTER_WINDOWS = 20
"""Before as long, a rise alone, with nothing waiting, may be the noise of the first minutes."""
_WORTH_S = 600.0
"""A shrink that is expected to last less than this is not begun."""
_SHORTEST_HISTORY_S = 240.0
"""Before as long, the correction and the noise are too little known for a shrink."""
_LONGEST_SAVING_S = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Params:
    """How far it looks, how sure it wants to be, and what a breach is worth.

    Args:
        lead_s: from the write of a larger width until it serves, s, > 0, supposed until a growth
            was seen. Larger: grows earlier, costs GPU-hours.
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
        dwell_s: how much longer a narrower width has to be safe than until growth could help
            again, s, >= 0. Larger: fewer reversals, more GPU-hours.
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
    quantile: Annotated[float, Range(0.5, 0.999)] = 0.85
    error_memory_s: Annotated[float, Range(600.0, 14400.0, log=True)] = 3600.0
    prior_error_ratio: Annotated[float, Range(0.0, 0.3)] = 0.05
    wait_ratio: Annotated[float, Range(0.1, 1.0)] = 0.4
    length_cv: Annotated[float, Range(0.0, 1.5)] = 0.6
    mix_memory_s: Annotated[float, Range(15.0, 600.0, log=True)] = 60.0
    correction_gain: Annotated[float, Range(0.0, 0.2)] = 0.03
    spare_widths: Annotated[float, Range(0.0, 2.0)] = 0.8
    dwell_s: Annotated[float, Range(0.0, 600.0)] = 0.0
    down_margin_ratio: Annotated[float, Range(0.0, 0.3)] = 0.0
    breach_cost_ratio: Annotated[float, Range(1.0, 1000.0, log=True)] = 100.0
    catch_up_ratio: Annotated[float, Range(0.0, 50.0)] = 10.0
    trend_s: float = 1800.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for name in ("lead_s", "error_memory_s", "mix_memory_s"):
            require_number(name, getattr(self, name), 0, above=True)
        for name in ("prior_error_ratio", "length_cv", "spare_widths", "trend_s"):
            require_number(name, getattr(self, name), 0)
        for name in ("dwell_s", "breach_cost_ratio", "catch_up_ratio"):
            require_number(name, getattr(self, name), 0)
        require_number("quantile", self.quantile, 0.5, 0.9999)
        require_number("wait_ratio", self.wait_ratio, 0, 1, above=True)
        require_number("correction_gain", self.correction_gain, 0, 1)
        require_number("down_margin_ratio", self.down_margin_ratio, 0, 0.9999)


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
        priors = Priors(**{f.name: getattr(params, f.name) for f in fields(Priors)})
        self._settle_s = context.settle_s
        self._outlook = Outlook(priors, profile, context)
        self._over_s: float | None = None  # when the last resize was over
        self._wanted_since_s: float | None = None  # growth, without a break
        self._waited = 0.0  # requests that waited in the tick before
        self._last: tuple[int, float] | None = None  # last wish made on data, and when
        self._caution = Caution(context.max_reversals_per_hour)

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now."""
        outlook, width = self._outlook, obs.width.present
        outlook.observe(obs)
        if obs.resize is not None:
            self._caution.note(obs.resize)
            self._over_s, self._wanted_since_s = obs.now_s, None
            wish = obs.resize.to_width
            if wish < obs.resize.from_width:
                wish = self._kept(obs, wish)  # it may have gone only part of the way
            return Proposal(wish, "resizing", "a resize is in flight")
        line, present = outlook.forecast.line, outlook.bears(width)
        longest_s = outlook.lead.value_s + 4 * self._slo.window_s
        if line is None or present is None or outlook.forecast.age_s(obs.now_s) > longest_s:
            return self._blind(obs, width)
        waiting = obs.metrics.queue_depth.at_least or 0.0
        age_s = obs.metrics.age_s.value or 0.0
        if waiting and age_s:
            before = Line(line.at(-age_s), line.slope_rps_per_s)
            waiting = backlog.after(waiting, before, present.rps, age_s)
        proposal = self._grow(obs, line, present, waiting)
        if proposal is None:
            self._wanted_since_s = None
            proposal = self._shrink(obs, line, present, waiting)
        outlook.hold.wished(proposal.width, width, obs.now_s)
        if proposal.code != "unknown":
            self._last = proposal.width, obs.now_s
        return proposal

    def capacity_rps(self, width: int) -> float | None:
        """What a width bears of the present mix, requests a second; None: not known (yet)."""
        bears = self._outlook.bears(width)
        return None if bears is None else bears.rps

    def state(self) -> dict[str, Any]:
        """What was learned: demand, error, mix, correction, lead time; None: not yet."""
        outlook = self._outlook
        forecast, line, mix = outlook.forecast, outlook.forecast.line, outlook.mix
        return {
            "demand_rps": None if line is None else _rounded(line.level_rps),
            "slope_rps_per_s": None if line is None else _rounded(line.slope_rps_per_s),
            "error_rps": _rounded(forecast.error_rps),
            "prompt_tokens": None if mix is None else _rounded(mix.prompt_tokens),
            "output_tokens": None if mix is None else _rounded(mix.output_tokens),
            "correction": _rounded(outlook.correction.factor),
            "lead_s": _rounded(outlook.lead.value_s),
        }

    def _kept(self, obs: Observation, width: int) -> int:
        """The last wish that was made on data, if it is a recent one and below ``width``.

        A scrape lost, or the silence of a resize, is no news: dropping the wish would restart the
        guards' window (one scrape in five lost, and nothing ever shrank). They refuse a shrink
        while data is missing, so that nothing is done on the strength of this.
        """
        if self._last is None:
            return width
        wish, at_s = self._last
        recent_s = self._outlook.lead.value_s + 2 * self._slo.window_s
        return min(wish, width) if 0 <= obs.now_s - at_s <= recent_s else width

    def _blind(self, obs: Observation, width: int) -> Proposal:
        """Demand or capacity unknown: growth on what hurts already, never a shrink."""
        ttft_s, waiting = obs.metrics.ttft_p95_s.at_least, obs.metrics.queue_depth.at_least
        hurts = (ttft_s is not None and ttft_s > self._slo.ttft_p95_s) or (
            waiting is not None and waiting > 16 * max(width, 1)
        )
        # What waits after a resize may be what the resize itself has made wait.
        fresh = self._over_s is not None and obs.now_s - self._over_s < 3 * self._slo.window_s
        wish = obs.capabilities.neighbour(width, 1) if hurts and not fresh else width
        if wish > width:
            what = f"p95 TTFT {_show(ttft_s)} s, {_show(waiting)} waiting"
            return Proposal(wish, "hurts_unmodelled", f"{what}; demand or capacity unknown")
        return Proposal(width, "unknown", "demand or capacity at this width is not known (yet)")

    def _grow(
        self, obs: Observation, line: Line, present: Bears, waiting: float
    ) -> Proposal | None:
        """The growth that cannot wait any longer; None: it can."""
        outlook, lead_s = self._outlook, self._outlook.lead.value_s
        pause_s, width = obs.capabilities.pause_s or 0.0, present.width
        stuck = obs.capabilities.can_shrink is Tristate.NO
        # What interrupts, or cannot be taken back, is not done for what may not come.
        costly = stuck or pause_s > self._slo.ttft_p95_s
        patient = costly and waiting < present.waiting / 2
        error_rps = 0.0 if patient else outlook.forecast.error_rps
        confirm_s = 2 * self._slo.window_s if patient else 0.0
        line = self._no_less(line, present, waiting)
        upper = Line(line.level_rps, line.slope_rps_per_s + error_rps / lead_s)
        breach_s = backlog.breach_s(waiting, upper, present.rps, present.waiting)
        horizon_s = lead_s + 2 * self._tick_s + confirm_s
        if breach_s > horizon_s:
            return None
        spare_rps = present.rps - max(upper.level_rps, upper.at(horizon_s))
        if spare_rps > 0 and waiting - present.waiting / 2 < spare_rps * lead_s:
            return None  # the backlog is gone before a resize could help
        if self._wanted_since_s is None or self._wanted_since_s > obs.now_s:
            self._wanted_since_s = obs.now_s
        seen = (
            f"{line.level_rps:.3g} rps now, {upper.at(lead_s):.3g} expected in {lead_s:.0f} s, "
            f"width {width} bears {present.rps:.3g}, {waiting:.0f} waiting: "
            f"p95 TTFT {_show(obs.metrics.ttft_p95_s.at_least)} s now, "
            f"{present.ttft_p95_s(backlog.after(waiting, upper, present.rps, lead_s)):.2g} s then"
        )
        windows = _COSTLY_AFTER_WINDOWS if costly else _GROWS_AFTER_WINDOWS
        young = outlook.forecast.history_s < windows * self._slo.window_s
        if young and waiting < present.waiting / 2 and line.level_rps < present.rps:
            return Proposal(width, "confirming", f"{seen}; too short a history to foretell from")
        if outlook.forecast.surprised:
            return Proposal(width, "confirming", f"{seen}; demand has just jumped, how far?")
        if not elapsed(self._wanted_since_s, obs.now_s, confirm_s):
            return Proposal(width, "confirming", f"{seen}; for less than {confirm_s:.0f} s")
        wider = outlook.all_bear(w for w in permitted(obs) if w > width)
        cover_s = self._cover_s(present, line, pause_s)
        # What is grown to is paid for until a shrink that was wished for at once is over.
        back_s = self._settle_s + outlook.hold.window_s + outlook.leave.value_s + lead_s
        held_s = max(cover_s, self.params.trend_s if stuck else back_s)
        catch_up = self.params.catch_up_ratio * width
        growth = Growth(waiting, line, upper, lead_s, pause_s, cover_s, held_s, catch_up)
        chosen = cheapest(wider, present, growth)
        if chosen is None:
            return self._infeasible(present, wider, seen)
        if line.at(lead_s) < present.rps:  # left without a rise to blame: it bears less than said
            self._caution.left(width, line.level_rps / present.rps, obs.now_s)
        left = settled(chosen, present, growth)
        reason = (
            f"{seen}; width {chosen.width} bears {chosen.rps:.3g}: "
            f"p95 TTFT {chosen.ttft_p95_s(left):.2g} s {cover_s:.0f} s later"
        )
        return Proposal(chosen.width, "demand_ahead", reason)

    def _no_less(self, line: Line, present: Bears, waiting: float) -> Line:
        """Demand, at least as much as is served where ever more requests wait."""
        growing = waiting > max(present.waiting / 2, self._waited)
        self._waited = waiting
        if growing and line.level_rps < present.rps:
            return Line(present.rps, line.slope_rps_per_s)
        return line

    def _infeasible(self, present: Bears, wider: list[Bears], seen: str) -> Proposal:
        """No width lasts: the one that bears most, or none if that is the present one."""
        if not self._outlook.complete:
            return Proposal(present.width, "unknown", f"{seen}; wider widths not looked at yet")
        if not wider:
            return Proposal(present.width, "slo_infeasible", f"{seen}; no wider width is permitted")
        best = max(wider, key=lambda bears: bears.rps)
        most = f"of the wider ones {best.width} bears most: {best.rps:.3g}"
        if best.rps <= _BEARS_MORE * present.rps:
            return Proposal(present.width, "widening_does_not_help", f"{seen}; {most}")
        return Proposal(best.width, "slo_infeasible", f"{seen}; no width holds it, {most}")

    def _cover_s(self, present: Bears, line: Line, pause_s: float) -> float:
        """How long the next width has to last: at least until the resize after it can serve."""
        least_s = self._settle_s + self._outlook.lead.value_s + 2 * self._tick_s
        cost = self._interruption(present.width, pause_s)
        if cost == 0 or line.slope_rps_per_s <= 0 or present.rps <= 0:
            return least_s
        widths_per_s = line.slope_rps_per_s * max(present.width, 1) / present.rps
        return max(least_s, min(lot_s(cost, widths_per_s), self.params.trend_s))

    def _interruption(self, width: int, pause_s: float) -> float:
        """What a resize costs by interrupting service, in width x seconds; 0: it does not."""
        if pause_s <= self._slo.ttft_p95_s:
            return 0.0
        return self.params.breach_cost_ratio * width * (pause_s + self._slo.window_s)

    def _shrink(self, obs: Observation, line: Line, present: Bears, waiting: float) -> Proposal:
        """The least width that is safe long enough, or the present one and why."""
        metrics, width = obs.metrics, present.width
        level = f"{line.level_rps:.3g} rps, width {width} bears {present.rps:.3g}"
        missing = ""
        if metrics.queue_depth.value is None or metrics.arrival_rps.value is None:
            missing = "queue or arrivals"
        elif metrics.ttft_p95_s.value is None and not obs.idle:
            missing = "p95 TTFT"
        if missing:
            wish = self._kept(obs, width)
            return Proposal(wish, "unknown", f"{level}; {missing} unknown: no new shrink")
        if obs.capabilities.can_shrink is Tristate.NO:
            return Proposal(width, "steady", f"{level}; it could not shrink")
        if self._outlook.forecast.history_s < _SHORTEST_HISTORY_S:
            return Proposal(width, "unknown", f"{level}; too short a history to shrink on")
        upper = self._planned(obs, line, present)
        # Until a growth could help again, were it asked for as soon as the guards allow it.
        least_s = self._settle_s + self._outlook.lead.value_s + 2 * self._tick_s
        least_s += self.params.dwell_s
        cost = self._interruption(width, obs.capabilities.pause_s or 0.0)
        for bears in self._outlook.all_bear(w for w in permitted(obs) if w < width):
            spare_rps = bears.rps * (1.0 - self.params.down_margin_ratio)
            safe_s = backlog.breach_s(0.0, upper, spare_rps, bears.waiting / 2)
            if (
                safe_s < least_s
                or waiting > bears.waiting / 2
                or self._caution.hurts(bears.width, upper.level_rps / bears.rps, obs.now_s)
            ):
                continue
            if self._caution.last_reversal(
                obs.now_s
            ) and bears.rps < self._outlook.forecast.peak_rps(obs.now_s):
                continue  # once down, there would be no way up within the hour
            likely = Line(upper.level_rps, line.slope_rps_per_s)
            if backlog.breach_s(0.0, likely, bears.rps, bears.waiting / 2) < _WORTH_S:
                continue  # on a rise it would have to be taken back: nothing saved, two reversals
            if (width - bears.width) * min(safe_s, _LONGEST_SAVING_S) < cost:
                continue
            reason = (
                f"{level}; width {bears.width} bears {bears.rps:.3g}, at most "
                f"{upper.level_rps:.3g} expected: p95 TTFT {_show(metrics.ttft_p95_s.value)} s "
                f"now, {bears.ttft_p95_s(waiting):.2g} s there; safe for {_long(safe_s)}"
            )
            return Proposal(bears.width, "demand_fits", reason)
        reason = (
            f"{level}, up to {upper.level_rps:.3g} expected in {least_s:.0f} s: p95 TTFT "
            f"{_show(metrics.ttft_p95_s.value)} s now, {present.ttft_p95_s(waiting):.2g} s expected"
        )
        return Proposal(width, "steady", reason)

    def _planned(self, obs: Observation, line: Line, present: Bears) -> Line:
        """Demand that a narrower width has to bear, from when it would serve on."""
        outlook, forecast = self._outlook, self._outlook.forecast
        per_width_rps = present.rps / max(present.width, 1)
        unknown_rps = (1.0 - forecast.experience) * self.params.spare_widths * per_width_rps
        noise_rps = _NOISE_SIGMAS * forecast.noise_rps
        held_s = outlook.hold.remaining_s(obs.now_s) + outlook.leave.value_s
        # What seems to fall may be noise: it counts as fallen by what is beyond that.
        doubt_rps = max(_DOUBT_SIGMAS * forecast.noise_at(held_s) - noise_rps, 0.0)
        level_rps = min(line.at(held_s) + doubt_rps, line.level_rps)
        # What noise may add some day must not ask for growth: a constant load whose width was left
        # would be gone back to.
        noise_rps = max(noise_rps, unknown_rps)
        recurring_rps = forecast.recurring_rps(obs.now_s)
        if recurring_rps > level_rps + noise_rps:
            return Line(recurring_rps, 0.0)
        more_rps = max(forecast.error_rps - noise_rps, 0.0)  # which has noise in it, too
        rise = max(line.slope_rps_per_s, 0.0) + more_rps / outlook.lead.value_s
        return Line(level_rps + noise_rps, rise)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _show(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"


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
