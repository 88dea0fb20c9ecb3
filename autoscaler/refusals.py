"""Widths that were refused, and until when there is no point in asking again. Pure."""

import zlib
from dataclasses import replace

from autoscaler.memory import Memory
from autoscaler.model import Observation, Stage
from autoscaler.window import elapsed

_AGAIN_S = 600.0
"""A growth that was refused is asked for again after so long: a quota that was raised, or a webhook
that was put right, changes nothing that is read here. Asking costs one call."""


class Refusals:
    """The refused widths of one target, in the situation in which they were refused."""

    def __init__(self) -> None:
        self._refused: dict[int, str] = {}
        self._at_s: dict[int, float] = {}  # of those refused to this process
        self._situation = ""

    def add(self, width: int, why: str, obs: Observation) -> None:
        """A write of ``width``, decided from ``obs``, was refused."""
        self._refused[width] = why
        self._at_s[width] = obs.now_s
        self._situation = _situation(obs)

    def objection(self, width: int, obs: Observation) -> Stage | None:
        """Why there is no point in asking for this width; None: there is."""
        if not self._refused:
            return None
        if self._situation != _situation(obs):
            self._refused.clear()  # something changed: worth asking again
            return None
        if width in self._refused:
            reason = f"{width} was refused and nothing has changed: {self._refused[width]}"
            if width < obs.width.desired:
                return Stage("controller", None, "shrink_unsupported", reason)
            if elapsed(self._at_s.setdefault(width, obs.now_s), obs.now_s, _AGAIN_S):
                return None
            return Stage("controller", None, "refused", reason)
        if width < obs.width.desired and min(self._refused) < obs.width.desired:
            reason = "another decrease was refused and nothing has changed"
            return Stage("controller", None, "shrink_unsupported", reason)
        return None

    def recall(self, memory: Memory) -> None:
        """Go on from what another process left behind."""
        self._refused, self._situation = dict(memory.refused), memory.refused_in
        self._at_s = {}

    def remembered(self) -> tuple[tuple[tuple[int, str], ...], str]:
        """``Memory.refused`` and ``Memory.refused_in``."""
        return tuple(sorted(self._refused.items())), self._situation if self._refused else ""


def _situation(obs: Observation) -> str:
    """What has to change before a refused width is worth asking for again, as a digest.

    The same in every process, so that a restart is no change.
    """
    width = obs.width
    # GPUs come and go without having anything to do with why a width was refused.
    can = replace(obs.capabilities, free_gpus=None, capacity="")
    situation = (width.desired, width.effective, width.incarnation, can)
    return f"{zlib.crc32(repr(situation).encode()):08x}"
