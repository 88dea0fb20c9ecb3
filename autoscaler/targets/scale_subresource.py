"""Whatever has a ``/scale`` subresource: Deployment, StatefulSet, LeaderWorkerSet, Dynamo.

The width is the number of replicas. Writes ``/scale`` on condition of the object's version, and
nothing else; believes the kind's own readiness, never the number in the spec.
"""

from dataclasses import dataclass, replace

from autoscaler.cluster.answers import became, outcome, unwritten
from autoscaler.cluster.capacity import Capacity, Room
from autoscaler.cluster.connection import MERGE_PATCH, Access, Connection, path, require_name
from autoscaler.cluster.pods import Shape
from autoscaler.errors import ConfigError, TargetError
from autoscaler.findings import Finding
from autoscaler.model import (
    Capabilities,
    Layer,
    ObjectReference,
    SetOutcome,
    SetResult,
    Tristate,
    WidthStatus,
)
from autoscaler.parameters import require_number, require_whole
from autoscaler.targets import _fields, _pods, _preflight, _rivals
from autoscaler.targets._annotations import annotations
from autoscaler.targets._owner import owner
from autoscaler.targets._replicas import (
    KINDS,
    Object,
    Serving,
    component,
    desired,
    ready_in_graph,
)

_MANAGED = ("f:spec", "f:replicas")


@dataclass(frozen=True, slots=True)
class Params:
    """Which object, and what one of its replicas is.

    Args:
        namespace: of the object.
        name: of the object.
        workload: deployment, statefulset, leaderworkerset (a replica is a group of Pods),
            dynamo_scaling_adapter, or dynamo_engine_group (a replica is a rank).
        min_width: fewest replicas, >= 0.
        max_width: most replicas, >= min_width.
        gpus_per_width: GPUs of one replica, >= 1. There is no default to guess from.
        can_shrink: whether replicas may be taken away; None: yes, except from an engine group,
            whose replicas are the ranks of one engine: taking away rank 0 was an outage of 160 s.
        pause_s: interruption of service by one resize, s; None: unknown.
        kubeconfig: path of a kubeconfig; None: service account, or the default kubeconfig.
        context: of the kubeconfig; None: the current one.
        timeout_s: total deadline of one reading or write, s, > 0 and below the tick.
        api_version: group and version; None: the one that the kind usually has.
        gpu_resource: name of the accelerator in the Pods' requests, such as ``nvidia.com/gpu``;
            None: the one of which a Pod requests its share of ``gpus_per_width``.
    """

    namespace: str
    name: str
    workload: str
    max_width: int
    gpus_per_width: int
    min_width: int = 1
    can_shrink: bool | None = None
    pause_s: float | None = None
    kubeconfig: str | None = None
    context: str | None = None
    timeout_s: float = 4.0
    api_version: str | None = None
    gpu_resource: str | None = None

    def __post_init__(self) -> None:
        require_name("namespace", self.namespace)
        require_name("name", self.name)
        require_whole("min_width", self.min_width, 0)
        require_whole("max_width", self.max_width, max(self.min_width, 1))
        require_whole("gpus_per_width", self.gpus_per_width, 1)
        require_number("pause_s", self.pause_s, 0)
        require_number("timeout_s", self.timeout_s, 0, above=True)
        if self.workload not in KINDS:
            known = ", ".join(KINDS)
            raise ConfigError(f"workload: must be one of {known}; got {self.workload!r}")


