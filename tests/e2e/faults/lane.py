"""One deployment with everything around it, and an ``autoscaler run`` of its own.

The API server, what answers like Prometheus, the operator's stand-in and the program are real; the
engine is scripted. The program has a door of its own to the API server: what goes wrong there does
not concern the operator.
"""

import json
import re
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from autoscaler.clock import ScaledClock, SystemClock
from autoscaler.cluster.connection import Access, Connection
from autoscaler.emulator.operator import Operator
from autoscaler.errors import TargetError
from autoscaler.testing_apiserver import ADMIN, ApiServer, Store, User
from autoscaler.testing_apiserver._http import Request
from tests.adapters.kubernetes.worlds import CRD, NAME, NAMESPACE, deployment
from tests.e2e.faults.engine import Engine
from tests.e2e.faults.front import SCRAPE_S, Front
from tests.e2e.objects.worlds import OUR_CRD
from tests.e2e.run.conftest import Process, World

TICK_S = 0.6
TIMEOUT_S = 0.5
WINDOW_S = 2.0
SETTLE_S = WINDOW_S + 2.5
"""Longer than the window: the last thing seen before a fault is that nobody waits."""

HOLD_S = 2.0
"""How long an unclear write is waited for."""

PLAIN, CLOCKED, WATCHING = "plain", "clocked", "watching"
LOW, HIGH = 2, 3
SPEED = 50.0
PASS_S = 0.15
LIMIT_S = 40.0
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
POLICY = """
kind: threshold
up_for_s: 0.5
down_for_s: 0.5
idle_for_s: 0.5
remember_s: 0
"""
GUARDS = {
    "min_width": LOW,
    "max_width": HIGH,
    "cooldown_down_s": 0,
    "scale_down_window_s": 0,
    "settle_s": SETTLE_S,
    "settle_holds_growth": False,
    "max_reversals_per_hour": None,
    "override_hold_s": 0,
    "fight_after": None,
    "require_capacity": "never",
    "allow_shrink_attempt": True,
}
Entry = dict[str, Any]


