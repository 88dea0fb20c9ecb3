"""The end of a process that cannot end itself: frozen, or its interpreter stuck.

A process that was stopped for longer than its lease goes on where it was, perhaps just before a
write; nothing that it could check would be checked again. A timer of the kernel runs on meanwhile
and its signal comes before the next instruction.
"""

import ctypes
import signal
import threading

from autoscaler.ports import Clock

_SLACK_S = 0.02


class KernelTimer:
    """Ends this process with exit code 14 at the earliest of several instants.

    Takes SIGALRM and the real-time interval timer for itself: one in a process. Times that a
    machine is suspended are not counted.

    Args:
        clock: what instants are given in; runs at the pace of real time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_at_s: dict[object, float] = {}
        self._lock = threading.Lock()
        # The C library's _exit itself is the handler. Python's handlers wait for the interpreter,
        # which is what may be stuck; the default action is ignored for process 1 of a container.
        library = ctypes.CDLL(None)
        library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        library.signal.restype = ctypes.c_void_p
        library.signal(signal.SIGALRM, ctypes.cast(library._exit, ctypes.c_void_p))  # noqa: SLF001  # its name in C
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])

    def set(self, owner: object, at_s: float) -> None:
        """End the process at this instant of the clock, not at the one that the owner set before.

        Args:
            owner: whose lease it is, hashable: each has an instant of its own.
            at_s: instant; in the past: now.
        """
        with self._lock:
            self._ends_at_s[owner] = at_s
            self._arm()

    def clear(self, owner: object) -> None:
        """Let the process live, as far as this owner is concerned."""
        with self._lock:
            self._ends_at_s.pop(owner, None)
            self._arm()

    def _arm(self) -> None:
        if not self._ends_at_s:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        at_s = min(self._ends_at_s.values())
        while True:
            now_s = self._clock.now_s()
            signal.setitimer(signal.ITIMER_REAL, max(at_s - now_s, 1e-6))
            # The timer takes a span: stopped between the two lines above it would be set too late.
            if self._clock.now_s() - now_s < _SLACK_S:
                return
