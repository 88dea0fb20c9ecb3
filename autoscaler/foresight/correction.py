"""How much faster or slower the deployment is than its profile says, learned while it serves.

If every step takes 1/c times as long, r requests a second fill the engine as r / c do in the
model. So the requests in the system say what share of the capacity is in use, and with the
arrivals that gives the true capacity, long before it is reached; once requests wait all the time,
the completions give it directly.
"""

import math
from collections import deque

from autoscaler.foresight.curves import Curve
from autoscaler.model import Metrics

_LEAST, _MOST = 0.3, 3.0
_SMOOTH = 1.0 / 12.0
_SETTLED_TICKS = 8
_USEFUL_SHARES = (0.12, 0.9)


class Correction:
    """The factor c on the profile's capacities; 1 until something was learned.

    Args:
        gain: weight of a new estimate a tick, 0..1; 0: the profile is taken at its word.
    """

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self.factor = 1.0
        self.samples = 0
        self._width: int | None = None
        self._ticks = 0
        self._arrival_rps = self._in_system = 0.0
        self._busy = 0
        self._counts: deque[tuple[float, float]] = deque()

    def observe(self, now_s: float, width: int, metrics: Metrics, curve: Curve | None) -> None:
        """Learn from one tick at a width that serves; ``curve``: its curve for the present mix."""
        if width != self._width:
            self._width, self._ticks, self._busy = width, 0, 0
        arrivals, waiting, running = metrics.arrival_rps, metrics.queue_depth, metrics.running
        if arrivals.value is None or waiting.value is None or running.value is None:
            self._ticks = self._busy = 0
            return
        if curve is None:
            return
        counts = self._counts
        if not self._ticks:
            counts.clear()
        counts.append((now_s, waiting.value + running.value))
        while now_s - counts[0][0] >= metrics.window_s or counts[0][0] > now_s:
            counts.popleft()
        # Averaged over the very window that the arrivals are: a step moves the one at once, the
        # other half a minute later, and what was learned from that was wrong by half.
        in_system = sum(count for _, count in counts) / len(counts)
        self._ticks += 1
        smooth = max(1.0 / self._ticks, _SMOOTH)
        self._arrival_rps += smooth * (arrivals.value - self._arrival_rps)
        self._in_system += smooth * (in_system - self._in_system)
        busy = waiting.value > 0.1 * curve.slots and running.value > 0.9 * curve.slots
        self._busy = self._busy + 1 if busy else 0
        if self._busy >= _SETTLED_TICKS:
            if metrics.completion_rps.value:
                self._learn(metrics.completion_rps.value / curve.capacity_rps)
        elif waiting.value > 0.1 * curve.slots:
            self._ticks = 0  # a backlog fills the engine whatever arrives
        elif self._ticks >= _SETTLED_TICKS:
            share = curve.share_of(self._in_system)
            if _USEFUL_SHARES[0] <= share <= _USEFUL_SHARES[1]:
                self._learn(self._arrival_rps / (share * curve.capacity_rps))

    def _learn(self, estimate: float) -> None:
        if not (math.isfinite(estimate) and estimate > 0):
            return
        self.samples += 1
        gain = max(self._gain, 1.0 / (self.samples + 3)) if self._gain else 0.0
        estimate = min(max(estimate, _LEAST), _MOST)
        self.factor *= (estimate / self.factor) ** gain
