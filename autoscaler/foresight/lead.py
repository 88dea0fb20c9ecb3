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

    A wish that will be held for ``remaining_s`` may speak of the demand then.

    Args:
        window_s: the guards' scale-down window, s, >= 0.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._since_s: float | None = None

    def wished(self, wish: int, present: int, now_s: float) -> None:
        """Enter this tick's wish."""
        if wish >= present:
            self._since_s = None
        elif self._since_s is None or self._since_s > now_s:
            self._since_s = now_s

    def remaining_s(self, now_s: float) -> float:
        """How long a wish of now is held at least, s: 0 once it may be granted any moment."""
        waited_s = 0.0 if self._since_s is None else now_s - self._since_s
        return max(self.window_s - waited_s, 0.0)
