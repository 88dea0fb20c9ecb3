"""Demand to come: local lines of several memories, weighed by how well each has foretold.

A line remembers exponentially: a short one follows a turn, a long one sees through Poisson noise.
Which of them is right depends on the load, so each one's own past error over the horizon that
matters decides, and what the weighed line got wrong gives the upper quantile. No I/O.
"""

import math
from collections import deque

from autoscaler.foresight.trend import Line, Trend
from autoscaler.window import RollingMax, RollingPercentile

_MEMORIES_S = (45.0, 90.0, 180.0, 360.0, 720.0)
_JUMP_SIGMAS = 5.0
_SLOPE_PRIOR_PER_S = 1.0 / 500.0
"""A demand that grows by its own size in 500 s is as steep as is believed without evidence."""
_SMOOTH_SAMPLES = 3
_ERROR_EVERY_S = 30.0
_LEAST_RPS = 0.1
_FEW_ERRORS = 120
_RECURRING = 2
_STRANGEST = 20.0
_ABOVE_PEAK = 0.12
"""Error believed at a demand that is the highest seen: share of it."""
_MOST_GROWTH = 0.5
"""Of the demand itself, within one horizon: the steepest slope that is believed."""
_DRIFT_S = 30.0
_MINUTE_S = 60.0
_REFUTED = 1.0
"""Squared deviations, in units of noise, from which on a line is held to be refuted."""


