"""The operator's stand-in and its objects: where they are, and not writing the same bytes twice."""

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import MERGE_PATCH, Connection, path
from autoscaler.emulator._documents import Json, Observation, Record, config_map


def observation_name(uid: str) -> str:
    """The ConfigMap of the observation of a deployment."""
    return f"elastic-observation-{uid}"


def operation_name(uid: str) -> str:
    """The ConfigMap of the operation on record."""
    return f"elastic-resize-{uid}"


class Cluster:
    """One namespace of an API server, as the operator writes it.

    Every method raises TargetError where the API server does not do what it is asked for.
    """

    def __init__(self, api: Connection, namespace: str, api_version: str) -> None:
        self._api, self._namespace, self._api_version = api, namespace, api_version

    def deployments(self) -> list[Json]:
        """Every ModelDeployment."""
        found = self._api.get(self._path("modeldeployments"))["items"]
        return [dict(item) for item in found]

    def set_status(self, deployment: Json, status: Json) -> None:
        """Write status fields of a deployment."""
        where = self._path("modeldeployments", deployment["metadata"]["name"], "status")
        self._api.patch(where, {"status": status}, MERGE_PATCH)

    def observe(self, deployment: Json, seen: Observation) -> None:
        """Write an observation, if it says anything new."""
        name, label = observation_name(seen.uid), "gpustack.ai/elastic-observation"
        self._write(deployment, name, label, "observation.json", seen.text())

    def save(self, deployment: Json, record: Record) -> None:
        """Write the operation on record."""
        name, label = operation_name(record.uid), "gpustack.ai/elastic-operation"
        self._write(deployment, name, label, "operation.json", record.text())

    def read(self, name: str, key: str) -> str | None:
        """The text of a document; None: it is not there."""
        try:
            return str(self._api.get(self._path("configmaps", name))["data"][key])
        except Gone:
            return None

    def drop(self, name: str) -> None:
        """Delete a document, if it is there."""
        try:
            self._api.send("DELETE", self._path("configmaps", name), None)
        except Gone:
            return

    def _write(self, owner: Json, name: str, label: str, key: str, text: str) -> None:
        before = self.read(name, key)
        if before is None:
            created = config_map(name, label, key, text, owner)
            self._api.send("POST", self._path("configmaps"), created)
        elif before != text:
            where = self._path("configmaps", name)
            self._api.patch(where, {"data": {key: text}}, MERGE_PATCH)

    def _path(self, plural: str, name: str = "", subresource: str = "") -> str:
        version = "v1" if plural == "configmaps" else self._api_version
        return path(version, self._namespace, plural, name, subresource)
