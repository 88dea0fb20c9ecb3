"""What speaks against a shrink that the forecast permits: changes of direction, widths left."""

from collections import deque

from autoscaler.model import Resize

_HOUR_S = 3600.0
_HURT_S = 6 * 3600.0
_RETURN_RATIO = 0.92
"""A width that had to be left is returned to only below this share of the load it was left at."""


class Caution:
    """Remembers the changes of direction of the last hour, and the widths that had to be left.

    Args:
        reversals_per_hour: how many the guards allow, >= 1; None: any number.
    """

    def __init__(self, reversals_per_hour: int | None) -> None:
        self._budget = reversals_per_hour
        self._reversals: deque[float] = deque()
        self._direction = 0  # of the last resize: 1 up, -1 down, 0 none yet
        self._noted: Resize | None = None
        self._hurt: dict[int, tuple[float, float]] = {}  # width left: when, at what share

    def note(self, resize: Resize) -> None:
        """Count a resize that is in flight, once, as the guards do."""
        if resize == self._noted:
            return
        self._noted = resize
        direction = 1 if resize.to_width > resize.from_width else -1
        if direction * self._direction < 0:
            self._reversals.append(resize.requested_at_s)
        self._direction = direction

    def last_reversal(self, now_s: float) -> bool:
        """Whether a shrink now would use up the changes of direction that the guards allow."""
        reversals = self._reversals
        while reversals and now_s - reversals[0] >= _HOUR_S:
            reversals.popleft()
        turns = self._direction > 0
        return self._budget is not None and turns and len(reversals) + 1 >= self._budget

    def left(self, width: int, share: float, now_s: float) -> None:
        """A width was too small for a share of what it was said to bear."""
        self._hurt[width] = now_s, share

    def hurts(self, width: int, share: float, now_s: float) -> bool:
        """Whether a width had to be left, not long ago, at about such a share."""
        hurt = self._hurt.get(width)
        if hurt is None or now_s - hurt[0] >= _HURT_S:
            return False
        return share > _RETURN_RATIO * hurt[1]
