"""Others who set the width: respected for a time, and not fought with. Pure.

A width that somebody else sets stands for ``override_hold_s``: a person who resizes by hand has a
reason that no metric shows. One who sets it again after each write of ours (GitOps, another
autoscaler) will go on for ever, each round a resize of minutes: after a few rounds we stop.
"""

from dataclasses import dataclass

from autoscaler.limits import Params
from autoscaler.window import elapsed


@dataclass(slots=True)
class Override:
    """What is remembered of the others.

    Args:
        at_s: when one of them set the width last; None: never.
        width: to what.
        by: who; "" unknown.
        answered: instants at which they undid our writes, oldest first.
        wrote_at_s: when we wrote last, if nobody else has since; None: they have.
    """

    at_s: float | None = None
    width: int | None = None
    by: str = ""
    answered: tuple[float, ...] = ()
    wrote_at_s: float | None = None

    def wrote(self, at_s: float) -> None:
        """We have written a width, or may have."""
        self.wrote_at_s = at_s

    def foreign(self, width: int, by: str, at_s: float, params: Params) -> bool:
        """Somebody else has set the width.

        Returns:
            Whether a fight begins with it.
        """
        before = self.fighting(at_s, params)
        self.at_s, self.width, self.by = at_s, width, by
        if self.wrote_at_s is not None and not elapsed(
            self.wrote_at_s, at_s, params.fight_window_s
        ):
            first_s = at_s - _window_s(params)
            self.answered = (*(s for s in self.answered if s > first_s), at_s)
        self.wrote_at_s = None
        return self.fighting(at_s, params) and not before

    def fighting(self, now_s: float, params: Params) -> bool:
        """Whether this is a fight, in which we do not write."""
        if self.at_s is None or params.fight_after is None:
            return False
        rounds = sum(s > self.at_s - _window_s(params) for s in self.answered)
        quiet_s = max(params.override_hold_s, params.fight_window_s)
        return rounds >= params.fight_after and not elapsed(self.at_s, now_s, quiet_s)

    def objection(self, now_s: float, params: Params) -> tuple[str, str] | None:
        """Code and reason why no width is to be written now; None: there is none."""
        if self.at_s is None:
            return None
        who = repr(self.by[:80]) if self.by else "somebody else"
        if self.fighting(now_s, params):
            quiet_s = max(params.override_hold_s, params.fight_window_s)
            rounds = len(self.answered)
            reason = (
                f"{who} has undone {rounds} of our writes, the last with width {self.width}: "
                f"nothing is written until {quiet_s:g} s have passed without another"
            )
            return "fight", reason
        if elapsed(self.at_s, now_s, params.override_hold_s):
            return None
        hold = f"respected for {params.override_hold_s:g} s"
        return "overridden", f"{who} has set the width to {self.width}: {hold}"


def _window_s(params: Params) -> float:
    """How far back rounds count: the holds between them are no peace."""
    return params.fight_window_s + ((params.fight_after or 1) - 1) * params.override_hold_s
