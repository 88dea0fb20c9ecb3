"""Simulated time: sleeping plays what happens meanwhile."""

from collections.abc import Callable


class SimClock:
    """A clock that moves only when somebody sleeps on it.

    Args:
        play: called with the instant up to which the world is to be played.
    """

    def __init__(self, play: Callable[[float], None]) -> None:
        self._play = play
        self._now_s = 0.0

    def now_s(self) -> float:
        """Seconds since the start of the simulation."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Play every event due within ``duration_s`` seconds."""
        if duration_s > 0:
            until_s = self._now_s + duration_s
            self._play(until_s)
            self._now_s = until_s
