"""The system's clock. The only module that may touch ``time``; simulated time is ``sim.clock``."""

import random
import threading
import time
from datetime import UTC, datetime


class SystemClock:
    """Monotonic seconds since an arbitrary start.

    Starts at a random offset of 10,000 to 200,000 s, so that code which compares with another
    clock fails at once instead of on the machine whose uptime happens to differ.
    """

    def __init__(self) -> None:
        self._offset_s = random.uniform(10_000, 200_000) - time.monotonic()
        self._stopped = threading.Event()

    def now_s(self) -> float:
        """Seconds; only differences mean anything."""
        return time.monotonic() + self._offset_s

    def sleep(self, duration_s: float) -> None:
        """Wait; ``stop`` ends it at once."""
        if duration_s > 0:
            self._stopped.wait(duration_s)

    def stop(self) -> None:
        """Wake every sleeper, now and from now on. Safe in a signal handler."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped.is_set()


class ScaledClock:
    """Another clock that runs ``scale`` times as fast: a live loop against an emulated engine.

    Args:
        clock: gives the real time.
        scale: seconds of this clock a real second, > 0.
    """

    def __init__(self, clock: SystemClock, scale: float) -> None:
        self._clock = clock
        self._scale = scale

    def now_s(self) -> float:
        """Scaled seconds; only differences mean anything."""
        return self._clock.now_s() * self._scale

    def sleep(self, duration_s: float) -> None:
        """Wait for so many scaled seconds; stopping the real clock ends it at once."""
        self._clock.sleep(duration_s / self._scale)


def wall_s() -> float:
    """Unix seconds, for exported time stamps and log lines only: it may jump, so never subtract."""
    return time.time()


def wall_time() -> str:
    """Date and time, UTC, ISO 8601, for people who read a log; nothing is to compute with it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
