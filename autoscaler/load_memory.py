"""Remembers at which load a width began to hurt, so that nobody goes back to it too soon."""

from autoscaler.window import elapsed


class LoadMemory:
    """What each width could not bear.

    Quiet at a width says nothing of the narrower one; what it could not bear lately does.

    Args:
        return_ratio: a width is gone back to only below this share of the rate at which it began
            to hurt, > 0, <= 1.
        remember_s: how long that is remembered, s, >= 0; 0: not at all.
    """

    def __init__(self, return_ratio: float, remember_s: float) -> None:
        self._return_ratio = return_ratio
        self._remember_s = remember_s
        self._hurt: dict[int, tuple[float, float]] = {}  # width: when, arrivals then

    def hurt(self, width: int, rps: float | None, now_s: float) -> None:
        """Note that ``width`` hurts at ``rps`` arrivals; an unknown rate teaches nothing."""
        if rps is not None and self._remember_s > 0:
            self._hurt[width] = (now_s, rps)

    def objection(self, width: int, wish: int, rps: float | None, now_s: float) -> str | None:
        """Why not to go down from ``width`` to ``wish``; None: nothing speaks against it."""
        for hurt, (at_s, then_rps) in list(self._hurt.items()):
            if elapsed(at_s, now_s, self._remember_s):
                del self._hurt[hurt]
            elif rps is not None and wish <= hurt < width and rps >= self._return_ratio * then_rps:
                return f"width {hurt} hurt at {then_rps:.3g} rps, now it is {rps:.3g}"
        return None

    def state(self) -> dict[str, dict[str, float]]:
        """JSON-ready: by width, when it hurt (s) and at how many arrivals a second."""
        return {str(w): {"at_s": at_s, "rps": rps} for w, (at_s, rps) in self._hurt.items()}
