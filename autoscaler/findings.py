"""What a look at a source or a target finds before anything depends on it.

Sources and targets may have a method ``findings() -> list[Finding]``; ``autoscaler check`` asks it.
"""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    """works, and worse than it could"""
    ERROR = "error"
    """does not work, or steers wrongly"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Args:
        level: how bad it is.
        subject: what was looked at: a key, a label, a signal, a field.
        detail: what is to be said of it.
        cure: what to do about it, as an instruction; "" where there is nothing to do.
    """

    level: Level
    subject: str
    detail: str
    cure: str = ""
