"""A stand-in for GPUStack's operator: steers an engine by the ModelDeployments of an API server.

Does what the operator's documentation and source say of elastic widths, no more: it observes in
layers, sends one command at a time, retries definite refusals and never ambiguous ones, keeps
``phase`` at ``Ready`` throughout, and has no deadline of its own. Its memory is in the cluster: a
restarted stand-in goes on from the two documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from autoscaler.cluster.connection import Connection
from autoscaler.emulator._cluster import Cluster, observation_name, operation_name
from autoscaler.emulator._documents import (
    FINAL,
    SENT,
    WAITING,
    Json,
    Observation,
    Record,
    carried_over,
    condition,
    in_flight,
)
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import Clock

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_ATTEMPTS = 5
_BACKOFF_S, _BACKOFF_MAX_S = 15.0, 240.0
_REFUSALS = {400: "invalid", 503: "reconfiguring"}  # every other definite one: native failure


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine said to a command.

    Args:
        status: HTTP status; None: none came (lost, timed out, unreadable).
        message: for people.
    """

    status: int | None
    message: str = ""

    @property
    def refused(self) -> bool:
        """Whether it certainly did not happen."""
        return self.status is not None and (self.status in (400, 408) or self.status >= 500)


class Engine(Protocol):
    """What the operator needs of the engine."""

    def scale(self, width: int) -> Answer:
        """Ask for a width. May come back before the resize is over; ``width`` tells when."""
        ...

    def width(self) -> int | None:
        """The width proven by a completion on every rank; None: not proven now."""
        ...

    def scaling(self) -> bool:
        """Whether it says that a resize is going on."""
        ...

    def boot(self, width: int) -> None:
        """A new instance starts at this width."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """How long members take, from the first sight of a new width. As recorded: 5, 8 and 13 s.

    Args:
        admitted_s, allocated_s, ray_s: until new members reach the layer, s, >= 0, ascending.
        capacity: members that the cluster has room for, >= 2.
    """

    admitted_s: float = 5.0
    allocated_s: float = 8.0
    ray_s: float = 13.0
    capacity: int = 64

    def __post_init__(self) -> None:
        require_number("admitted_s", self.admitted_s, 0)
        require_number("allocated_s", self.allocated_s, self.admitted_s)
        require_number("ray_s", self.ray_s, self.allocated_s)
        require_whole("capacity", self.capacity, 2)


class Operator:
    """Reconciles the elastic ModelDeployments of one namespace.

    Args:
        api: the API server.
        namespace: where to look.
        engine: the one engine behind all of them (tests and demos have one deployment).
        clock: time; a manual or a faster one will do.
        pace: how long members take.
        api_version: group and version of the resource.
    """

    def __init__(
        self,
        api: Connection,
        namespace: str,
        engine: Engine,
        clock: Clock,
        pace: Pace | None = None,
        api_version: str = "worker.gpustack.ai/v1",
    ) -> None:
        self.engine = engine
        self.pace = pace or Pace()
        self._cluster = Cluster(api, namespace, api_version)
        self._namespace, self._clock = namespace, clock
        self._start_s = clock.now_s()
        self._masters: dict[str, str] = {}
        self._restarts = 0
        self._seen_s: dict[tuple[str, int], float] = {}  # when a width was first wanted
        self._failed_s: dict[str, float] = {}

    def run_once(self) -> None:
        """One pass over every elastic deployment; the operator makes one about every 15 s.

        Raises:
            TargetError: the API server; the next pass goes on from the documents.
        """
        for deployment in self._cluster.deployments():
            if any(role.get("elasticEp") for role in deployment["spec"]["roles"]):
                self.reconcile(deployment)

    def replace_master(self, deployment: Mapping[str, Any]) -> None:
        """The serving instance dies; a new one boots at the width in the spec."""
        uid = str(deployment["metadata"]["uid"])
        self._restarts += 1
        self._masters.pop(uid, None)
        self._cluster.drop(operation_name(uid))
        self.engine.boot(_width(deployment))

    def reconcile(self, deployment: Json) -> None:
        """One pass: look, act at most once, write down what was seen."""
        uid, generation = deployment["metadata"]["uid"], deployment["metadata"]["generation"]
        desired = _width(deployment)
        before = self._cluster.read(observation_name(uid), "observation.json")
        text = self._cluster.read(operation_name(uid), "operation.json")
        record = None if text is None else Record.parse(text)
        master = self._masters.setdefault(uid, f"{uid[:-4]}{self._restarts:04x}")
        proven = self.engine.width()
        stable = carried_over(before, master) if proven is None else proven
        widths: dict[str, int | None] = {"desired": desired, "effective": proven}
        target = desired if record is None else record.target
        members, reason = self._members(uid, stable or desired, target)
        widths |= members
        if reason.startswith("member"):
            widths = {}  # no running engine identity: nothing was collected
        held = record is not None and record.target != desired
        state, gone = "", False
        if record is None:
            if desired == proven:
                reason = FINAL
            elif not reason and proven is not None:
                record = self._begin(deployment, proven, desired, master)
                state, reason = record.state, SENT
            elif not reason:
                gone = in_flight(before) or _unprovable(deployment)
                reason = "the world is unprovable" if gone else "native ranks are not proven"
        else:
            state, reason = self._go_on(deployment, record, proven, reason)
            if held:
                reason = f"{reason}; the operation holds" if reason else "the operation holds"
        seen = Observation(uid, generation, widths, state, reason, stable, master)
        self._cluster.observe(deployment, seen)
        self._conditions(deployment, record, unprovable=gone)

    def _members(self, uid: str, present: int, target: int) -> tuple[dict[str, int | None], str]:
        """How far new members got, and what is missing: "" when nothing is."""
        if target == present:
            return dict.fromkeys(("admitted", "allocated", "ray"), present), ""
        since_s = self._seen_s.setdefault((uid, target), self._clock.now_s())
        age_s, pace = self._clock.now_s() - since_s, self.pace
        room = max(present, min(target, pace.capacity))
        reached = {
            "admitted": room if age_s >= pace.admitted_s else present,
            "allocated": room if age_s >= pace.allocated_s else present,
            "ray": room if age_s >= pace.ray_s else present,
        }
        if reached["ray"] == target:
            return dict(reached), ""
        if room == target and reached["admitted"] == target:
            return dict(reached), f"member {target - 1} has no running engine identity"
        return dict(reached), WAITING

    def _begin(self, deployment: Json, old: int, target: int, master: str) -> Record:
        """Record first, then send: a crash between them can be told apart."""
        metadata = deployment["metadata"]
        record = Record(
            metadata["name"],
            metadata["uid"],
            self._namespace,
            metadata["generation"],
            old,
            target,
            master,
            members=[f"{metadata['name']}-server-{n}" for n in range(target)],
        )
        self._cluster.save(deployment, record)
        self._send(deployment, record)
        return record

    def _send(self, deployment: Json, record: Record) -> None:
        record.state, record.sent = "CommandSent", True
        self._cluster.save(deployment, record)
        answer = self.engine.scale(record.target)
        if not answer.refused:
            return  # done, or nobody knows: only looking tells
        record.attempts += 1
        kind = _REFUSALS.get(answer.status or 0, "native failure")
        record.error = f"elastic engine /scale_elastic_ep: {kind}: {answer.message}"
        record.failed_at = self._now()
        self._failed_s[record.uid] = self._clock.now_s()
        if record.attempts >= _ATTEMPTS:
            record.state = "Abandoned"
        self._cluster.save(deployment, record)

    def _go_on(
        self, deployment: Json, record: Record, proven: int | None, missing: str
    ) -> tuple[str, str]:
        """One step of the operation on record: its state and reason then."""
        if proven == record.target and not missing:
            self._cluster.drop(operation_name(record.uid))
            record.state = "Completed"
            self._seen_s.pop((record.uid, record.target), None)
            return "Completed", ""
        if record.state == "Abandoned":
            return "Abandoned", f"refused {record.attempts} times: {record.error}"
        wait_s = self._wait_s(record)
        if record.error and not self.engine.scaling():
            if wait_s <= 0 and record.target == _width(deployment):
                self._send(deployment, record)
                wait_s = self._wait_s(record)
            if record.state == "Abandoned":
                return "Abandoned", f"refused {record.attempts} times: {record.error}"
            return record.state, f"{record.error}; next attempt in {max(wait_s, 0):.0f} s"
        record.state = "AwaitingWidth"
        self._cluster.save(deployment, record)
        return "AwaitingWidth", missing or SENT

    def _wait_s(self, record: Record) -> float:
        """Until the next attempt, s; after a restart of the stand-in it begins anew."""
        if not record.attempts:
            return 0.0
        failed_s = self._failed_s.setdefault(record.uid, self._clock.now_s())
        backoff_s = min(_BACKOFF_S * 2.0 ** (record.attempts - 1), _BACKOFF_MAX_S)
        return failed_s + backoff_s - self._clock.now_s()

    def _conditions(self, deployment: Json, record: Record | None, *, unprovable: bool) -> None:
        if unprovable:
            said = ("Unknown", "WorldUnprovable", "the operation record is gone")
        elif record is not None and record.state == "Abandoned":
            text = f"width {record.old} to {record.target}: {record.error}"
            said = ("False", "ScaleRefused", text)
        else:
            said = ("True", "NoRefusal", "")
        status = deployment.get("status") or {}
        had = {c["type"]: c for c in status.get("conditions", ())}
        wanted = []
        for kind, value, reason, message in (
            ("ElasticResize", *said),
            ("RoleKindsReady", "True", "AllKindsReady", ""),
        ):
            old = had.get(kind, {})
            new = condition(kind, value, reason, message, self._now())
            same = all(old.get(key) == new[key] for key in ("status", "reason", "message"))
            wanted.append(old if same else new)
        # The phase says Ready from the first second of a resize to the last.
        if status.get("phase") != "Ready" or status.get("conditions") != wanted:
            self._cluster.set_status(deployment, {"phase": "Ready", "conditions": wanted})

    def _now(self) -> str:
        at = _EPOCH + timedelta(seconds=self._clock.now_s() - self._start_s)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _width(deployment: Mapping[str, Any]) -> int:
    roles = deployment["spec"]["roles"]
    return int(next(r["elasticEp"]["width"] for r in roles if r.get("elasticEp")))


def _unprovable(deployment: Mapping[str, Any]) -> bool:
    """Whether the pass before could not tell what became of an operation."""
    conditions = (deployment.get("status") or {}).get("conditions", ())
    return any(c["reason"] == "WorldUnprovable" for c in conditions)
