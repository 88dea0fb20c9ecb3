"""The objects as they were seen last, shared by those who watch, steer and report."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from autoscaler.objects.resource import WidthAutoscaler


class Directory:
    """Every object of the watched namespaces; threads may use it at once.

    Args:
        namespaces: that are watched.

    Attributes:
        edition: changes whenever an object is new, gone, or has another spec, and with nothing
            else: a status that was written is no news.
    """

    def __init__(self, namespaces: Iterable[str]) -> None:
        self.edition = 0
        self._lock = threading.Lock()
        self._found: dict[str, WidthAutoscaler] = {}
        self._unlisted = list(namespaces)

    @property
    def unlisted(self) -> list[str]:
        """Namespaces of which nothing is known yet."""
        with self._lock:
            return list(self._unlisted)

    def all(self) -> dict[str, WidthAutoscaler]:
        """The objects by ``namespace/name``."""
        with self._lock:
            return dict(self._found)

    def get(self, key: str) -> WidthAutoscaler | None:
        """One object; None: it is not there."""
        with self._lock:
            return self._found.get(key)

    def replace(self, namespace: str, found: Iterable[WidthAutoscaler]) -> None:
        """A namespace was listed: these objects are in it, and no others."""
        new = {one.key: one for one in found}
        with self._lock:
            gone = [k for k, o in self._found.items() if o.namespace == namespace and k not in new]
            for key in gone:
                del self._found[key]
            changed = [k for k, one in new.items() if not one.means_the_same_as(self._found.get(k))]
            self._found |= new
            if namespace in self._unlisted:
                self._unlisted.remove(namespace)
            if gone or changed:
                self.edition += 1

    def put(self, found: WidthAutoscaler) -> None:
        """An object is new or has changed."""
        with self._lock:
            known = self._found.get(found.key)
            self._found[found.key] = found
            if not found.means_the_same_as(known):
                self.edition += 1

    def drop(self, key: str) -> None:
        """An object is gone."""
        with self._lock:
            if self._found.pop(key, None) is not None:
                self.edition += 1

    def wrote(self, key: str, uid: str, version: str, status: Mapping[str, Any]) -> None:
        """Its status was written by us: the next write is on condition of this version."""
        with self._lock:
            known = self._found.get(key)
            if known is not None and known.uid == uid:
                self._found[key] = replace(known, version=version, status=status)
