"""Where the memory of each target is kept: with its width, in a ConfigMap, or in a file."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoscaler.clock import wall_s
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.keeping import Keeper
from autoscaler.ports import Clock, MemoryPlace, Target
from autoscaler.settings import MemorySection

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT_S = 2.0


class Memories:
    """The places of one configuration.

    Args:
        section: what the configuration says; its path is whole.
        tick_s: seconds between two ticks; a place is given up on sooner.
        namespace: file that holds the controller's own namespace, in a Pod.
    """

    def __init__(self, section: MemorySection, tick_s: float, namespace: Path = _NAMESPACE) -> None:
        self._section = section
        self._timeout_s = min(_TIMEOUT_S, tick_s / 2)
        self._file = None if section.path is None else MemoryFile(Path(section.path))
        self._namespace = section.namespace
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
        if self._namespace is None and in_pod and namespace.is_file():
            self._namespace = namespace.read_text(encoding="utf-8").strip()

    def keeper(self, name: str, target: Target, clock: Clock) -> Keeper | None:
        """The keeper of one target's memory; None: there is no place for it.

        Raises:
            ConfigError: no usable access to the API server.
        """
        place = self._place(name, target)
        return None if place is None else Keeper(place, _epoch(clock))

    def _place(self, name: str, target: Target) -> MemoryPlace | None:
        if isinstance(target, MemoryPlace):
            return target
        if self._file is not None:
            return self._file.place(name)
        if self._namespace is None:
            return None
        from autoscaler.cluster.connection import Access, Connection  # heavy
        from autoscaler.cluster.memory_map import MemoryMap

        access = Access(self._section.kubeconfig, self._section.context, self._timeout_s)
        return MemoryMap(Connection(access), self._namespace, name)


class MemoryFile:
    """The memories of several targets in one JSON file, replaced as a whole. For one process.

    Args:
        path: the file, made when the first memory comes; its folder has to exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def place(self, name: str) -> "_Entry":
        """The entry of one target."""
        return _Entry(self, name)

    def recall(self, name: str) -> str | None:
        """The text of one target.

        What is no such file is a text as well, if one that says nothing: the reader tells so.

        Raises:
            TargetError: unreadable.
        """
        with self._lock:
            content = self._read()
        if isinstance(content, str):
            return content
        text = content.get(name)
        return None if text is None else str(text)

    def remember(self, name: str, text: str) -> None:
        """Keep the text of one target, and those of the others.

        Raises:
            TargetError: not kept.
        """
        with self._lock:
            content = self._read()
            content = {} if isinstance(content, str) else content
            try:
                self._write({**content, name: text})
            except OSError as error:
                raise _unusable(self._path, error) from error

    def _read(self) -> dict[str, Any] | str:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _unusable(self._path, error) from error
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return content if isinstance(content, dict) else text

    def _write(self, content: dict[str, Any]) -> None:
        beside = self._path.with_name(f".{self._path.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


class _Entry:
    """One target's entry in the file; a ``MemoryPlace``."""

    def __init__(self, file: MemoryFile, name: str) -> None:
        self._file, self._name = file, name

    def recall(self) -> str | None:
        return self._file.recall(self._name)

    def remember(self, text: str) -> None:
        self._file.remember(self._name, text)


def _unusable(path: Path, error: OSError) -> TargetError:
    kind = TargetForbidden if isinstance(error, PermissionError) else TargetError
    return kind(f"memory: {path}: {error.strerror or error}")


def _epoch(clock: Clock) -> Callable[[], float]:
    """Unix time at which the clock showed 0, as the wall clock has it now."""
    return lambda: wall_s() - clock.now_s()
