"""How long a resize takes, learned from those that were seen to the end."""

from collections import deque

from autoscaler.model import Observation, Resize

_LONGEST_S = 7200.0


class LeadTime:
    """From the write of another width until it serves.

    Args:
        prior_s: supposed before a resize was seen, s, >= 0.
        up: whether growths or shrinks count. Planned with is the slowest growth, for which it has
            to be early enough, or the fastest shrink, for which it must not be too early.
        remembered: resizes that count, the newest ones.
    """

    def __init__(self, prior_s: float, *, up: bool = True, remembered: int = 3) -> None:
        self._prior_s = prior_s
        self._up = up
        self._seen_s: deque[float] = deque(maxlen=remembered)
        self._last: Resize | None = None

    @property
    def value_s(self) -> float:
        """Seconds to plan with."""
        if not self._seen_s:
            return self._prior_s
        return max(self._seen_s) if self._up else min(self._seen_s)

    def observe(self, obs: Observation) -> None:
        """Take note of a resize that has ended where it was to go; others teach nothing."""
        last, now = self._last, obs.resize
        if last is not None and now is None and obs.width.effective == last.to_width:
            took_s = obs.now_s - last.requested_at_s
            counts = (last.to_width > last.from_width) is self._up
            if counts and last.to_width != last.from_width and 0 < took_s < _LONGEST_S:
                self._seen_s.append(took_s)
        self._last = now


class Hold:
    """How long wishes for a smaller width are held back before they are granted (the guards).

    A wish that will be held for ``remaining_s`` may speak of the demand then. What is learned is
    the shortest time seen, so that no wish is granted before what it speaks of.

    Args:
        prior_s: supposed before the first shrink was seen, s, >= 0.
        remembered: shrinks that count, the newest ones.
    """

    def __init__(self, prior_s: float, remembered: int = 3) -> None:
        self._prior_s = prior_s
        self._seen_s: deque[float] = deque(maxlen=remembered)
        self._since_s: float | None = None
        self._last: Resize | None = None

    def observe(self, obs: Observation) -> None:
        """Take note of a shrink that begins."""
        resize = obs.resize
        if resize is not None and (self._last is None or resize != self._last):
            if resize.to_width < resize.from_width and self._since_s is not None:
                self._seen_s.append(max(resize.requested_at_s - self._since_s, 0.0))
            self._since_s = None
        self._last = resize

    def wished(self, wish: int, present: int, now_s: float) -> None:
        """Enter this tick's wish."""
        if wish >= present:
            self._since_s = None
        elif self._since_s is None or self._since_s > now_s:
            self._since_s = now_s

    @property
    def value_s(self) -> float:
        """How long a wish is held at least, s."""
        return min(self._seen_s) if self._seen_s else self._prior_s

    def remaining_s(self, now_s: float) -> float:
        """How long a wish of now is held at least, s: 0 once it may be granted any moment."""
        waited_s = 0.0 if self._since_s is None else now_s - self._since_s
        return max(self.value_s - waited_s, 0.0)
