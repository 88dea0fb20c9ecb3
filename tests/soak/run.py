"""The loop, its controller and its keeper in a faulty world, tick by tick."""

import json
import math
from collections import Counter, deque
from dataclasses import fields, is_dataclass

from autoscaler import policy_file
from autoscaler.controller import Controller
from autoscaler.convergence import Convergence
from autoscaler.convergence import Params as Patience
from autoscaler.decisions import Entry, decode, encode
from autoscaler.guards import Guards, Params
from autoscaler.keeping import Keeper
from autoscaler.loop import ControlLoop, unavailable
from autoscaler.model import Proposal, Slo
from autoscaler.ports import PolicyContext

from .faults import Faults, Luck
from .ledger import Broken, Ledger
from .world import TICK_S, CarryingTarget, Clock, Killed, Place, Target, World

PARAMS = Params(
    min_width=2,
    max_width=14,
    max_gpus=26,
    max_step_up=6,
    cooldown_up_s=10.0,
    max_reversals_per_hour=6,
    override_hold_s=300.0,
    fight_window_s=600.0,
)
PATIENCE = Patience(timeout_s=400.0)
LOOKED_AT = 97
"""Every so many ticks the decision is written down as in a log, and what is kept is measured."""
RECOVERY = 1500
"""Ticks within which a calm world has to be where its load wants it."""
ODD = (math.nan, math.inf, -math.inf, 10**25, -(10**25), 3.5)


class Restless:
    """The threshold policy for most of the time, and for the rest one that wants anything."""

    def __init__(self, luck, inner):
        self.inner, self.wild = inner, True
        self._luck, self._left, self._wish = luck, 0, None

    def propose(self, obs):
        proposal = self.inner.propose(obs)
        if not self.wild:
            return proposal
        luck = self._luck
        self._left -= 1
        if self._left < 0:
            self._left = luck.whole(3, 60)
            self._wish = None
            if luck.chance(0.4):
                self._wish = luck.one_of(ODD) if luck.chance(0.1) else luck.whole(-2, 20)
        return proposal if self._wish is None else Proposal(self._wish, "restless", "chance")

    def state(self):
        return self.inner.state()


class Source:
    """The engine's metrics, noted by the ledger as the loop gets them."""

    def __init__(self, world, ledger):
        self._world, self._ledger = world, ledger

    def read(self):
        self._ledger.measured(unavailable(30.0, ""))
        metrics = self._world.metrics()
        self._ledger.measured(metrics)
        return metrics


class Log:
    """Counts what is decided; now and then writes it down and reads it back."""

    def __init__(self):
        self.codes = Counter()

    def record(self, decision, obs, outcome, policy_state, shadows=None):
        self.codes[decision.code] += 1
        if decision.tick % LOOKED_AT == 0:
            entry = Entry(decision, obs, outcome, policy_state, {}, {})
            read = decode(json.loads(json.dumps(encode(entry), allow_nan=False)))
            if read.obs != obs:
                raise Broken(f"read back another observation: {read.obs} for {obs}")


