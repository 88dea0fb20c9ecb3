"""Writes of whoever leads, and of nobody else.

A Lease is no fence by itself: a write that was decided while leading may be sent long after. So
each is preceded by a renewal, and is not sent unless it can be over before the lease is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from autoscaler.cluster.answers import NotSent
from autoscaler.model import Capabilities, SetOutcome, SetResult, WidthStatus
from autoscaler.ports import RememberingTarget, Target

Permission = Callable[[float], AbstractContextManager[str]]
"""Holds a write's place while it lasts; takes the longest it can last, s, and gives the reason why
it may not be sent; "": it may."""


class Fenced:
    """Any target, written while leading only.

    Args:
        target: the deployment.
        write_s: the longest that one write lasts, s.
        permission: asked right before each write.
    """

    def __init__(self, target: Target, write_s: float, permission: Permission) -> None:
        self._target, self._write_s, self._permission = target, write_s, permission

    def read(self) -> WidthStatus:
        """What the target says."""
        return self._target.read()

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """The target's answer, or ``SKIPPED`` with the reason why nothing was sent."""
        return self._permitted(lambda: self._target.set_width(width, expected))

    def capabilities(self) -> Capabilities:
        """What the target can do."""
        return self._target.capabilities()

    def _permitted(self, write: Callable[[], SetOutcome]) -> SetOutcome:
        with self._permission(self._write_s) as refusal:
            if refusal:
                return SetOutcome(SetResult.SKIPPED, detail=f"nothing was written: {refusal}")
            return write()


class FencedRemembering(Fenced):
    """The same for a target that takes a text along with its width.

    Args:
        target: the deployment.
        place: the same deployment, as what remembers.
        write_s: the longest that one write lasts, s.
        permission: asked right before each write.
    """

    def __init__(
        self, target: Target, place: RememberingTarget, write_s: float, permission: Permission
    ) -> None:
        super().__init__(target, write_s, permission)
        self._place = place

    def set_width(self, width: int, expected: int, note: str | None = None) -> SetOutcome:
        """The target's answer, or ``SKIPPED`` with the reason why nothing was sent."""
        return self._permitted(lambda: self._place.set_width(width, expected, note))

    def recall(self) -> str | None:
        """What the target has."""
        return self._place.recall()

    def remember(self, text: str) -> None:
        """Leave the text with the target.

        Raises:
            TargetError: not left there; ``NotSent``: not leading, or not for long enough.
        """
        with self._permission(self._write_s) as refusal:
            if refusal:
                raise NotSent(f"nothing was written: {refusal}")
            self._place.remember(text)


def fenced(target: Target, write_s: float, permission: Permission) -> Target:
    """The target, written while leading only; it remembers if it did before.

    Args:
        target: the deployment.
        write_s: the longest that one write lasts, s.
        permission: asked right before each write.
    """
    if isinstance(target, RememberingTarget):
        return FencedRemembering(target, target, write_s, permission)
    return Fenced(target, write_s, permission)
