"""The replicas of a KServe LLMInferenceService, decoding or prefilling.

Writes ``spec.replicas`` of the service, on condition of its version; proves by the workload that
KServe makes of it, since the service's own ``Ready`` stays true until somebody looks at the change.
"""

from dataclasses import dataclass, replace

from autoscaler.cluster.answers import Gone, became, outcome, unwritten
from autoscaler.cluster.connection import MERGE_PATCH, Access, Connection, Json, path, require_name
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
from autoscaler.targets import _annotations, _fields, _preflight, _rivals
from autoscaler.targets._annotations import Annotations, annotations
from autoscaler.targets._owner import owner
from autoscaler.targets._replicas import KINDS, Object

_CONDITIONS = {
    ("main", "deployment"): "MainWorkloadReady",
    ("main", "leaderworkerset"): "WorkerWorkloadReady",
    ("prefill", "deployment"): "PrefillWorkloadReady",
    ("prefill", "leaderworkerset"): "PrefillWorkerWorkloadReady",
}


@dataclass(frozen=True, slots=True)
class Params:
    """Which service, and the workload behind it.

    Args:
        namespace: of the service.
        name: of the service.
        workload: deployment (one node) or leaderworkerset (several): what KServe makes of it.
        workload_name: its name; ``kubectl get`` shows it.
        max_width: most replicas, >= min_width.
        gpus_per_width: GPUs of one replica, >= 1. There is no default to guess from.
        role: main or prefill.
        min_width: fewest replicas, >= 0 for prefill, >= 1 for main.
        can_shrink: whether replicas may be taken away.
        pause_s: interruption of service by one resize, s; None: unknown.
        kubeconfig: path of a kubeconfig; None: service account, or the default kubeconfig.
        context: of the kubeconfig; None: the current one.
        timeout_s: total deadline of one reading or write, s, > 0 and below the tick.
        api_version: group and version of the service.
    """

    namespace: str
    name: str
    workload: str
    workload_name: str
    max_width: int
    gpus_per_width: int
    role: str = "main"
    min_width: int = 1
    can_shrink: bool = True
    pause_s: float | None = None
    kubeconfig: str | None = None
    context: str | None = None
    timeout_s: float = 4.0
    api_version: str = "serving.kserve.io/v1alpha1"

    def __post_init__(self) -> None:
        for key in ("namespace", "name", "workload_name"):
            require_name(key, getattr(self, key))
        if (self.role, self.workload) not in _CONDITIONS:
            rule = "must be main or prefill, and deployment or leaderworkerset"
            raise ConfigError(f"role, workload: {rule}; got {self.role!r}, {self.workload!r}")
        require_whole("min_width", self.min_width, 0 if self.role == "prefill" else 1)
        require_whole("max_width", self.max_width, max(self.min_width, 1))
        require_whole("gpus_per_width", self.gpus_per_width, 1)
        require_number("pause_s", self.pause_s, 0)
        require_number("timeout_s", self.timeout_s, 0, above=True)


