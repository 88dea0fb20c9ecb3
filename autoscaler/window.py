"""Rolling maximum, minimum and percentile over (at_s, value).

A window of ``window_s`` seconds holds the samples with ``now - window_s < at_s <= now``: open at
its old end, so that a sample on the border of two adjacent windows belongs to exactly one.
"""

from collections import deque

TIME_TOLERANCE_S = 1e-6
"""Two instants closer than this are the same one. Without it, shifting a clock by a constant
would move a sample across a border by a rounding error, and with it a decision."""


def elapsed(since_s: float, now_s: float, duration_s: float) -> bool:
    """Whether ``duration_s`` has passed since ``since_s``."""
    return now_s - since_s >= duration_s - TIME_TOLERANCE_S


class RollingMax:
    """Largest value of the last ``window_s`` seconds, in amortised constant time.

    Args:
        window_s: length, s, >= 0; with 0 only samples of the present instant count.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        # Values strictly decreasing, so the front is the maximum: a newer and no smaller value
        # outlives every older one.
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, value: float) -> None:
        """Enter a sample; instants are to be non-decreasing."""
        samples = self._samples
        while samples and samples[-1][1] <= value:
            samples.pop()
        samples.append((at_s, value))

    def value(self, now_s: float) -> float | None:
        """The maximum; None: no sample in the window. Older samples are forgotten for good."""
        samples = self._samples
        # The newest sample of a window of zero length is still part of its own instant.
        limit_s = max(self.window_s - TIME_TOLERANCE_S, TIME_TOLERANCE_S)
        while samples and now_s - samples[0][0] >= limit_s:
            samples.popleft()
        return samples[0][1] if samples else None

    def clear(self) -> None:
        """Forget every sample."""
        self._samples.clear()


class RollingMin:
    """Smallest value of the last ``window_s`` seconds; see RollingMax."""

    def __init__(self, window_s: float) -> None:
        self._negated = RollingMax(window_s)

    def add(self, at_s: float, value: float) -> None:
        """Enter a sample; instants are to be non-decreasing."""
        self._negated.add(at_s, -value)

    def value(self, now_s: float) -> float | None:
        """The minimum; None: no sample in the window."""
        highest = self._negated.value(now_s)
        return None if highest is None else -highest

    def clear(self) -> None:
        """Forget every sample."""
        self._negated.clear()


class RollingPercentile:
    """Percentile of the samples of the last ``window_s`` seconds, sorted on demand.

    Args:
        window_s: length, s, > 0.
        limit: number of samples kept at most, the newest ones; bounds memory and time.
    """

    def __init__(self, window_s: float, limit: int = 10_000) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, float]] = deque(maxlen=limit)

    def add(self, at_s: float, value: float) -> None:
        """Enter a sample; instants are to be non-decreasing."""
        self._samples.append((at_s, value))

    def value(self, now_s: float, q: float) -> float | None:
        """The ``q`` quantile (0 < q <= 1), nearest rank: a value that was observed.

        None: no sample in the window.
        """
        samples = self._samples
        limit_s = self.window_s - TIME_TOLERANCE_S
        while samples and now_s - samples[0][0] >= limit_s:
            samples.popleft()
        if not samples:
            return None
        ordered = sorted(value for _, value in samples)
        # Nearest rank is ceil(q n); the tolerance keeps 0.95 x 20 = 19.000000000000004 at 19.
        rank = -int(-(q * len(ordered) - 1e-9) // 1)
        return ordered[min(max(rank, 1), len(ordered)) - 1]

    def __len__(self) -> int:
        return len(self._samples)
