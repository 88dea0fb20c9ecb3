"""The engine behind the operator's stand-in: proves its width, unless it is told not to."""

import threading

from autoscaler.clock import SystemClock
from autoscaler.emulator.operator import Answer

_RESIZE_S = 0.3


class Engine:
    """An ``operator.Engine``.

    Args:
        width: to begin with.

    Attributes:
        commands: every width that it was told.
        answers: what the next commands get instead of a success.
        held: whether a resize does not end.
        proves: whether completions succeed at all.
        serves: whether it answers anything, its page included.
    """

    def __init__(self, width: int) -> None:
        self.commands: list[int] = []
        self.answers: list[Answer] = []
        self.held = False
        self.proves = self.serves = True
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._width = self._target = width
        self._due_s = 0.0

    def scale(self, width: int) -> Answer:
        with self._lock:
            self.commands.append(width)
            if self.answers:
                return self.answers.pop(0)
            self._target, self._due_s = width, self._clock.now_s() + _RESIZE_S
            return Answer(200, f"Scaled to {width} data parallel engines")

    @property
    def ranks(self) -> int:
        """How many serve."""
        with self._lock:
            if not self.held and self._clock.now_s() >= self._due_s:
                self._width = self._target
            return self._width

    def width(self) -> int | None:
        if not (self.proves and self.serves) or self.scaling():
            return None
        return self.ranks

    def scaling(self) -> bool:
        return self.ranks != self._target

    def boot(self, width: int) -> None:
        with self._lock:
            self._width = self._target = width
            self.proves = self.serves = True
            self.answers = []
