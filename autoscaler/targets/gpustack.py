"""The elastic expert-parallel width of a GPUStack ModelDeployment.

Reads convergence from the operator's observation document, never from ``status.phase``, which says
``Ready`` throughout. Writes nothing but the width of one role, on condition that it is still the
expected one. Never calls the engine: the operator is its only sanctioned caller.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.cluster.answers import Gone, Unclear, outcome
from autoscaler.cluster.capacity import Capacity
from autoscaler.cluster.connection import (
    FIELD_MANAGER,
    JSON_PATCH,
    MERGE_PATCH,
    Access,
    Connection,
    path,
    require_name,
)
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
from autoscaler.targets import _annotations, _arguments, _fields, _pods, _preflight, _rivals
from autoscaler.targets._annotations import Annotations, annotations
from autoscaler.targets._observation import Observed, Operation, observed, operation
from autoscaler.targets._owner import owner
from autoscaler.targets._role import Role, elastic_role

_MIN_WIDTH, _MAX_WIDTH = 2, 64  # of the operator's schema
_CAPPED_SINCE = (0, 30)  # vLLM release from which growth ends at --elastic-ep-max-dp-size


@dataclass(frozen=True, slots=True)
class Params:
    """Which deployment, and how to reach it.

    Args:
        namespace: of the deployment.
        name: of the deployment.
        role: the elastic role's name; None: the only one that is elastic.
        kubeconfig: path of a kubeconfig; None: service account, or the default kubeconfig.
        context: of the kubeconfig; None: the current one.
        timeout_s: total deadline of one reading (three calls) or write, s, > 0 and below the
            tick. Larger: rides out a slow API server, reacts later.
        allow_shrink: whether a smaller width may be asked for. No release up to 0.11 takes one.
        vllm_version: such as ``0.30.0``; None: unknown. From 0.30 on, an engine without
            ``--elastic-ep-max-dp-size`` never grows beyond the width it was started with, and
            asking for more ends in five refusals and a resize that nothing can undo.
        initial_width: width that the engine was started with; None: that of the first reading.
        pause_s: interruption of service by one resize, s; None: unknown.
        api_version: group and version of the resource.
        gpu_resource: name of the accelerator in the requests of the engine's Pods, such as
            ``nvidia.com/gpu``; None: the one of which they request a rank's number of GPUs.
    """

    namespace: str
    name: str
    role: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    timeout_s: float = 4.0
    allow_shrink: bool = False
    vllm_version: str | None = None
    initial_width: int | None = None
    pause_s: float | None = None
    api_version: str = "worker.gpustack.ai/v1"
    gpu_resource: str | None = None

    def __post_init__(self) -> None:
        require_name("namespace", self.namespace)
        require_name("name", self.name)
        require_number("timeout_s", self.timeout_s, 0, above=True)
        require_number("pause_s", self.pause_s, 0)
        require_whole("initial_width", self.initial_width, _MIN_WIDTH, _MAX_WIDTH)
        if self.vllm_version is not None:
            _release(self.vllm_version)
        if self.api_version.count("/") != 1:
            raise ConfigError(f"api_version: must be GROUP/VERSION; got {self.api_version!r}")


class GpuStack:
    """Steers one ModelDeployment.

    Args:
        params: which one.
        api: where it is.

    Attributes:
        reference: the deployment, as Events name it.
    """

    def __init__(self, params: Params, api: Connection) -> None:
        self.params = params
        self._api = api
        self._path = path(params.api_version, params.namespace, "modeldeployments", params.name)
        self._where = f"ModelDeployment {params.namespace}/{params.name}"
        self._role: Role | None = None
        self._annotations = Annotations()
        self._initial_width = params.initial_width
        self._master = ""
        self._can_shrink = Tristate.UNKNOWN if params.allow_shrink else Tristate.NO
        self._capacity = Capacity(api, params.namespace, self._rank, queued=True)
        self.reference = ObjectReference(
            params.api_version, "ModelDeployment", params.namespace, params.name
        )

    @property
    def access(self) -> Access:
        """How the API server is reached."""
        return self._api.access

    def read(self) -> WidthStatus:
        """The width as its spec, the operator's two documents and its conditions have it.

        Raises:
            TargetForbidden: a read is not permitted.
            TargetError: unreadable, being deleted, or without a field that should be there
                (``field_missing``). A missing observation document is none: the operator has not
                looked yet.
        """
        until_s = self._api.deadline_s()
        deployment = self._api.get(self._path, until_s)
        metadata = _fields.mapping(self._where, deployment, "metadata")
        if metadata.get("deletionTimestamp"):
            raise TargetError(f"{self._where}: is being deleted")
        uid = _fields.text(self._where, metadata, "uid")
        self.reference = replace(self.reference, uid=uid)
        generation = _fields.whole(self._where, metadata, "generation")
        role = elastic_role(self._where, deployment, self.params.role)
        self._role, self._annotations = role, annotations(self._where, deployment)
        seen = self._document(f"elastic-observation-{uid}", until_s)
        record = self._document(f"elastic-resize-{uid}", until_s)
        found = None if seen is None else observed(f"{self._where}: observation", seen)
        on_record = None if record is None else operation(f"{self._where}: operation", record)
        if found is not None and found.uid != uid:
            found = None  # of a deployment of the same name that is no more
        self._note_boot(role.width, "" if found is None else found.master)
        self._capacity.tick(until_s)
        return self._status(deployment, role.width, generation, found, on_record)

    def set_width(self, width: int, expected: int, note: str | None = None) -> SetOutcome:
        """Patch the role's width, if it is still the expected one, and the note with it.

        A smaller width is refused here unless the parameters allow it: the operator's admission
        refuses it too, and what an older operator would do with it nobody has tried.
        """
        shrink = width < expected
        if shrink and self._can_shrink is Tristate.NO:
            if self._role is not None and self._role.width != expected:
                return SetOutcome(SetResult.CONFLICT, detail=f"the width is {self._role.width}")
            rule = "must not be smaller than the width in the spec (shrink_unsupported)"
            return SetOutcome(SetResult.REFUSED, detail=f"{self._where}: {rule}; got {width}")
        answer = outcome(lambda: self._patch(width, expected, note))
        if shrink and answer.result is SetResult.REFUSED:
            self._can_shrink = Tristate.NO
        elif shrink and answer.result is SetResult.APPLIED:
            self._can_shrink = Tristate.YES
        return answer

    def recall(self) -> str | None:
        """The note as the last reading found it; None: there is none."""
        return self._annotations.memory

    def remember(self, text: str) -> None:
        """Keep another note; changes neither the spec nor its generation.

        Raises:
            TargetError: it may not have been kept.
        """
        body = {"metadata": _annotations.merge(text)}
        self._api.patch(self._path, body, MERGE_PATCH)

    def rehearse(self, width: int, expected: int) -> SetOutcome:
        """Have the API server check the very same patch without applying it."""
        return outcome(lambda: self._patch(width, expected, dry_run=True))

    def findings(self) -> list[Finding]:
        """What a check of this target says; changes nothing.

        Raises:
            ConfigError: as ``capabilities``.
            TargetError: the deployment is unreadable.
        """
        params = self.params
        deployment = self._api.get(self._path)
        role = self._role = elastic_role(self._where, deployment, params.role)
        high = self.capabilities().max_width
        width = min(role.width + 1, max(high, role.width))
        grant = "patch on modeldeployments of worker.gpustack.ai in namespace " + params.namespace
        return [
            _preflight.elastic_limit(role, high, version_known=params.vllm_version is not None),
            _preflight.rehearsed(self.rehearse(width, role.width), width, grant),
            _preflight.capacity(self._capacity.look(), self._tensor_parallel),
            *_rivals.last_writer(owner(deployment, role.managed)),
            *_rivals.of_deployment(self._api, params.namespace, params.name, params.api_version),
        ]

    def capabilities(self) -> Capabilities:
        """Bounds by schema and engine, and the GPUs of a rank.

        Raises:
            ConfigError: the engine's arguments do not say how many GPUs a rank takes.
            TargetError: never read yet, and unreadable now.
        """
        declared = self._number(_arguments.MAX_WIDTH)
        room = self._capacity.room
        return Capabilities(
            _MIN_WIDTH,
            min(_MAX_WIDTH, self._engine_max() if declared is None else declared),
            can_shrink=self._can_shrink,
            gpus_per_width=self._tensor_parallel,
            pause_s=self.params.pause_s,
            free_gpus=room.gpus,
            capacity=room.detail,
        )

    def close(self) -> None:
        """Close the connection."""
        self._api.close()

    @property
    def _tensor_parallel(self) -> int:
        # vLLM's default, which the operator relies on as well.
        return self._number(_arguments.TENSOR_PARALLEL) or 1

    def _number(self, flag: tuple[str, ...]) -> int | None:
        role = self._known_role()
        try:
            return _arguments.number(role.arguments, flag)
        except ConfigError as error:
            raise ConfigError(f"{self._where}: role {role.name}: {error}") from error

    def _rank(self, until_s: float) -> Shape:
        """What one more rank asks of the cluster."""
        params = self.params
        where = params.namespace, params.name, self._known_role().name
        gpus, resource = self._tensor_parallel, params.gpu_resource
        return _pods.of_role(self._api, where, gpus, resource, until_s)

    def _note_boot(self, width: int, master: str) -> None:
        """A new instance boots at the width of the spec, which is its ceiling from then on."""
        replaced = master and self._master and master != self._master
        if self._initial_width is None or replaced:
            self._initial_width = width
        self._master = master or self._master

    def _engine_max(self) -> int:
        version, initial = self.params.vllm_version, self._initial_width
        if version is None or initial is None or _release(version) < _CAPPED_SINCE:
            return _MAX_WIDTH
        return initial

    def _patch(
        self, width: int, expected: int, note: str | None = None, *, dry_run: bool = False
    ) -> Mapping[str, Any]:
        role = self._known_role()
        at = f"/spec/roles/{role.index}"
        body = [
            {"op": "test", "path": f"{at}/name", "value": role.name},
            {"op": "test", "path": f"{at}/elasticEp/width", "value": expected},
            *([] if note is None else _annotations.json_patch(note, self._annotations)),
            {"op": "replace", "path": f"{at}/elasticEp/width", "value": width},
        ]
        written = self._api.patch(self._path, body, JSON_PATCH, dry_run=dry_run)
        try:
            became = elastic_role(self._where, written, self.params.role).width
        except TargetError as error:
            raise Unclear(f"answered with something else than the deployment: {error}") from error
        if became != width:  # a success that changed nothing is none
            raise Unclear(f"{self._where}: asked for width {width}, answered with {became}")
        return written

    def _known_role(self) -> Role:
        if self._role is None:
            self._role = elastic_role(self._where, self._api.get(self._path), self.params.role)
        return self._role

    def _document(self, name: str, until_s: float) -> Mapping[str, Any] | None:
        """A ConfigMap of the operator; None: it is not there."""
        try:
            return self._api.get(path("v1", self.params.namespace, "configmaps", name), until_s)
        except Gone:
            return None

    def _writer(self, deployment: Mapping[str, Any]) -> str:
        return "" if self._role is None else owner(deployment, self._role.managed)

    def _foreign(self, deployment: Mapping[str, Any]) -> str:
        """For people: who else set the width last; "" if we did, or nobody says."""
        who = self._writer(deployment)
        return f"the width was last set by {who!r:.80}" if who not in ("", FIELD_MANAGER) else ""

    def _status(
        self,
        deployment: Mapping[str, Any],
        desired: int,
        generation: int,
        seen: Observed | None,
        record: Operation | None,
    ) -> WidthStatus:
        condition = _fields.condition(self._where, deployment, "ElasticResize") or {}
        said = str(condition.get("message") or condition.get("reason") or "")
        refusal = None
        if condition.get("status") == "False":
            refusal = said or "the engine refused"
        elif (seen is not None and seen.state == "Abandoned") or (record and record.abandoned):
            # The condition is a write of its own, and may come later than the documents.
            refusal = (seen.reason if seen else "") or (record.detail if record else "abandoned")
        foreign = self._foreign(deployment)
        if seen is None:
            reasons = ["the operator has not observed this deployment yet", foreign]
            return WidthStatus(
                desired,
                None,
                generation=generation,
                refusal=refusal,
                resizing=record is not None and record.running,
                detail="; ".join(reason for reason in reasons if reason),
                writer=self._writer(deployment),
                pause=self._annotations.pause,
            )
        unprovable = condition.get("status") == "Unknown"
        reasons = [said if unprovable else "", seen.state, seen.reason]
        if record is not None and record.running:
            reasons.append(record.detail)
        reasons.append(foreign)
        detail = "; ".join(reason for reason in reasons if reason)
        effective = None if unprovable else seen.effective
        widths = {layer.name: layer.value for layer in seen.layers}
        widths |= {"effective": effective, "stable": seen.stable}
        why = {layer.name: layer.detail for layer in seen.layers}
        return WidthStatus(
            desired,
            effective,
            stable=seen.stable,
            generation=generation,
            observed_generation=seen.generation,
            incarnation=seen.master,
            layers=tuple(Layer(n, w, _joined(why.get(n, ""), detail)) for n, w in widths.items()),
            refusal=refusal,
            resizing=record is not None and record.running,
            detail=detail,
            writer=self._writer(deployment),
            pause=self._annotations.pause,
        )


def _joined(reason: str, detail: str) -> str:
    """A layer's own reason, unless it is the one that says nothing, with the operator's."""
    return "; ".join(text for text in (reason, detail) if text and text != "not collected")


def _release(version: str) -> tuple[int, int]:
    """The first two numbers of a vLLM version."""
    parts = version.removeprefix("v").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise ConfigError(f"vllm_version: must be like 0.30.0; got {version!r}")
    return int(parts[0]), int(parts[1])


def build(params: Params) -> GpuStack:
    """The target.

    Raises:
        ConfigError: no usable access to the API server.
    """
    access = Access(params.kubeconfig, params.context, params.timeout_s)
    return GpuStack(params, Connection(access))
