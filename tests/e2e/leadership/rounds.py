"""Rounds of kills and freezes at random instants, and what the server's own log says of them."""

import itertools
import signal
import threading
from pathlib import Path

import numpy as np

from .worlds import Cluster, Replica


class Game:
    """One lease, three processes at a time, one of which is hit in each round.

    Args:
        folder: for its files.
        seed: of what happens when.
    """

    def __init__(self, folder, seed):
        self.cluster = Cluster(Path(folder), lease_duration_s=1)
        self.random = np.random.default_rng(seed)
        self.names = (f"r{i}" for i in itertools.count())
        self.running = {}
        self.takeovers_s = {"kill": [], "freeze": []}
        self.ends = []
        self.problems = []
        for _ in range(3):
            self.start()

    def start(self):
        name = next(self.names)
        self.running[name] = Replica(self.cluster, name)

    def play(self, rounds):
        """Play; afterwards ``problems`` is empty, or it says what went wrong."""
        for number in range(rounds):
            self.replace_ended()
            leader = self.leading()
            self.pause(0.8)
            deed = self.random.choice(["kill", "freeze", "blink"])
            if deed == "kill":
                self.hit(leader, signal.SIGKILL, number)
            elif deed == "freeze":
                self.freeze(leader, number)
            else:
                self.blink(leader)
        strays = self.cluster.strays()
        self.problems += [f"{who} wrote while {held!r} held the lease" for who, held in strays]

    def leading(self, but=""):
        """Wait until somebody (else) leads and has written; its name."""
        cluster = self.cluster

        def somebody():
            found[0] = cluster.holder
            alive = found[0] in self.running and not self.running[found[0]].ended
            return found[0] != but and alive and bool(cluster.writes(found[0]))

        found = [""]
        cluster.await_true(somebody)
        return found[0]

    def hit(self, name, number, at):
        """Kill or stop it, and see who takes over and when."""
        if self.running[name].ended:
            return
        self.running[name].signal(number)
        took_s = self.cluster.await_true(lambda: self.cluster.holder not in ("", name))
        deed = "kill" if number == signal.SIGKILL else "freeze"
        self.takeovers_s[deed].append(took_s)
        if took_s > 2 * self.cluster.lease_s:
            self.problems.append(f"round {at}: {deed}: taken over after {took_s:.2f} s")

    def freeze(self, name, at):
        """Stop it until somebody else has written, and go on."""
        replica = self.running[name]
        if self.random.random() < 0.5:
            self.cluster.await_write_of(replica)
        self.hit(name, signal.SIGSTOP, at)
        self.leading(but=name)
        self.pause(0.3)
        before = len(self.cluster.asked(name))
        if not replica.ended:
            replica.signal(signal.SIGCONT)
        self.ends.append(replica.wait(5))
        if len(self.cluster.asked(name)) > before:
            self.problems.append(f"round {at}: {name} went on after the freeze")

    def blink(self, name):
        """Stop it for less than it may be, or for a little more, and go on."""
        replica = self.running[name]
        if not replica.ended:
            replica.signal(signal.SIGSTOP)
            self.pause(1.1)
            replica.signal(signal.SIGCONT)

    def pause(self, most_s):
        threading.Event().wait(self.random.uniform(0.0, most_s))

    def replace_ended(self):
        for name in [name for name, replica in self.running.items() if replica.ended]:
            del self.running[name]
            self.start()

    def close(self):
        for replica in self.running.values():
            replica.close()
        self.cluster.close()
