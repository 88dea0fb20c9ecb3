"""A memory in a ConfigMap, for targets whose width is no part of an object that takes a note.

One ConfigMap in the controller's own namespace, a key a target. Every write is conditional on the
version of the object, so that two targets lose nothing of one another, and refused where the
target's own key is not what this process left there.
"""

from collections.abc import Mapping
from typing import Any

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import MERGE_PATCH, Connection, path
from autoscaler.errors import TargetConflict, TargetError

NAME = "autoscaler-memory"

_ATTEMPTS = 8  # other targets write the same object, each about twice a resize


class MemoryMap:
    """One key of the ConfigMap; a ``MemoryPlace``.

    Args:
        api: the API server.
        namespace: of the controller.
        key: name of the target.
    """

    def __init__(self, api: Connection, namespace: str, key: str) -> None:
        # A target that an object declares is called namespace/name; a key has no slash.
        self._api, self._key = api, key.replace("/", "__")
        self._maps = path("v1", namespace, "configmaps", "")
        self._path = path("v1", namespace, "configmaps", NAME)
        self._where = f"ConfigMap {namespace}/{NAME}: {key}"
        self._ours: set[str | None] = set()  # what may be there; empty: never read

    def recall(self) -> str | None:
        """The text; None: there is none.

        Raises:
            TargetError: unreadable.
        """
        try:
            text = self._text(self._api.get(self._path))
        except Gone:
            text = None
        self._ours = {text}
        return text

    def remember(self, text: str) -> None:
        """Keep a text.

        Raises:
            TargetConflict: another process has kept one since ``recall``.
            TargetError: it may not have been kept.
        """
        until_s = self._api.deadline_s()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                found = self._api.get(self._path, until_s)
            except Gone:
                found = None
            present = None if found is None else self._text(found)
            if self._ours and present not in self._ours:
                raise TargetConflict(f"{self._where}: another process has kept a memory of its own")
            self._ours |= {present, text}
            try:
                self._write(found, text, until_s)
            except TargetConflict as error:
                if attempt == _ATTEMPTS:  # others' keys: no conflict about this one
                    raise TargetError(
                        f"{self._where}: not kept, others write it: {error}"
                    ) from error
            else:
                self._ours = {text}
                return

    def _write(self, found: Mapping[str, Any] | None, text: str, until_s: float) -> None:
        data = {self._key: text}
        if found is None:
            self._api.send("POST", self._maps, {"metadata": {"name": NAME}, "data": data})
            return
        version = found["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "data": data}
        self._api.patch(self._path, body, MERGE_PATCH, until_s)

    def _text(self, found: Mapping[str, Any]) -> str | None:
        data = found.get("data")
        text = data.get(self._key) if isinstance(data, Mapping) else None
        return None if text is None else str(text)
