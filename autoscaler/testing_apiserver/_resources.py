"""The kinds of objects that the fake server knows: a few built in, others by their CRD."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a ``scale`` subresource finds its numbers in the object."""

    replicas: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One kind of objects.

    Args:
        group: API group; "": the core group.
        version: of the group.
        plural: name in paths.
        kind: name in objects.
        namespaced: whether its objects live in namespaces.
        generations: whether a changed spec gets a new ``metadata.generation``.
        status: whether ``/status`` exists.
        scale: where ``/scale`` looks; None: it does not exist.
        schema: OpenAPI schema; None: everything is valid.
        defaults: merged under every object when it is created.
        custom: whether it comes from a CRD: those take no strategic merge patch.
        columns: of the tables that ``kubectl get`` shows, as a CRD has them.
        short_names: what people call it besides, such as ``wa``.
        fields: what field selectors may speak of, besides name and namespace.
        conditional: whether a replacement must name the version that it replaces.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    generations: bool = False
    status: bool = False
    scale: ScalePaths | None = None
    schema: Json | None = None
    defaults: Json = field(default_factory=dict)
    custom: bool = False
    columns: tuple[Json, ...] = ()
    short_names: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    conditional: bool = False

    @property
    def api_version(self) -> str:
        """``apps/v1``, ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def patch_types(self) -> tuple[str, ...]:
        """Content types of patches, in the order of the recorded message."""
        return (
            "application/json-patch+json",
            "application/merge-patch+json",
            *(() if self.custom else ("application/strategic-merge-patch+json",)),
            "application/apply-patch+yaml",
        )


_CONTAINER = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
_POD = {
    "containers": (_CONTAINER,),  # a tuple: the defaults of every entry
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_POD_FIELDS = ("spec.nodeName", "spec.restartPolicy", "status.phase")
_DEPLOYMENT = {
    "spec": {
        "replicas": 1,
        "template": {"spec": _POD},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "status": {},
}
_EVENT: Json = {
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
# Rules of kubernetes' pkg/apis/coordination/validation, as a schema.
_LEASE: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "holderIdentity": {"type": "string"},
                "leaseDurationSeconds": {"type": "integer", "minimum": 1},
                "leaseTransitions": {"type": "integer", "minimum": 0},
                "acquireTime": {"type": "string"},
                "renewTime": {"type": "string"},
                "preferredHolder": {"type": "string"},
                "strategy": {"type": "string"},
            },
        }
    },
}
_NAMESPACE = {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
_WORKLOAD = ScalePaths(selector=("spec", "selector", "matchLabels"))

BUILT_IN = (
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, defaults=_NAMESPACE),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "nodes", "Node", namespaced=False, status=True),
    Resource("", "v1", "pods", "Pod", status=True, defaults={"spec": _POD}, fields=_POD_FIELDS),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", schema=_LEASE, conditional=True),
    Resource("events.k8s.io", "v1", "events", "Event", defaults=_EVENT),
    Resource(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        generations=True,
        status=True,
        scale=_WORKLOAD,
        defaults=_DEPLOYMENT,
    ),
    Resource(
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        generations=True,
        status=True,
        scale=_WORKLOAD,
        defaults={"spec": {"replicas": 1, "template": {"spec": _POD}}, "status": {}},
    ),
)


def from_crd(crd: Mapping[str, Any]) -> list[Resource]:
    """The resources of a CustomResourceDefinition, one a served version."""
    spec = crd["spec"]
    found = []
    for version in spec["versions"]:
        below = version.get("subresources") or {}
        scale = below.get("scale")
        paths = None
        if scale is not None:
            paths = ScalePaths(
                _parts(scale["specReplicasPath"]),
                _parts(scale["statusReplicasPath"]),
                _parts(scale.get("labelSelectorPath", "")),
            )
        found.append(
            Resource(
                spec["group"],
                version["name"],
                spec["names"]["plural"],
                spec["names"]["kind"],
                namespaced=spec["scope"] == "Namespaced",
                generations=True,
                status="status" in below,
                scale=paths,
                schema=(version.get("schema") or {}).get("openAPIV3Schema"),
                custom=True,
                columns=tuple(version.get("additionalPrinterColumns", ())),
                short_names=tuple(spec["names"].get("shortNames", ())),
            )
        )
    return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split(".") if part)


def with_defaults(given: Any, defaults: Any) -> Any:
    """The object with everything that it does not say itself; a tuple's default is each entry's."""
    if isinstance(given, dict) and isinstance(defaults, dict):
        merged = dict(given)
        for key, value in defaults.items():
            if key in given:
                merged[key] = with_defaults(given[key], value)
            elif not isinstance(value, tuple):  # defaults of entries make no entries
                merged[key] = with_defaults({}, value) if isinstance(value, dict) else value
        return merged
    if isinstance(given, list) and isinstance(defaults, tuple):
        return [with_defaults(entry, defaults[0]) for entry in given]
    return given