class ScaleSubresource:
    """Steers the replicas of one object.

    Args:
        params: which one.
        api: where it is.

    Attributes:
        reference: the object, as Events name it.
    """

    def __init__(self, params: Params, api: Connection) -> None:
        self.params = params
        self._api = api
        self._kind = KINDS[params.workload]
        self._api_version = params.api_version or self._kind.api_version
        self._path = self._at("")
        self._where = f"{params.workload} {params.namespace}/{params.name}"
        self._object: Object = {}
        self._capacity: Capacity | None = None
        if params.workload in _pods.TEMPLATES:
            self._capacity = Capacity(api, params.namespace, self._replica, queued=False)
        self.reference = ObjectReference(
            self._api_version, self._kind.kind, params.namespace, params.name
        )

    @property
    def access(self) -> Access:
        """How the API server is reached."""
        return self._api.access

    def read(self) -> WidthStatus:
        """Replicas wanted, on the way, and serving.

        Raises:
            TargetError: unreadable, or without a field that should be there (``field_missing``).
        """
        until_s = self._api.deadline_s()
        obj = self._api.get(self._path, until_s)
        generation = _fields.whole(self._where, obj, "metadata", "generation")
        seen = _fields.lookup(obj, "status", "observedGeneration")
        observed = seen if type(seen) is int else None
        wanted = desired(self._where, obj)
        if not self._kind.observes:
            generation, observed, serving = self._graph(obj, wanted, until_s)
        elif observed is None:
            serving = Serving(None, (), detail="its controller has not looked at it yet")
        else:
            serving = self._kind.serving(self._where, obj)
        uid = _fields.text(self._where, obj, "metadata", "uid")
        self.reference = replace(self.reference, uid=uid)
        if self._capacity is not None:
            self._object = obj
            self._capacity.tick(until_s)
        return WidthStatus(
            wanted,
            serving.effective,
            stable=serving.stable,
            generation=generation,
            # Replicas are counted for the newest spec seen, so that newer covers ours.
            observed_generation=None if observed is None else min(observed, generation),
            incarnation=uid,
            layers=serving.layers,
            failure=serving.failure,
            resizing=serving.rolling or None,
            detail=serving.detail,
            writer=owner(obj, _MANAGED),
            pause=annotations(self._where, obj).pause,
        )

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Write the replicas, if they are the expected ones and nobody touches the object."""
        until_s = self._api.deadline_s()
        try:
            scale = self._api.get(self._at("scale"), until_s)
            # A count of 0 is left out of a Scale.
            present = _fields.count(self._where, scale, "spec", "replicas")
            version = _fields.text(self._where, scale, "metadata", "resourceVersion")
        except TargetError as error:
            return unwritten(error)
        if present != expected:
            return SetOutcome(SetResult.CONFLICT, detail=f"{self._where}: the width is {present}")
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": width}}

        def write() -> Object:
            written = self._api.patch(self._at("scale"), body, MERGE_PATCH, until_s)
            return became(written, width, "spec", "replicas")

        return replace(outcome(write), generation=None)  # of the object, and a Scale has none

    def rehearse(self, width: int) -> SetOutcome:
        """Have the API server check a write of ``width`` without doing it."""
        body = {"spec": {"replicas": width}}
        return outcome(lambda: self._api.patch(self._at("scale"), body, MERGE_PATCH, dry_run=True))

    def findings(self) -> list[Finding]:
        """What a check of this target says; changes nothing.

        Raises:
            TargetError: the object is unreadable.
        """
        params = self.params
        obj = self._api.get(self._path)
        width = min(desired(self._where, obj) + 1, params.max_width)
        what = f"{self._kind.plural}/scale of {self._api_version.partition('/')[0]}"
        grant = f"patch on {what} in namespace {params.namespace}"
        kind = _fields.text(self._where, obj, "kind")
        return [
            _preflight.rehearsed(self.rehearse(width), width, grant),
            *_rivals.last_writer(owner(obj, _MANAGED)),
            *_rivals.of_replicas(self._api, params.namespace, kind, params.name),
        ]

    def capabilities(self) -> Capabilities:
        """As configured."""
        params = self.params
        safe = params.can_shrink
        if safe is None:
            safe = params.workload != "dynamo_engine_group"
        room = Room(None, "") if self._capacity is None else self._capacity.room
        return Capabilities(
            params.min_width,
            params.max_width,
            can_shrink=Tristate.YES if safe else Tristate.NO,
            gpus_per_width=params.gpus_per_width,
            pause_s=params.pause_s,
            free_gpus=room.gpus,
            capacity=room.detail,
        )

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _replica(self, _until_s: float) -> Shape:
        """What one more replica asks of the cluster."""
        params = self.params
        gpus = params.gpus_per_width
        return _pods.of_template(params.workload, self._object, gpus, params.gpu_resource)

    def _graph(self, adapter: Object, wanted: int, until_s: float) -> tuple[int, int, Serving]:
        """Generations and readiness of the Dynamo graph deployment behind an adapter."""
        graph_name, name = component(adapter)
        where = f"graph deployment {self.params.namespace}/{graph_name}"
        at = path(self._api_version, self.params.namespace, "dynamographdeployments", graph_name)
        graph = self._api.get(at, until_s)
        ready = ready_in_graph(where, graph, name)
        passed = self._kind.serving(self._where, adapter)
        layers = (*passed.layers, Layer("ready", ready))
        effective = None if ready == 0 and wanted > 0 else ready
        state = _fields.lookup(graph, "status", "state")
        generation = _fields.whole(where, graph, "metadata", "generation")
        observed = _fields.whole(where, graph, "status", "observedGeneration")
        return generation, observed, Serving(effective, layers, detail=f"graph state {state}")

    def _at(self, subresource: str) -> str:
        namespace, name = self.params.namespace, self.params.name
        return path(self._api_version, namespace, self._kind.plural, name, subresource)


def build(params: Params) -> ScaleSubresource:
    """The target.

    Raises:
        ConfigError: no usable access to the API server.
    """
    access = Access(params.kubeconfig, params.context, params.timeout_s)
    return ScaleSubresource(params, Connection(access))
