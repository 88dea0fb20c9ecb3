"""Straight lines: demand from now on, and least squares that forget. No I/O."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Demand as a straight line from now on.

    Args:
        level_rps: now, >= 0.
        slope_rps_per_s: change a second.
    """

    level_rps: float
    slope_rps_per_s: float

    def at(self, ahead_s: float) -> float:
        """Requests a second ``ahead_s`` from now, >= 0."""
        return max(self.level_rps + self.slope_rps_per_s * ahead_s, 0.0)


class Trend:
    """Least squares over all samples, each weighed by exp(-age / memory_s).

    The slope is pulled towards 0 as long as few samples speak for it (ridge).
    """

    def __init__(self, memory_s: float) -> None:
        self.memory_s = memory_s
        self.clear()

    def clear(self) -> None:
        """Forget every sample."""
        self._at_s = 0.0
        self._w = self._x = self._xx = self._y = self._xy = 0.0

    def add(self, at_s: float, rps: float, ridge: float) -> tuple[float, float]:
        """Enter a sample; returns level and slope at its instant.

        Args:
            at_s: not before the last one.
            rps: requests a second.
            ridge: s^2, variance of a sample over that of the slope as believed beforehand.
        """
        if self._w:
            step_s = at_s - self._at_s
            keep = math.exp(-step_s / self.memory_s)
            xx = self._xx + step_s * (step_s * self._w - 2.0 * self._x)
            self._xy = keep * (self._xy - step_s * self._y)
            self._x = keep * (self._x - step_s * self._w)
            self._xx = keep * xx
            self._w *= keep
            self._y *= keep
        self._at_s = at_s
        self._w += 1.0
        self._y += rps
        spread = self._w * (self._xx + ridge) - self._x * self._x
        slope = (self._w * self._xy - self._x * self._y) / spread
        return (self._y - slope * self._x) / self._w, slope
