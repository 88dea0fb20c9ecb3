"""Keeps what a controller remembers where it outlives the process, and finds it again.

Where the target takes a text along with its width, both are written in one: the text is there
exactly if the width is. Everywhere else the text is written before the width, so that a process
that ends between the two leaves a question behind and never a forgotten resize.
"""

from collections import Counter
from collections.abc import Callable

from autoscaler.controller import Controller
from autoscaler.errors import AutoscalerError, TargetConflict, TargetForbidden
from autoscaler.memory import Memory, decode, encode
from autoscaler.model import Decision, SetOutcome, SetResult
from autoscaler.ports import MemoryPlace, RememberingTarget, Target
from autoscaler.window import elapsed

_RETRY_S = 30.0
"""A place that cannot be written is no reason to ask it in every tick."""


class Keeper:
    """The memory of one target.

    Args:
        place: where the text is; the target itself where that takes it along.
        epoch_s: Unix time at which the loop's clock shows 0, s; asked each time, since a wall
            clock may be corrected and the stamps should be right for whoever reads them next.

    Attributes:
        errors: number of texts that could not be read or written, by class of error.
        recalled: whether the text has been read; False: ``recall`` is to be called.
    """

    def __init__(self, place: MemoryPlace, epoch_s: Callable[[], float]) -> None:
        self.errors: Counter[str] = Counter()
        self.recalled = False
        self._place = place
        self._carrier = place if isinstance(place, RememberingTarget) else None
        self._epoch_s = epoch_s
        self._saved: Memory | None = None
        self._failed_at_s: float | None = None
        self._unclear_at_s: float | None = None

    def recall(self, now_s: float) -> Memory | None:
        """What an earlier process left behind; None: nothing.

        Where reading it is not permitted, nothing can be known of it, and that is no reason to
        steer nothing: it is counted.

        Raises:
            TargetError: unreadable now; to be tried again.
        """
        try:
            text = self._place.recall()
        except TargetForbidden as error:
            self._count(error)
            text = None
        self.recalled = True
        self._saved = None
        if text is None:
            return None
        memory = decode(text, now_s, self._epoch_s())
        if memory.finding:
            # Kept anew as it was understood: else each restart would find the same again.
            self.errors["MemoryUnusable"] += 1
        else:
            self._saved = memory
        return memory

    def set_width(
        self, target: Target, decision: Decision, width: int, expected: int, of: Controller
    ) -> SetOutcome:
        """Have a target set a width, and the memory of it kept.

        Args:
            target: to be written.
            decision: that this width be written.
            width: of the decision.
            expected: of the decision.
            of: the controller that decided.
        """
        if self._carrier is not None:
            memory = of.memory(decision)
            outcome = self._carrier.set_width(width, expected, encode(memory, self._epoch_s()))
            if outcome.result is SetResult.APPLIED:
                self._saved = memory
            elif outcome.result is SetResult.AMBIGUOUS:
                # The one or the other is there; what failed just now is left alone for a tick.
                self._saved, self._unclear_at_s = None, decision.at_s
            return outcome
        try:
            self._save(of.memory(decision, applied=False))
        except TargetConflict as error:
            self._count(error)
            self.recalled = False
            return SetOutcome(SetResult.CONFLICT, detail=str(error))
        except AutoscalerError as error:
            # An overload is worse than a restart that has to guess.
            self._failed(error, decision.at_s)
        return target.set_width(width, expected)

    def keep(self, of: Controller, now_s: float) -> None:
        """Keep what is new since the last time, if anything is."""
        memory = of.memory()
        if now_s == self._unclear_at_s or not memory.says_more_than(self._saved):
            return
        if self._failed_at_s is not None and not elapsed(self._failed_at_s, now_s, _RETRY_S):
            return
        try:
            self._save(memory)
        except TargetConflict as error:
            self._count(error)
            self.recalled = False
        except AutoscalerError as error:
            self._failed(error, now_s)

    def _save(self, memory: Memory) -> None:
        self._place.remember(encode(memory, self._epoch_s()))
        self._saved, self._failed_at_s = memory, None

    def _failed(self, error: AutoscalerError, now_s: float) -> None:
        self._count(error)
        self._saved, self._failed_at_s = None, now_s

    def _count(self, error: AutoscalerError) -> None:
        self.errors[type(error).__name__] += 1