class Forecast:
    """Foretells the arrival rate from samples of a rolling window.

    Args:
        window_s: length of the window that each sample averages over.
        quantile: of its own past error, for the upper forecast, 0..1.
        memory_s: how long errors are remembered.
        prior_ratio: upper error supposed while there is no history, share of the level, >= 0.
    """

    def __init__(
        self, window_s: float, quantile: float, memory_s: float, prior_ratio: float
    ) -> None:
        self._window_s = window_s
        self._quantile = quantile
        self._prior_ratio = prior_ratio
        self._memory_s = memory_s
        self._trends = [Trend(m) for m in _MEMORIES_S]
        self._losses = [1.0] * len(_MEMORIES_S)
        self._drifts = [0.0] * len(_MEMORIES_S)
        self._dispersion = 1.0
        self._seen = 0
        self._fits: list[tuple[float, float]] = []
        self._shares = [1.0] * len(_MEMORIES_S)
        self._errors = RollingPercentile(memory_s)
        self._made: deque[tuple[float, list[tuple[float, float]], float, float]] = deque()
        self._samples: deque[tuple[float, float]] = deque()
        self._peaks = RollingMax(memory_s)
        self._surprised_at_s: float | None = None
        self._jumped_at_s: float | None = None
        self._jumps: deque[float] = deque()
        self._before_rps = 0.0
        self._line: Line | None = None
        self._at_s: float | None = None
        self._upper_rps = 0.0
        self._upper_at_s: float | None = None
        self._began_s = self._step_s = 0.0
        self._lag_s = window_s / 2.0

    @property
    def dispersion(self) -> float:
        """Variance of arrivals over that of a Poisson process, >= 1."""
        return max(self._dispersion, 1.0)

    @property
    def surprised(self) -> bool:
        """Whether the last sample alone lies far off: the next one will tell."""
        return self._surprised_at_s is not None and self._jumped_at_s is None

    def recurring_rps(self, now_s: float) -> float:
        """The highest demand remembered, if it has jumped up at least twice; else 0."""
        jumps = self._jumps
        while jumps and now_s - jumps[0] > self._memory_s:
            jumps.popleft()
        return (self._peaks.value(now_s) or 0.0) if len(jumps) >= _RECURRING else 0.0

    def peak_rps(self, now_s: float) -> float:
        """The highest demand remembered, >= 0."""
        return self._peaks.value(now_s) or 0.0

    @property
    def experience(self) -> float:
        """How much of the memory for errors is filled, 0..1."""
        return min(len(self._errors) * self._step_s / self._memory_s, 1.0) if self._step_s else 0.0

    @property
    def line(self) -> Line | None:
        """The line as of the last sample; None: no sample yet."""
        return self._line

    @property
    def error_rps(self) -> float:
        """Upper quantile of what came above what was foretold over the horizon, >= 0."""
        return self._upper_rps

    @property
    def noise_rps(self) -> float:
        """Standard deviation of the demand of a minute, as the noise of arrivals makes it, >= 0."""
        level_rps = self._line.level_rps if self._line else 0.0
        return math.sqrt(self.dispersion * level_rps / _MINUTE_S)

    def noise_at(self, ahead_s: float) -> float:
        """Standard deviation of what the line says of ``ahead_s`` from now, by noise alone, >= 0.

        Least squares with weights exp(-t / m), noise of q a second: with r = ahead / m the variance
        is q / m ((2 + r)^2 / 2 - (2 + r) (1 + r) / 2 + (1 + r)^2 / 4).
        """
        variance = total = 0.0
        for memory_s, weight in zip(_MEMORIES_S, self._shares, strict=True):
            m = min(memory_s, max(self.history_s / 2.0, self._window_s / 2.0))
            r = ahead_s / m
            shape = (2 + r) ** 2 / 2 - (2 + r) * (1 + r) / 2 + (1 + r) ** 2 / 4
            variance += weight * shape / m
            total += weight
        level_rps = self._line.level_rps if self._line else 0.0
        return math.sqrt(self.dispersion * level_rps * variance / total)

    @property
    def history_s(self) -> float:
        """Seconds between the first and the last sample."""
        return 0.0 if self._at_s is None else self._at_s - self._began_s

    def age_s(self, now_s: float) -> float:
        """Seconds since the last sample; infinite: none yet."""
        return math.inf if self._at_s is None else now_s - self._at_s

    def add(self, now_s: float, rps: float, horizon_s: float, age_s: float = 0.0) -> None:
        """Enter what was measured over the window that ended ``age_s`` ago.

        Args:
            now_s: instant; one that goes back starts all anew.
            rps: arrivals a second, finite, >= 0.
            horizon_s: how far ahead errors are judged, > 0.
            age_s: how late the measurement is, s, >= 0.
        """
        if self._at_s is not None and now_s <= self._at_s:
            if now_s == self._at_s:
                return
            self.__init__(  # type: ignore[misc]  # a clock that went back: nothing old is of use
                self._window_s, self._quantile, self._memory_s, self._prior_ratio
            )
        if self._at_s is None:
            self._began_s = now_s
        self._step_s = now_s - self._at_s if self._at_s is not None else 0.0
        self._at_s = now_s
        self._peaks.add(now_s, rps)
        self._refute(rps)
        self._judge(now_s, rps, horizon_s)
        rps = self._notice_jump(now_s, rps)
        # A sample speaks of the middle of its window; the line is wanted at its end.
        lag_s = self._lag_s = self._window_s / 2.0 + age_s
        ridge = 0.2 * max(self._dispersion, 1.0) / (_SLOPE_PRIOR_PER_S**2 * max(rps, 0.5))
        fits = []
        for trend in self._trends:
            level, slope = trend.add(now_s, rps, ridge)
            fits.append((level + slope * lag_s, slope))
        weights = self._weights(rps)
        self._fits, self._shares = fits, weights
        level = slope = total = 0.0
        for (a, b), weight in zip(fits, weights, strict=True):
            level += weight * a
            slope += weight * b
            total += weight
        level_rps = max(level / total, 0.0)
        # What has just jumped looks steeper than anything lasts.
        steepest = _MOST_GROWTH * max(level_rps, rps) / horizon_s
        self._line = Line(level_rps, min(slope / total, steepest))
        self._made.append((now_s, fits, level / total, slope / total))
        if self._upper_at_s is None or now_s - self._upper_at_s >= _ERROR_EVERY_S:
            self._upper_at_s = now_s
            self._upper_rps = self._upper(now_s)

    def _notice_jump(self, now_s: float, rps: float) -> float:
        """What to take for the demand now: the sample, or, after a step, where it is heading.

        A step fills the window only by and by, and looks like a slope meanwhile: all lines start
        anew, and what the window shows is scaled up by the part of it that came after the step.
        """
        line, window_s = self._line, self._window_s
        if self._jumped_at_s is None and line is not None:
            variance = self.dispersion * max(line.level_rps, 1.0) / window_s
            off = rps - line.at(-self._lag_s)
            if off * off <= _JUMP_SIGMAS**2 * variance:
                self._surprised_at_s = None
            elif self._surprised_at_s is None:
                self._surprised_at_s, self._before_rps = now_s, line.level_rps
            else:
                self._jumped_at_s = self._surprised_at_s - self._step_s
                if off > 0:
                    self._jumps.append(now_s)
        if self._jumped_at_s is None:
            return rps
        for trend in self._trends:
            trend.clear()
        self._fits = []
        self._drifts = [0.0] * len(_MEMORIES_S)
        filled = (now_s - self._jumped_at_s) / window_s
        if filled >= 1.0:
            self._jumped_at_s = self._surprised_at_s = None
            return rps
        return max(self._before_rps + (rps - self._before_rps) / max(filled, 0.2), 0.0)

    def _refute(self, rps: float) -> None:
        """Follow how far, lately, samples lie off each line; Poisson noise says how far is far."""
        if not self._fits:
            return
        step_s = self._step_s
        keep = math.exp(-step_s / _DRIFT_S)
        lag_s = self._lag_s
        off = [rps - (a + b * (step_s - lag_s)) for a, b in self._fits]
        self._drifts = [
            keep * drift + (1.0 - keep) * one for drift, one in zip(self._drifts, off, strict=True)
        ]
        noise = max(rps, 0.2) / self._window_s
        self._seen += 1
        slow = min(math.exp(-step_s / 600.0), 1.0 - 1.0 / (self._seen + 20.0))
        strange = min(off[0] * off[0] / noise, _STRANGEST)  # a step is no noise
        self._dispersion = slow * self._dispersion + (1.0 - slow) * strange

    def _weights(self, rps: float) -> list[float]:
        """Trust by past error, less what the last minutes refute."""
        best = min(self._losses)
        variance = max(self._dispersion, 1.0) * max(rps, 0.2) / (2.0 * _DRIFT_S)
        found = []
        for loss, drift in zip(self._losses, self._drifts, strict=True):
            beyond = max(drift * drift / variance - _REFUTED, 0.0)
            found.append((best / loss) ** 4 * math.exp(-min(beyond, 60.0) / 2.0))
        if max(found) < 1e-6:
            found[0] = 1.0
        return found

    def _judge(self, now_s: float, rps: float, horizon_s: float) -> None:
        """Hold what was foretold for the last minute or so against what came."""
        samples, window_s = self._samples, self._window_s
        samples.append((now_s, rps))
        span_s = _SMOOTH_SAMPLES * window_s
        while samples[0][0] < now_s - span_s:
            samples.popleft()
        middle_s = now_s - span_s / 2.0 - (self._lag_s - window_s / 2.0)
        made, due = self._made, None
        while made and made[0][0] <= middle_s - horizon_s:
            due = made.popleft()
        if due is None:
            return
        # Arrivals within a window are noise that the queue absorbs; demand is what stays.
        came = sum(y for _, y in samples) / len(samples)
        ahead_s = middle_s - due[0]
        keep = 0.98
        self._losses = [
            keep * loss + (1.0 - keep) * (abs(came - max(a + b * ahead_s, 0.0)) + 1e-3)
            for loss, (a, b) in zip(self._losses, due[1], strict=True)
        ]
        if due[0] - self._began_s >= 2.0 * window_s:
            missed_rps = came - max(due[2] + due[3] * ahead_s, 0.0)
            self._errors.add(now_s, missed_rps)

    def _upper(self, now_s: float) -> float:
        line = self._line
        level_rps = line.level_rps if line else 0.0
        prior = self._prior_ratio * level_rps
        seen = self._errors.value(now_s, self._quantile)
        if seen is None:
            return prior
        if len(self._errors) < _FEW_ERRORS:
            seen = max(prior, seen)
        # A step up, once seen, may come again, but not on top of itself.
        peak_rps = self._peaks.value(now_s) or 0.0
        highest = max(peak_rps - level_rps, _ABOVE_PEAK * level_rps)
        return min(max(seen, 0.0), highest)