class _Requests(list[Request]):
    """Remembers when each one came."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__()
        self.clock = clock
        self.at_s: list[float] = []

    def append(self, request: Request) -> None:
        self.at_s.append(self.clock.now_s())
        super().append(request)


@dataclass(frozen=True)
class Write:
    """A width that the program asked for, whatever became of it."""

    at_s: float
    expected: int
    width: int
    looked: bool
    """whether the deployment was read since the write before"""


@dataclass
class Lane:
    """What a fault can be done to.

    Args:
        folder: for its files; empty.
        kind_of_lane: PLAIN; CLOCKED, whose wall clock can be set; WATCHING, which follows objects.
    """

    folder: Path
    kind_of_lane: str = PLAIN
    process: Process | None = None
    stopped: bool = False
    saved: Path | None = None
    clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.world = World(self.folder)
        self.engine = Engine(LOW)
        self.front = Front(self.engine)
        self.store = Store(SystemClock())
        self.requests = _Requests(self.clock)
        self.door = self._open(0)
        self.inside = ApiServer(store=self.store)
        self.inside.install(_shrinking(CRD, self.folder / "crd.yaml"))
        self.inside.install(OUR_CRD)
        self.kind = self.store.resource("worker.gpustack.ai/v1", "modeldeployments")
        self.store.create(self.kind, NAMESPACE, deployment(LOW))
        self.token = self.folder / "token"
        self.grant("first")
        self.token.write_text("first", encoding="utf-8")
        file = str(self.token)
        self.kubeconfig = self.door.kubeconfig(self.folder / "kubeconfig", token="", tokenFile=file)
        connection = Connection(Access(self.inside.kubeconfig(self.folder / "operator")))
        self._connection = connection
        self.operating = threading.Lock()
        fast = ScaledClock(SystemClock(), SPEED)
        self.operator = _Operator(connection, NAMESPACE, self.engine, fast)
        self.operator.run_once()
        self._over = threading.Event()
        self._operator = threading.Thread(target=self._operate, daemon=True)
        self._operator.start()
        self.wall = self.folder / "wall"
        self.wall.write_text("+0", encoding="utf-8")
        self._configure()

    def _operate(self) -> None:
        while not self._over.wait(PASS_S):
            with self.operating, suppress(TargetError):
                self.operator.run_once()

    def _open(self, port: int) -> ApiServer:
        door = ApiServer(port=port, store=self.store)
        door.requests = self.requests
        return door

    def _configure(self) -> None:
        (self.folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
        self.world.settings["targets"] = [
            {
                "name": "chat",
                "source": {
                    "kind": "prometheus",
                    "url": self.front.url,
                    "labels": {"namespace": "bench"},
                    "scrape_interval_s": SCRAPE_S,
                    "timeout_s": TIMEOUT_S,
                },
                "target": {
                    "kind": "gpustack",
                    "namespace": NAMESPACE,
                    "name": NAME,
                    "kubeconfig": self.kubeconfig,
                    "timeout_s": TIMEOUT_S,
                    "allow_shrink": True,
                },
                "slo": {"ttft_p95_s": 5, "window_s": WINDOW_S},
                "policy": "policy.yaml",
                "guards": GUARDS,
                "convergence": {"ambiguous_hold_s": HOLD_S, "timeout_s": 120},
            }
        ]
        changes: dict[str, Any] = {}
        if self.kind_of_lane == WATCHING:
            changes["objects"] = {
                "enabled": True,
                "namespaces": [NAMESPACE],
                "kubeconfig": self.kubeconfig,
                "timeout_s": TIMEOUT_S,
            }
        self.world.save(tick_s=TICK_S, events={"enabled": False}, **changes)

    def close(self) -> None:
        for process in self.world.processes:
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
            process.close()
        self._over.set()
        self._operator.join(10)
        self._connection.close()
        self.door.close()
        self.inside.close()
        self.front.close()

    # The program.

    def start(self) -> None:
        env = {}
        if self.kind_of_lane == CLOCKED:
            env = {
                "LD_PRELOAD": str(FAKETIME[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self.wall),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        self.process = self.world.start(env=env)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.process.send_signal(number)
        return self.process.process.wait(10)

    def page(self) -> dict[str, float]:
        """The program's series; empty: it does not answer."""
        assert self.process is not None
        if self.stopped or self.process.process.poll() is not None:
            return {}
        try:
            text = self.process.page("/metrics").text
        except requests.RequestException:
            return {}
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def healthy(self) -> bool:
        assert self.process is not None
        with suppress(requests.RequestException):
            return self.process.page("/healthz").status_code == 200
        return False

    def lines(self) -> list[str]:
        """The log of every process so far."""
        return [line for process in self.world.processes for line in list(process.lines)]

    def entries(self) -> list[Entry]:
        """The decision log, as far as its lines are whole."""
        path = self.world.log
        if path.is_symlink() or not path.exists():
            return []
        found = []
        for line in path.read_text("utf-8").split("\n")[:-1]:
            with suppress(ValueError):  # cut off by a kill
                found.append(json.loads(line))
        return found

    # The world.

    @property
    def width(self) -> int:
        found = self.store.get(self.kind, NAMESPACE, NAME)
        return int(found["spec"]["roles"][0]["elasticEp"]["width"])

    def writes(self, first: int = 0) -> list[Write]:
        """Widths that were asked for, from a request on."""
        found, looked = [], True
        for request, at_s in list(zip(self.requests, self.requests.at_s, strict=False))[first:]:
            if not request.path.endswith(f"modeldeployments/{NAME}"):
                continue
            if request.method == "GET":
                looked = True
            elif request.method == "PATCH" and isinstance(patch := json.loads(request.body), list):
                found.append(Write(at_s, patch[1]["value"], patch[-1]["value"], looked))
                looked = False
        return found

    def restart_door(self) -> None:
        self.door.close()
        self.reopen_door()

    def reopen_door(self) -> None:
        before = self.door
        self.door = self._open(before.port)
        self.door.tokens, self.door.faults = before.tokens, before.faults

    def grant(self, token: str, user: User = ADMIN) -> None:
        self.door.tokens = {token: user}

    def await_true(self, what: Any, why: str, limit_s: float = LIMIT_S) -> None:
        """Wait for a state, not for a time: machines are slow at times."""
        until_s = self.clock.now_s() + limit_s
        while not what():
            assert self.clock.now_s() < until_s, f"not in {limit_s:g} s: {why}; {self.last()}"
            self.clock.sleep(0.05)

    def last(self) -> str:
        entries = self.entries()
        if not entries:
            return "no tick"
        decision = entries[-1]["decision"]
        return f"last tick: {decision['code']}: {decision['reason']} (spec {self.width})"

    def steady(self, width: int) -> bool:
        """Whether the last tick knew everything, and this width served."""
        entries = self.entries()
        if not entries or self.width != width or not well(entries[-1]):
            return False
        seen = entries[-1]["observation"]
        return bool(seen["width"]["effective"] == width and seen["resize"] is None)

    def quiet(self) -> bool:
        """Whether the last tick saw that nobody waits."""
        seen = self.entries()[-1]["observation"]
        values = [seen and seen["metrics"][n].get("value") for n in ("queue_depth", "ttft_p95_s")]
        return values[0] == 0 and values[1] is not None and values[1] < 1

    def rest(self) -> None:
        """Two ranks, few requests, and everything known."""
        self.front.burning = False
        self.engine.held = False
        self.await_true(lambda: self.steady(LOW), "rest")


class _Operator(Operator):
    """One that also takes a smaller width: nobody has to join for it."""

    def _members(self, uid: str, present: int, target: int) -> tuple[dict[str, int | None], str]:
        if target < present:
            return dict.fromkeys(("admitted", "allocated", "ray"), target), ""
        return super()._members(uid, present, target)


def _shrinking(crd: Path, to: Path) -> Path:
    """The definition of an operator that takes a smaller width, too: no release does so far."""
    lines = crd.read_text("utf-8").splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "x-kubernetes-validations" in line)
    to.write_text("".join(lines[:at] + lines[at + 3 :]), encoding="utf-8")
    return to


def well(entry: Entry) -> bool:
    """Whether a tick could read all that a decision needs, and no write was in doubt."""
    seen = entry["observation"]
    if not seen or (entry["outcome"] and entry["outcome"]["result"] != "applied"):
        return False
    signals = [seen["metrics"][name] for name in ("queue_depth", "ttft_p95_s")]
    doubt = {"ambiguous", "not_visible", "not_applied", "unproven", "refused", "forbidden"}
    codes = {stage["code"] for stage in entry["trail"]} | {entry["decision"]["code"]}
    return all("value" in one for one in signals) and not codes & doubt


def rises(before: dict[str, float], after: dict[str, float], pattern: str) -> bool:
    """Whether a series of this pattern is larger than it was."""
    wanted = re.compile(pattern)
    return any(
        value > before.get(name, 0.0) for name, value in after.items() if wanted.search(name)
    )