class Soak:
    """One world and the processes that steer it, one after the other.

    Other ``params`` and ``patience`` are the controller's alone, not the ledger's: what it then
    does wrong has to be noticed.
    """

    def __init__(self, seed, *, lattice, carrier, params=PARAMS, patience=PATIENCE):
        self.params, self.patience = params, patience
        self.luck = Luck(seed)
        self.faults = Faults(self.luck)
        self.world = World(self.luck, self.faults, lattice=lattice, carrier=carrier)
        self.ledger = Ledger(self.world, PARAMS, PATIENCE)
        self.log = Log()
        self.kept = []
        self.ticks = 0
        self._off_until = None
        self._start()

    def _start(self):
        """A process begins."""
        world, ledger = self.world, self.ledger
        clock = Clock(world, self.luck.whole(-(10**6), 10**6))
        self.target = (CarryingTarget if world.carrier else Target)(world, ledger)
        keeper = Keeper(self.target if world.carrier else Place(self.target), clock.epoch_s)
        self.target.keeper = keeper
        inner = policy_file.load("threshold").build(PolicyContext(Slo(), TICK_S))
        self.policy = Restless(self.luck, inner)
        self.controller = Controller(self.policy, Guards(self.params), Convergence(self.patience))
        self.loop = ControlLoop(
            Source(world, ledger),
            self.target,
            self.controller,
            clock,
            self.log,
            Slo(),
            TICK_S,
            keeper=keeper,
        )
        ledger.began()

    def run(self, ticks):
        """Let so many ticks pass."""
        for _ in range(ticks):
            self.world.advance()
            self._strike(self.faults.next_tick())
            self._switches()
            try:
                self.loop.tick()
            except Killed:
                self._start()
            self.ticks += 1
            if self.ticks % LOOKED_AT == 0:
                self.kept.append(kept(self.controller) + kept(self.loop.keeper, self.target))

    def _strike(self, stroke):
        world, luck = self.world, self.luck
        if stroke == "person":
            world.rival(luck.whole(1, 16))
        elif stroke == "switched_off":
            world.rival(0)
            self._off_until = self.ticks + luck.whole(5, 100)
        elif stroke == "replaced":
            world.replaced()
        elif stroke == "rank_lost":
            world.rank_lost()
        elif stroke == "restart":
            self._start()
        elif stroke == "killed_writing":
            self.target.killing = True
        if self._off_until is not None and self.ticks >= self._off_until:
            self._off_until = None
            if world.desired == 0:
                world.rival(4)
        ours = world.writer == "autoscaler" and world.desired != 4
        if ours and world.operation is None and self.faults.on("rival") and luck.chance(0.3):
            world.rival(4)  # what the other one's repository says

    def _switches(self):
        world, luck = self.world, self.luck
        choices = ("all", "up", "down")
        if not self.faults.on("paused"):
            world.pause = None
        elif world.pause is None:
            world.pause = luck.one_of((*choices, "pls stop"))
        if not self.faults.on("pause_configured"):
            world.configured_pause = None
        elif world.configured_pause is None:
            world.configured_pause = luck.one_of(choices)
        self.controller.pause = world.configured_pause

    def recover(self):
        """All faults end: the width has to follow the load again, up and down."""
        self.policy.wild = False
        self.target.killing = False
        for rate_rps, least, most in ((58.0, 12, 13), (0.0, 2, 2)):
            self.world.steady_rps = rate_rps
            self.faults.calm(RECOVERY)
            for _ in range(RECOVERY // 10):
                self.run(10)
                if self.loop.decision.code in ("refused", "shrink_unsupported"):
                    self.world.replaced()  # a refusal stands until something changes
                if least <= (self.world.effective or 0) <= most and self.world.queue == 0:
                    break
            else:
                said = f"{self.world.effective} at {rate_rps} requests/s; {self.loop.decision}"
                raise Broken(f"not recovered within {RECOVERY} ticks: {said}")
        self.world.steady_rps = None
        self.policy.wild = True


def kept(*roots):
    """How many values are reachable from these objects, the world and its dice left out."""
    seen, count, left = set(), 0, deque(roots)
    while left:
        value = left.popleft()
        if id(value) in seen or isinstance(value, World | Ledger | Luck | type):
            continue
        seen.add(id(value))
        count += 1
        if isinstance(value, dict):
            left.extend((*value.keys(), *value.values()))
        elif isinstance(value, list | tuple | set | frozenset | deque):
            left.extend(value)
        elif is_dataclass(value):
            left.extend(getattr(value, f.name) for f in fields(value))
        elif hasattr(value, "__dict__"):
            left.extend(vars(value).values())
    return count


def soak(seed, ticks):
    """Worlds of all four kinds, so many ticks in all; the last quarter of each in one process.

    Returns:
        Counts of everything, and how much was kept in the first and the last of each quarter.
    """
    counts, codes, faults, most_kept = Counter(), Counter(), Counter(), []
    for number, (lattice, carrier) in enumerate(
        ((True, True), (True, False), (False, True), (False, False))
    ):
        world = Soak(seed * 4 + number, lattice=lattice, carrier=carrier)
        share = ticks // 4
        world.run(share * 3 // 4)
        world.recover()
        world.faults.restarts = False
        half = len(world.kept)
        world.run(share // 4)
        world.recover()
        counts.update(world.ledger.counts)
        counts["ticks"] += world.ticks
        codes.update(world.log.codes)
        faults.update(world.faults.counts)
        most_kept.append((max(world.kept[:half]), max(world.kept[half:])))
    return counts, codes, faults, most_kept
