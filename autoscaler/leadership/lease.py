"""One Lease object (coordination.k8s.io/v1): read, and written unless somebody else did."""

from datetime import UTC, datetime, timedelta
from typing import Any

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import Connection, path
from autoscaler.errors import TargetError
from autoscaler.leadership.election import Record

_API = "coordination.k8s.io/v1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp(wall_s: float, before: str = "") -> str:
    """The time stamp of a renewal, to the microsecond and no other precision (MicroTime).

    Args:
        wall_s: Unix seconds.
        before: the stamp that the record has. A clock that stands still or was set back must not
            make the same one again: the server stores no change, and the others see no renewal.
    """
    at = _EPOCH + timedelta(microseconds=int(wall_s * 1e6))
    while (text := at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")) == before:
        at += timedelta(microseconds=1)
    return text


class Lease:
    """One Lease by its name.

    Args:
        connection: to the API server; this object's own.
        namespace: of the Lease.
        name: of the Lease.
        lease_duration_s: taken for what a record with a holder does not say, > 0.
    """

    def __init__(
        self, connection: Connection, namespace: str, name: str, lease_duration_s: float
    ) -> None:
        self._connection = connection
        self._namespace, self._name = namespace, name
        self._lease_duration_s = lease_duration_s
        self._path = path(_API, namespace, "leases", name)
        self._collection = path(_API, namespace, "leases", "")
        self._object: dict[str, Any] = {}

    def read(self) -> Record | None:
        """What the Lease says now; None: there is none.

        Raises:
            TargetError: no answer, or none that can be read.
        """
        try:
            found = self._connection.get(self._path)
        except Gone:
            return None
        return self._record(found)

    def write(self, record: Record) -> Record:
        """Store a record in place of the one whose version it has; without one: create it.

        Args:
            record: what to store.

        Returns:
            The record with its new version.

        Raises:
            TargetConflict: somebody else was first.
            Gone: the Lease has been deleted.
            TargetError: not stored, or perhaps stored.
        """
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": int(record.lease_duration_s),
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        }
        spec = {key: value for key, value in spec.items() if key == "holderIdentity" or value != ""}
        # A replacement takes away what it does not repeat: other people's fields stay theirs.
        body = {
            "apiVersion": _API,
            "kind": "Lease",
            "spec": {**(self._object.get("spec") or {}), **spec},
        }
        name = {"name": self._name, "namespace": self._namespace}
        if not record.version:
            new = {**body, "spec": spec, "metadata": name}
            try:
                return self._record(self._connection.send("POST", self._collection, new))
            except Gone as error:  # a new object cannot be gone
                raise TargetError(f"{error}: namespace {self._namespace} must exist") from error
        held = self._object.get("metadata", {})
        kept = {key: held[key] for key in ("labels", "annotations") if key in held}
        metadata = {**name, **kept, "resourceVersion": record.version}
        changed = {**body, "metadata": metadata}
        return self._record(self._connection.send("PUT", self._path, changed))

    def _record(self, found: dict[str, Any]) -> Record:
        metadata, spec = found.get("metadata"), found.get("spec") or {}
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        holder = spec.get("holderIdentity") if isinstance(spec, dict) else None
        if not isinstance(version, str) or not version or not isinstance(spec, dict):
            raise TargetError(f"GET {self._path}: must be a Lease with a resourceVersion")
        if holder is not None and not isinstance(holder, str):
            raise TargetError(f"GET {self._path}: holderIdentity: must be a text; got {holder!r}")
        lease_s, changes = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        self._object = found
        return Record(
            holder or "",
            lease_s if type(lease_s) is int and lease_s > 0 else self._lease_duration_s,
            str(spec.get("acquireTime") or ""),
            str(spec.get("renewTime") or ""),
            changes if type(changes) is int and changes >= 0 else 0,
            version,
        )
