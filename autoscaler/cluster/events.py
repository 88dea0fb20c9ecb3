"""Writes Events of an object to its API server, in a thread of its own: never in anybody's way.

Best effort, as Events are: nothing is sent twice, and what does not go out is counted and gone.
"""

import queue
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from autoscaler.cluster.connection import Access, Connection, Json, path
from autoscaler.errors import AutoscalerError
from autoscaler.model import ObjectReference

CONTROLLER = "elastic-width.io/autoscaler"
"""Who tells, in every Event."""

_WAITING = 100
"""Events that may wait to be sent: far more than there are changes while one call lasts."""

_NOTE_BYTES, _NAME_CHARS, _INSTANCE_CHARS = 1024, 220, 128  # limits of the API


@dataclass(frozen=True, slots=True)
class Note:
    """One Event to be written.

    Args:
        about: the object.
        reason: stable word, at most 128 characters.
        warning: whether it is one.
        message: for people; cut at 1024 bytes.
        at_s: when it happened, Unix seconds.
    """

    about: ObjectReference
    reason: str
    warning: bool
    message: str
    at_s: float


class EventWriter:
    """Sends Events one after the other.

    Args:
        access: where the API server is and as whom to speak; its deadline is that of one Event.
        on_lost: called for each Event that does not go out, with a word for what went wrong.
        on_state: called when sending begins to fail, with what went wrong, and with None when it
            works again: an outage is said once.
    """

    def __init__(
        self,
        access: Access,
        on_lost: Callable[[str], None],
        on_state: Callable[[str | None], None],
    ) -> None:
        self._access = access
        self._on_lost, self._on_state = on_lost, on_state
        self._waiting: queue.Queue[Note | None] = queue.Queue(_WAITING)
        self._thread: threading.Thread | None = None
        self._failing = False

    def submit(self, note: Note) -> None:
        """Have an Event sent soon; returns at once, also where there is no room for it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="events", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(note)
        except queue.Full:
            self._on_lost("Dropped")

    def close(self, timeout_s: float) -> bool:
        """Send what waits, for at most ``timeout_s``; whether all of it is out."""
        if self._thread is None:
            return True
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return False  # as many as that are not sent in time anyway
        self._thread.join(max(timeout_s, 0.0))
        return not self._thread.is_alive()

    def _work(self) -> None:
        connection: Connection | None = None
        while (note := self._waiting.get()) is not None:
            problem = None
            try:
                connection = connection or Connection(self._access)
                at = path("events.k8s.io/v1", note.about.namespace or "default", "events", "")
                connection.send("POST", at, _body(note))
            except AutoscalerError as error:
                problem = str(error)
                self._on_lost(type(error).__name__)
            if (problem is not None) != self._failing:
                self._failing = problem is not None
                self._on_state(problem)
        if connection is not None:
            connection.close()


def _body(note: Note) -> Json:
    about = note.about
    at = datetime.fromtimestamp(note.at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    regarding = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            # A name of our own: a prefix for the server to complete must not end with a dot.
            "name": f"{about.name[:_NAME_CHARS].rstrip('-.')}.{uuid.uuid4().hex[:16]}",
            "namespace": about.namespace or "default",
        },
        "eventTime": at,
        "reportingController": CONTROLLER,
        "reportingInstance": socket.gethostname()[:_INSTANCE_CHARS] or "autoscaler",
        "action": "Scale",
        "reason": note.reason,
        "regarding": {key: value for key, value in regarding.items() if value},
        "note": note.message.encode()[:_NOTE_BYTES].decode(errors="ignore"),
        "type": "Warning" if note.warning else "Normal",
    }