class KServe:
    """Steers the replicas of one LLMInferenceService.

    Args:
        params: which one.
        api: where it is.

    Attributes:
        reference: the service, as Events name it.
    """

    def __init__(self, params: Params, api: Connection) -> None:
        self.params = params
        self._api = api
        self._path = path(params.api_version, params.namespace, "llminferenceservices", params.name)
        self._where = f"LLMInferenceService {params.namespace}/{params.name}"
        self._field = ("spec", "prefill") if params.role == "prefill" else ("spec",)
        self._annotations = Annotations()
        self.reference = ObjectReference(
            params.api_version, "LLMInferenceService", params.namespace, params.name
        )

    @property
    def access(self) -> Access:
        """How the API server is reached."""
        return self._api.access

    def read(self) -> WidthStatus:
        """Replicas wanted in the service, passed on to the workload, and serving.

        Raises:
            TargetError: unreadable, scaled by KServe itself, or without a field that should be
                there (``field_missing``).
        """
        until_s = self._api.deadline_s()
        service = self._api.get(self._path, until_s)
        wanted = self._wanted(service)
        uid = _fields.text(self._where, service, "metadata", "uid")
        self._annotations = annotations(self._where, service)
        pause, writer = self._annotations.pause, owner(service, self._managed)
        self.reference = replace(self.reference, uid=uid)
        kind = KINDS[self.params.workload]
        name = self.params.workload_name
        at = path(kind.api_version, self.params.namespace, kind.plural, name)
        try:
            workload = self._api.get(at, until_s)
        except Gone:
            detail = f"KServe has not made the {self.params.workload} {name}"
            return WidthStatus(
                wanted, None, incarnation=uid, detail=detail, writer=writer, pause=pause
            )
        where = f"{self.params.workload} {self.params.namespace}/{name}"
        serving = kind.serving(where, workload)
        generation = _fields.whole(where, workload, "metadata", "generation")
        seen = _fields.lookup(workload, "status", "observedGeneration")
        passed_on = _fields.whole(where, workload, "spec", "replicas")
        role = _CONDITIONS[self.params.role, self.params.workload]
        unmet = self._unmet(service, role)
        proven = type(seen) is int and seen >= generation and not unmet
        return WidthStatus(
            wanted,
            serving.effective if proven else None,
            # The service has no trustworthy generation: the first layer is the proof of passage.
            incarnation=uid,
            layers=(Layer("workload", passed_on), *serving.layers),
            failure=serving.failure,
            resizing=serving.rolling or None,
            detail="; ".join(text for text in (unmet, serving.detail) if text),
            writer=writer,
            pause=pause,
        )

    def set_width(self, width: int, expected: int, note: str | None = None) -> SetOutcome:
        """Write the replicas, if they are the expected ones and nobody touches the service.

        The note goes into the same patch.
        """
        until_s = self._api.deadline_s()
        try:
            service = self._api.get(self._path, until_s)
            present = self._wanted(service)
            version = _fields.text(self._where, service, "metadata", "resourceVersion")
        except TargetError as error:
            return unwritten(error)
        if present != expected:
            return SetOutcome(SetResult.CONFLICT, detail=f"{self._where}: the width is {present}")
        metadata = {"resourceVersion": version}
        if note is not None:
            metadata |= _annotations.merge(note)
        body = {"metadata": metadata, **self._change(width)}

        def write() -> Object:
            written = self._api.patch(self._path, body, MERGE_PATCH, until_s)
            return became(written, width, *self._field, "replicas")

        return replace(outcome(write), generation=None)

    def recall(self) -> str | None:
        """The note as the last reading found it; None: there is none."""
        return self._annotations.memory

    def remember(self, text: str) -> None:
        """Keep another note; changes nothing of the spec.

        Raises:
            TargetError: it may not have been kept.
        """
        body = {"metadata": _annotations.merge(text)}
        self._api.patch(self._path, body, MERGE_PATCH)

    @property
    def _managed(self) -> tuple[str, ...]:
        """Path of the replicas in ``managedFields``."""
        return tuple(f"f:{key}" for key in (*self._field, "replicas"))

    def rehearse(self, width: int) -> SetOutcome:
        """Have the API server check a write of ``width`` without doing it."""
        body = self._change(width)
        return outcome(lambda: self._api.patch(self._path, body, MERGE_PATCH, dry_run=True))

    def findings(self) -> list[Finding]:
        """What a check of this target says; changes nothing.

        Raises:
            TargetError: the service is unreadable, or scaled by KServe itself.
        """
        params = self.params
        service = self._api.get(self._path)
        width = min(self._wanted(service) + 1, params.max_width)
        grant = "patch on llminferenceservices of serving.kserve.io in namespace "
        kind = "LeaderWorkerSet" if params.workload == "leaderworkerset" else "Deployment"
        return [
            _preflight.rehearsed(self.rehearse(width), width, grant + params.namespace),
            *_rivals.last_writer(owner(service, self._managed)),
            *_rivals.of_replicas(self._api, params.namespace, kind, params.workload_name),
        ]

    def capabilities(self) -> Capabilities:
        """As configured."""
        params = self.params
        return Capabilities(
            params.min_width,
            params.max_width,
            can_shrink=Tristate.YES if params.can_shrink else Tristate.NO,
            gpus_per_width=params.gpus_per_width,
            pause_s=params.pause_s,
        )

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    def _change(self, width: int) -> Json:
        change: Json = {"replicas": width}
        for key in reversed(self._field):
            change = {key: change}
        return change

    def _wanted(self, service: Object) -> int:
        spec = _fields.mapping(self._where, service, *self._field)
        if spec.get("scaling") is not None:
            raise TargetError(
                f"{self._where}: {'.'.join(self._field)}.scaling: must not be there, "
                "KServe scales this by itself; got one"
            )
        return _fields.whole(f"{self._where}: {'.'.join(self._field)}", spec, "replicas")

    def _unmet(self, service: Object, role: str) -> str:
        """Conditions of the service that are not true, for people; "": all are."""
        unmet = [
            kind
            for kind in ("Ready", "WorkloadsReady", role)
            if not _fields.holds(self._where, service, [kind])
        ]
        return f"not true: {', '.join(unmet)}" if unmet else ""


def build(params: Params) -> KServe:
    """The target.

    Raises:
        ConfigError: no usable access to the API server.
    """
    access = Access(params.kubeconfig, params.context, params.timeout_s)
    return KServe(params, Connection(access))
