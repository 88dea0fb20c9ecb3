"""Wakes an event loop at an instant, to a tenth of a millisecond.

An event loop's own timers are rounded up to whole milliseconds, a sixth of a decode step. Here a
thread waits on the clock and only rings; everything else happens in the event loop.
"""

import asyncio
import math
import threading
from collections.abc import Callable

from autoscaler.ports import Clock


class Alarm:
    """Calls ``ring`` in the event loop, once for each time it was set.

    Args:
        loop: where ``ring`` is called.
        clock: what instants are measured on.
        ring: the callback.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._at_s = math.inf
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="emulator-alarm", daemon=True)
        self._thread.start()

    def set(self, at_s: float) -> None:
        """Ring at ``at_s`` on the clock, and no more at what was set before; inf: never."""
        with self._changed:
            sooner = at_s < self._at_s
            self._at_s = at_s
            if sooner:
                self._changed.notify()

    def close(self) -> None:
        """Ring no more; returns when the thread is gone."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                wait_s = self._at_s - self._clock.now_s()
                if wait_s > 0:
                    self._changed.wait(min(wait_s, 60.0))
                    continue
                self._at_s = math.inf
                self._loop.call_soon_threadsafe(self._ring)
