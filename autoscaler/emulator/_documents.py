"""The documents that GPUStack's operator writes, exactly shaped as its Go structs marshal.

Pure: values in, JSON out. Layers have capitalised keys, because they have no JSON tags there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

FINAL = "native ranks and forwards agree"
SENT = "native command recorded and sent; completion unobserved"
WAITING = "new members are not admitted, allocated and registered"

LAYERS = ("desired", "admitted", "allocated", "ray", "effective")


@dataclass(frozen=True, slots=True)
class Observation:
    """What one pass of the operator saw.

    Args:
        uid: of the deployment.
        generation: of the spec that was looked at.
        widths: by layer of LAYERS; None: unread.
        state: of the operation, "" outside of one.
        reason: for people.
        stable: last proven width, 0: none.
        master: uid of the serving instance.
    """

    uid: str
    generation: int
    widths: Mapping[str, int | None]
    state: str
    reason: str
    stable: int
    master: str

    def text(self) -> str:
        """``observation.json``."""
        layers = {name: _layer(self.widths.get(name)) for name in LAYERS}
        return json.dumps(
            {
                "deploymentUID": self.uid,
                "observedGeneration": self.generation,
                **layers,
                "state": self.state,
                "reason": self.reason,
                "stableWidth": self.stable,
                "masterUID": self.master,
            },
            separators=(",", ":"),
        )


@dataclass(slots=True)
class Record:
    """The operation on record: ``operation.json``."""

    name: str
    uid: str
    namespace: str
    generation: int
    old: int
    target: int
    master: str
    state: str = "Recorded"
    sent: bool = False
    attempts: int = 0
    error: str = ""
    failed_at: str = ""
    members: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The document."""
        found: Json = {
            "name": self.name,
            "deploymentUID": self.uid,
            "namespace": self.namespace,
            "generation": self.generation,
            "width": {"old": self.old, "target": self.target},
            "workers": None,
            "master": {"name": f"{self.name}-server-0", "uid": self.master},
            "head": {"name": f"{self.name}-head-0", "uid": f"{self.master}-head"},
            "members": [{"name": member, "uid": member} for member in self.members],
            "state": self.state,
            "commandIntent": f"scale to {self.target}",
            "commandSent": self.sent,
            "scaleAttempts": self.attempts,
        }
        if self.error:
            found |= {"scaleLastError": self.error, "scaleLastFailedAt": self.failed_at}
        return json.dumps({**found, "resourceVersion": ""}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "Record":
        """The record of a document that ``text`` made."""
        found = json.loads(text)
        return cls(
            found["name"],
            found["deploymentUID"],
            found["namespace"],
            found["generation"],
            found["width"]["old"],
            found["width"]["target"],
            found["master"]["uid"],
            found["state"],
            found["commandSent"],
            found["scaleAttempts"],
            found.get("scaleLastError", ""),
            found.get("scaleLastFailedAt", ""),
            [member["name"] for member in found["members"]],
        )


def config_map(name: str, label: str, key: str, text: str, owner: Json) -> Json:
    """The ConfigMap around a document, owned by its deployment."""
    reference = {
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "kind": "ModelDeployment",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {label: "true"}, "ownerReferences": [reference]},
        "data": {key: text},
    }


def condition(kind: str, status: str, reason: str, message: str, at: str) -> Json:
    """One entry of ``status.conditions``."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def carried_over(text: str | None, master: str) -> int:
    """The last proven width of the observation before, while the instance is the same; else 0."""
    found = json.loads(text) if text else {}
    return int(found.get("stableWidth", 0)) if found.get("masterUID") == master else 0


def in_flight(text: str | None) -> bool:
    """Whether the observation before spoke of a command whose end nobody has seen."""
    found = json.loads(text) if text else {}
    return found.get("state") in ("CommandSent", "AwaitingWidth")


def _layer(width: int | None) -> Json:
    if width is None:
        return {"Known": False, "Value": 0, "Reason": "not collected"}
    return {"Known": True, "Value": width, "Reason": ""}
