"""Mean of the samples of a rolling window."""

from collections import deque

from autoscaler.window import elapsed


class RollingMean:
    """Mean of the samples with ``now - window_s < at_s <= now``: each counts in one window once.

    Args:
        window_s: length, s, > 0; the newest sample counts in any case.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, value: float) -> None:
        """Enter a sample; one from before the newest means that the clock went back: anew."""
        samples = self._samples
        if samples and at_s < samples[-1][0]:
            samples.clear()
        samples.append((at_s, value))

    def value(self, now_s: float) -> float | None:
        """The mean; None: no sample in the window."""
        samples = self._samples
        while samples and elapsed(samples[0][0], now_s, self.window_s):
            samples.popleft()
        return sum(value for _, value in samples) / len(samples) if samples else None
