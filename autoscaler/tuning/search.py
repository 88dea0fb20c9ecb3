"""The search itself: differential evolution in the unit cube, a generation at a time.

The sequence of trials depends on the seed and on the scores alone, never on how many processes
compute them: an interrupted search replays its journal and is where it was.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.errors import ConfigError
from autoscaler.policy_file import PolicyChoice
from autoscaler.sweeps import Journal, Workers, each
from autoscaler.tuning.cases import Case, outcome, played
from autoscaler.tuning.goals import Goal, Outcome, score
from autoscaler.tuning.space import Space

_POPULATION = 20
"""Enough to begin far apart, few enough for ten generations in 200 trials."""

_IDLE_GENERATIONS = 20
"""Generations without anything new after which a space of few values is exhausted."""

_CONTRADICTION = 1e6
"""Score of parameters that contradict one another (a low mark above the high one): worse than all
that can be played, and nothing to play."""


class _Spent(Exception):
    """No trials are left; SciPy has no other way to be told within a generation."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Parameters that were played.

    Args:
        params: the policy's.
        outcomes: one a case.
        score: less is better.
        kept: whether the goal is, in all cases.
    """

    params: Any
    outcomes: tuple[Outcome, ...]
    score: float
    kept: bool


class Search:
    """A search that can be stopped at any time and keeps the best so far.

    Args:
        choice: the policy.
        space: around its parameters, which are trial 0 and what each score is relative to.
        cases: what it is tuned on, at least one.
        goal: the constraints.
        seed: of the search, >= 0.
        workers: who plays.
        journal: keeps every outcome.
    """

    def __init__(
        self,
        choice: PolicyChoice,
        space: Space,
        cases: Sequence[Case],
        goal: Goal,
        seed: int,
        workers: Workers,
        journal: Journal | None = None,
    ) -> None:
        self.space = space
        self._trials: dict[str, Trial] = {}
        self._choice, self._cases, self._goal = choice, cases, goal
        self._seed, self._workers, self._journal = seed, workers, journal

    @property
    def base(self) -> Trial | None:
        """Trial 0; None: not played yet."""
        return next(iter(self._trials.values()), None)

    @property
    def best(self) -> Trial | None:
        """What keeps the goal at the fewest GPU-hours, or comes nearest; None: nothing yet."""
        return min(self._trials.values(), key=lambda t: (not t.kept, t.score), default=None)

    @property
    def trials(self) -> list[Trial]:
        """All that were played, trial 0 first."""
        return list(self._trials.values())

    @property
    def played(self) -> int:
        """Trials that are done."""
        return len(self._trials)

    def run(self, trials: int, on_done: Callable[[int], None] | None = None) -> None:
        """Play so many trials, or fewer where nothing new is left to try.

        Args:
            trials: different parameters to play, trial 0 included, >= 1.
            on_done: called with the number of trials played.
        """
        from scipy.optimize import differential_evolution

        base = self.space.point(self.space.base)
        first = np.random.default_rng(self._seed).random((_POPULATION, len(base)))
        first[0] = base
        idle = 0

        def generation(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
            """Scores of the columns of ``points``."""
            nonlocal idle
            asked = [self._params(point) for point in points.T]
            known = {self._key(p): p for p in asked if p is not None}
            new = [p for key, p in known.items() if key not in self._trials]
            left = trials - self.played
            self._play(new[:left], on_done)
            idle = 0 if new else idle + 1
            if self.played >= trials or idle > _IDLE_GENERATIONS:
                raise _Spent
            return np.array([self._score(params) for params in asked])

        self._play([self.space.base], on_done)
        try:
            differential_evolution(
                generation,
                [(0.0, 1.0)] * len(base),
                init=first,
                rng=self._seed,
                maxiter=trials * _IDLE_GENERATIONS,
                tol=0.0,
                polish=False,  # there is no gradient to follow
                vectorized=True,
                updating="deferred",
            )
        except _Spent:
            return

    def outcomes(self, params: Any, cases: Sequence[Case]) -> list[Outcome]:
        """How parameters fare in other cases."""
        choice = self._with(params)
        items = [(case, choice) for case in cases]
        return [outcome(found) for found in each(played, items, self._workers)]

    def _params(self, point: Sequence[float]) -> Any:
        try:
            return self.space.params(point)
        except ConfigError:
            return None

    def _key(self, params: Any) -> str:
        return json.dumps(self.space.values(params))

    def _score(self, params: Any) -> float:
        return _CONTRADICTION if params is None else self._trials[self._key(params)].score

    def _with(self, params: Any) -> PolicyChoice:
        return PolicyChoice(self._choice.name, self._choice.kind, params)

    def _play(self, some: Sequence[Any], on_done: Callable[[int], None] | None) -> None:
        items = [(case, self._with(params)) for params in some for case in self._cases]
        keys = [f"{case.name} {self._key(params)}" for params in some for case in self._cases]
        found = each(played, items, self._workers, keys=keys, journal=self._journal)
        for params in some:
            outcomes = tuple(outcome(next(found)) for _ in self._cases)
            base = outcomes if self.base is None else self.base.outcomes
            kept = all(self._goal.kept(o) for o in outcomes)
            points = score(outcomes, base, self._goal)
            self._trials[self._key(params)] = Trial(params, outcomes, points, kept)
            if on_done is not None:
                on_done(self.played)
