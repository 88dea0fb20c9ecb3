"""Which faults are on, and when: seeded, so that a number names a whole history."""

import numpy as np

SPELLS = {
    # of what is measured
    "signals_missing": 12,
    "signals_nan": 8,
    "signals_stale": 12,
    "signals_silent": 8,
    "signals_top_bucket": 8,
    "one_signal_missing": 20,
    "source_down": 10,
    # of reading the deployment
    "target_down": 8,
    "width_unproven": 20,
    "read_lags": 6,
    # of writing it
    "conflict": 20,
    "refused": 60,
    "forbidden": 20,
    "ambiguous_lost": 80,
    "ambiguous_applied": 80,
    "ambiguous_late": 80,
    "write_raises": 80,
    "memory_unkept": 40,
    "memory_conflict": 15,
    # of the resize itself
    "resizes_fail": 60,
    "resizes_refused": 60,
    "resizes_stuck": 60,
    # of others
    "rival": 200,
    "paused": 60,
    "pause_configured": 60,
    "less_possible": 60,
    "no_gpus": 60,
}
"""Faults that last, and how many ticks at most."""

STROKES = (
    "person",
    "switched_off",
    "replaced",
    "rank_lost",
    "rank_lost",
    "restart",
    "restart",
    "killed_writing",
    "killed_writing",
)
"""Faults that happen at once."""


class Luck:
    """Uniform numbers from one seed, drawn in bulk: a single draw costs more than a tick may."""

    def __init__(self, seed):
        self._draw = np.random.default_rng(seed)
        self._left = []

    def share(self):
        """From 0 up to 1."""
        if not self._left:
            self._left = self._draw.random(8192).tolist()
        return self._left.pop()

    def chance(self, probability):
        return self.share() < probability

    def whole(self, low, high):
        """Both ends included."""
        return low + int(self.share() * (high - low + 1))

    def one_of(self, choices):
        return choices[int(self.share() * len(choices))]


class Faults:
    """The weather: spells of faults, several at once, and calm between them."""

    def __init__(self, luck, *, restarts=True):
        self.counts = dict.fromkeys((*SPELLS, *STROKES), 0)
        self.restarts = restarts
        self._luck = luck
        self._until = dict.fromkeys(SPELLS, 0)
        self._calm_until = 0
        self._tick = 0

    def on(self, name):
        return self._until[name] > self._tick

    def end(self, name):
        self._until[name] = 0

    def next_tick(self):
        """Go on by a tick; the stroke that falls in it, None: none."""
        self._tick += 1
        luck = self._luck
        if self._tick < self._calm_until:
            return None
        if luck.chance(0.002):
            self.calm(luck.whole(200, 600))
            return None
        if luck.chance(0.04):
            name = luck.one_of(tuple(SPELLS))
            self.counts[name] += 1
            self._until[name] = self._tick + luck.whole(1, SPELLS[name])
        if not luck.chance(0.006):
            return None
        name = luck.one_of(STROKES)
        if not self.restarts and name in ("restart", "killed_writing"):
            return None
        self.counts[name] += 1
        return name

    def calm(self, ticks):
        """No fault for so many ticks, and those that are on end."""
        self._until = dict.fromkeys(SPELLS, 0)
        self._calm_until = self._tick + ticks
