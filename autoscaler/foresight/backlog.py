"""Queues as a fluid: when does what waits cost more than it may? Closed forms, no simulation.

Arrivals a + b t against a constant capacity: the backlog is a parabola, cut off at empty. Good
for widths by the dozen in a tick.
"""

import math

from autoscaler.foresight.trend import Line


def breach_s(queue: float, line: Line, capacity_rps: float, limit: float) -> float:
    """Seconds until ``limit`` requests wait; 0: they do already; infinite: never.

    Args:
        queue: requests that wait now, >= 0.
        line: arrivals from now on.
        capacity_rps: requests a second that are served, >= 0.
        limit: requests, >= 0.
    """
    if queue >= limit:
        return 0.0
    excess, slope = line.level_rps - capacity_rps, line.slope_rps_per_s
    if slope > 1e-12:
        if excess < 0:
            turn_s = -excess / slope
            if queue - excess * excess / (2.0 * slope) <= 0:
                return turn_s + math.sqrt(2.0 * limit / slope)  # empty before it grows
        missing = limit - queue
        return (-excess + math.sqrt(excess * excess + 2.0 * slope * missing)) / slope
    if excess <= 0:
        return math.inf
    missing = limit - queue
    if slope > -1e-12:
        return missing / excess
    root = excess * excess + 2.0 * slope * missing
    return math.inf if root < 0 else (excess - math.sqrt(root)) / -slope


def after(queue: float, line: Line, capacity_rps: float, ahead_s: float) -> float:
    """Requests that wait ``ahead_s`` from now, >= 0."""
    excess, slope = line.level_rps - capacity_rps, line.slope_rps_per_s
    plain = queue + excess * ahead_s + slope * ahead_s * ahead_s / 2.0
    if slope > 0 and excess < 0:
        turn_s = min(-excess / slope, ahead_s)
        least = queue + excess * turn_s + slope * turn_s * turn_s / 2.0
        return plain - min(least, 0.0)
    return max(plain, 0.0)


def drain_s(queue: float, line: Line, capacity_rps: float, limit: float) -> float:
    """Seconds until no more than ``limit`` requests wait; infinite: they never get that few.

    Args: as of ``breach_s``.
    """
    excess = queue - limit
    if excess <= 0:
        return 0.0
    spare, slope = capacity_rps - line.level_rps, line.slope_rps_per_s
    if abs(slope) < 1e-12:
        return excess / spare if spare > 0 else math.inf
    # excess = spare t - slope t^2 / 2, the first time
    root = spare * spare - 2.0 * slope * excess
    if root < 0 or (slope > 0 and spare <= 0):
        return math.inf
    return 2.0 * excess / (spare + math.sqrt(root))
