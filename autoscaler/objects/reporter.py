"""Writes the status of objects in a thread of its own, so that no loop ever waits for it.

Only the newest report of an object counts; what changes with every tick is written at most every
15 s. A write is on condition that the object is still the one that was seen: after a conflict the
watch shows the newer one, and the status is worked out against that.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import MERGE_PATCH, Connection, path
from autoscaler.errors import TargetConflict, TargetError, TargetForbidden, TargetRefused
from autoscaler.objects.conditions import Report, kept
from autoscaler.objects.directory import Directory
from autoscaler.objects.resource import API_VERSION, PLURAL, WidthAutoscaler
from autoscaler.objects.status import Worth, patch_of, status_of, worth
from autoscaler.ports import Clock

_SOON_S = 15.0  # as often as the HPA writes its own
_CHECK_S = 1.0
_WAIT_FIRST_S, _WAIT_MAX_S, _WAIT_FORBIDDEN_S = 1.0, 30.0, 60.0


class Reporter:
    """Keeps statuses true.

    Args:
        api: a connection of its own.
        directory: the objects as they were seen last.
        clock: monotonic, for pauses.
        wall_s: Unix time, s, for the time stamps in statuses.
        on_state: called when writing begins to fail, with the error, and with None when it works
            again.
    """

    def __init__(
        self,
        api: Connection,
        directory: Directory,
        clock: Clock,
        wall_s: Callable[[], float],
        on_state: Callable[[TargetError | None], None],
    ) -> None:
        self._api, self._directory, self._clock = api, directory, clock
        self._wall_s, self._on_state = wall_s, on_state
        self._changed = threading.Condition()
        self._ticked: dict[str, Report] = {}
        self._refused: dict[str, Report] = {}
        self._dirty: set[str] = set()
        self._written_at_s: dict[str, float] = {}
        self._quiet_until_s = clock.now_s()
        self._failures = 0
        self._told = False
        self._random = np.random.default_rng()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="statuses", daemon=True)

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End; a call under way is not waited for."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ticked(self, key: str, report: Report) -> None:
        """A tick is over; called in the loop's thread, returns at once."""
        with self._changed:
            self._ticked[key] = report
            self._dirty.add(key)
            self._changed.notify()

    def refused(self, key: str, report: Report | None) -> None:
        """The object's spec is not gone by; None: it is."""
        with self._changed:
            if report is None:
                self._refused.pop(key, None)
            else:
                self._refused[key] = report
            self._dirty.add(key)
            self._changed.notify()

    def forget(self, key: str) -> None:
        """Nothing steers the object any more: what the last tick said is not true now."""
        with self._changed:
            self._ticked.pop(key, None)
            self._written_at_s.pop(key, None)

    def write_due(self) -> None:
        """Write what is due, in the caller's thread."""
        if self._clock.now_s() < self._quiet_until_s:
            return
        with self._changed:
            due, self._dirty = sorted(self._dirty), set()
        for i, key in enumerate(due):
            try:
                written = self._write(key)
            except (Gone, TargetConflict):
                # What there is now is known as soon as the watch has shown it.
                written = self._directory.get(key) is None
            except TargetRefused as error:  # this one status, until it says something else
                self._tell(error)
                written = True
            except TargetError as error:
                self._failed(error)
                self._again(*due[i:])
                return
            if not written:
                self._again(key)

    def _write(self, key: str) -> bool:
        """Write one status if it is due; whether nothing is left to write."""
        found, report = self._directory.get(key), self._report(key)
        if found is None or report is None:
            return True
        now_s = self._clock.now_s()
        instant = datetime.fromtimestamp(self._wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = status_of(report, found.status, instant)
        weight = worth(found.status, status)
        if weight is Worth.NOTHING:
            return True
        since_s = now_s - self._written_at_s.get(key, now_s - _SOON_S)
        if weight is Worth.SOON and since_s < _SOON_S:
            return False
        self._send(found, status)
        self._written_at_s[key] = now_s
        self._worked()
        return True

    def _send(self, found: WidthAutoscaler, status: dict[str, object]) -> None:
        where = path(API_VERSION, found.namespace, PLURAL, found.name, "status")
        metadata = {"resourceVersion": found.version, "uid": found.uid}
        body = {"metadata": metadata, "status": patch_of(found.status, status)}
        written = self._api.patch(where, body, MERGE_PATCH)
        made = written.get("metadata")
        version = made.get("resourceVersion") if isinstance(made, dict) else None
        if isinstance(version, str):
            self._directory.wrote(found.key, found.uid, version, status)

    def _report(self, key: str) -> Report | None:
        with self._changed:
            ticked, refused = self._ticked.get(key), self._refused.get(key)
        if ticked is None or refused is None:
            return ticked or refused
        return kept(ticked, refused)

    def _again(self, *keys: str) -> None:
        with self._changed:
            self._dirty.update(keys)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._stopping and not self._dirty:
                    self._changed.wait()
                if self._stopping:
                    return
            self.write_due()
            with self._changed:
                if self._dirty and not self._stopping:  # held back, or failed: not at once again
                    self._changed.wait(_CHECK_S)

    def _worked(self) -> None:
        self._failures = 0
        if self._told:
            self._told = False
            self._on_state(None)

    def _failed(self, error: TargetError) -> None:
        self._failures += 1
        wait_s = min(_WAIT_FIRST_S * 2.0 ** min(self._failures - 1, 16), _WAIT_MAX_S)
        if isinstance(error, TargetForbidden):
            wait_s = _WAIT_FORBIDDEN_S
        wait_s = max(wait_s * (1.0 - 0.5 * float(self._random.random())), self._api.asked_to_wait_s)
        self._quiet_until_s = self._clock.now_s() + wait_s
        self._tell(error)

    def _tell(self, error: TargetError) -> None:
        if not self._told:
            self._told = True
            self._on_state(error)
