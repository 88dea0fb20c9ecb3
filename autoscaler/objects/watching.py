"""Finds the objects of one namespace and follows them, whatever becomes of the connection.

List, then watch from the version of the list. A watch that ended in due time goes on from where
it was; after 410, silence, or a connection that was cut the list is read anew. Failures wait
longer and longer, with jitter, and what is known stays known: an outage takes nothing away.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import Connection, path
from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.objects.directory import Directory
from autoscaler.objects.resource import API_VERSION, PLURAL, WidthAutoscaler, parse
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import Clock

_PAGE = 250  # objects an answer: at 10 kB each well below the limit of 8 MiB
_PAGES = 100
_WAIT_MAX_S = 30.0
_WAIT_FORBIDDEN_S = 60.0  # until somebody grants it: no storm of refusals


class Expired(TargetError):
    """410: the version is too old to go on from; the list has to be read anew."""


class Pace:
    """How patient a watcher is.

    Args:
        watch_s: how long the server is asked to keep a watch open, s, >= 1. Real servers end
            theirs after 5 to 10 min.
        silence_s: a watch that says nothing for so long is dead, s, > 0; servers send a bookmark
            about every minute.
        first_wait_s: pause after a second failure in a row, s, > 0; doubled with each further one
            up to 30 s, and shortened at random by up to a half.
    """

    def __init__(
        self, watch_s: int = 300, silence_s: float = 90.0, first_wait_s: float = 1.0
    ) -> None:
        require_whole("watch_s", watch_s, 1)
        require_number("silence_s", silence_s, 0, above=True)
        require_number("first_wait_s", first_wait_s, 0, above=True)
        self.watch_s, self.silence_s, self.first_wait_s = watch_s, silence_s, first_wait_s

    def wait_s(self, failures: int, jitter: float) -> float:
        """Pause before the next attempt, s: none after the first failure.

        Args:
            failures: in a row, >= 1.
            jitter: 0..1, at random.
        """
        if failures <= 1:
            return 0.0
        doubled_s = self.first_wait_s * 2.0 ** min(failures - 2, 16)
        return min(doubled_s, _WAIT_MAX_S) * (1.0 - 0.5 * jitter)


class Watcher:
    """Follows one namespace in a thread of its own.

    Args:
        namespace: which.
        api: a connection of its own.
        directory: where what is found is entered.
        clock: to tell how long a watch lasted.
        on_state: called when it begins to fail, with the error, and with None when it works again.
        pace: how patient it is.
        seed: of the jitter; None: from the system.
    """

    def __init__(
        self,
        namespace: str,
        api: Connection,
        directory: Directory,
        clock: Clock,
        on_state: Callable[[str, TargetError | None], None],
        pace: Pace | None = None,
        seed: int | None = None,
    ) -> None:
        self.namespace = namespace
        self._api, self._directory, self._clock = api, directory, clock
        self._on_state, self._pace = on_state, pace or Pace()
        self._random = np.random.default_rng(seed)
        self._path = path(API_VERSION, namespace, PLURAL, "")
        self._failures = 0
        self._told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"watch {namespace}", daemon=True)

    def start(self) -> None:
        """Follow from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End; a call under way is not waited for."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def look(self) -> str:
        """Read the whole list once, in the caller's thread; returns its version.

        Raises:
            TargetError: it cannot be read.
        """
        found: list[WidthAutoscaler] = []
        query = {"limit": str(_PAGE)}
        for _ in range(_PAGES):
            answer = self._api.get(self._path, None, **query)
            items, metadata = answer.get("items"), answer.get("metadata")
            if not isinstance(items, list) or not isinstance(metadata, Mapping):
                raise TargetError(f"GET {self._path}: must answer a list with metadata")
            objects = (parse(item) for item in items if isinstance(item, Mapping))
            found += [one for one in objects if one is not None]
            if not metadata.get("continue"):
                self._directory.replace(self.namespace, found)
                return str(metadata.get("resourceVersion") or "")
            query["continue"] = str(metadata["continue"])
        raise TargetError(f"GET {self._path}: must have at most {_PAGE * _PAGES} objects")

    def _work(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self.look()
                version = self._follow(version)
                self._worked()
            except TargetError as error:
                version = ""
                self._failed(error)

    def _follow(self, version: str) -> str:
        """Take events in until the server ends the watch; the version to go on from.

        Raises:
            Expired: 410 in the stream.
            TargetError: the connection, or an end that is none: at once, and without a word.
        """
        pace, began_s = self._pace, self._clock.now_s()
        events = self._api.watch(self._path, pace.watch_s, pace.silence_s, resourceVersion=version)
        first = version
        with closing(events):
            for event in events:
                if self._stopping.is_set():
                    break
                version = self._take(event) or version
                self._worked()
        lasted_s = self._clock.now_s() - began_s
        if version == first and lasted_s < min(1.0, pace.watch_s / 2):
            raise TargetError(f"GET {self._path} (watch): ended after {lasted_s:.1f} s in silence")
        return version

    def _take(self, event: Mapping[str, Any]) -> str:
        """One event into the directory; the version that it stands for, "" if it names none."""
        kind, found = event.get("type"), event.get("object")
        if not isinstance(found, Mapping):
            raise TargetError(f"GET {self._path} (watch): an event must have an object")
        if kind == "ERROR":
            said = f"GET {self._path} (watch): {found.get('code')}: {found.get('message')!s:.300}"
            raise Expired(said) if found.get("code") == 410 else TargetError(said)
        metadata = found.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        if kind in ("ADDED", "MODIFIED"):
            one = parse(found)
            if one is None:  # about to be deleted
                self._directory.drop(f"{self.namespace}/{metadata.get('name')}")
            else:
                self._directory.put(one)
        elif kind == "DELETED":
            self._directory.drop(f"{self.namespace}/{metadata.get('name')}")
        return str(metadata.get("resourceVersion") or "")

    def _worked(self) -> None:
        self._failures = 0
        if self._told:
            self._told = False
            self._on_state(self.namespace, None)

    def _failed(self, error: TargetError) -> None:
        self._failures += 1
        jitter = float(self._random.random())
        wait_s = max(self._pace.wait_s(self._failures, jitter), self._api.asked_to_wait_s)
        if isinstance(error, TargetForbidden):
            wait_s = _WAIT_FORBIDDEN_S * (1.0 - 0.5 * jitter)
        # One failure is every restart of the server, and an old version is no failure at all.
        if not self._told and (self._failures > 1 or isinstance(error, TargetForbidden | Gone)):
            self._told = True
            self._on_state(self.namespace, error)
        self._stopping.wait(wait_s)
