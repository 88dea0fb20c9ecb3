"""The operators' pause switch: on the object itself, or in the configuration. Pure."""

from dataclasses import dataclass

PAUSES = ("all", "up", "down")


@dataclass(frozen=True, slots=True)
class Pause:
    """Which directions are paused, and by what."""

    up: bool
    down: bool
    reason: str

    def forbids(self, width: int, present: int, desired: int) -> bool:
        """Whether this width must not be written.

        After a failed growth a width may be above the present one and below the spec: both.
        """
        return (self.up and width > present) or (self.down and width < max(present, desired))


def paused(switch: str | None, configured: str | None) -> Pause | None:
    """What the two switches say together.

    Args:
        switch: the one on the object, as it is there; None: it has none. A value that is none of
            PAUSES pauses everything: whoever sets it wants less to happen, not more.
        configured: the one of the configuration, one of PAUSES; None: not set.

    Returns:
        What is paused; None: nothing.
    """
    if switch is None and configured is None:
        return None
    reasons = []
    said = {switch, configured} - {None}
    if switch is not None:
        reasons.append(f"the annotation pause says {switch!r:.40}")
        if switch not in PAUSES:
            reasons[-1] += f", which is none of {', '.join(PAUSES)} and taken for all"
            said = {"all"}
    if configured is not None:
        reasons.append(f"the configuration pauses {configured}")
    return Pause(bool(said & {"all", "up"}), bool(said & {"all", "down"}), "; ".join(reasons))
