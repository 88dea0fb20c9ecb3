"""Whether there are GPUs for a wider deployment: Kueue's quota, and what the nodes have free.

Looks now and then, page by page within the time that a tick has to spare, and remembers. What may
not be seen is unknown, and no reason against anything.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.cluster import quota
from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import Connection, Json, path
from autoscaler.cluster.nodes import Nodes
from autoscaler.cluster.pods import Shape, Unknown, sequence
from autoscaler.errors import ConfigError, TargetError, TargetForbidden

_EVERY = 6
"""Ticks from one look to the next: half a minute with ticks of 5 s, a fifth of a resize."""

_AGAIN = 120
"""Ticks until it is tried again where nothing may be seen: permissions change once in a while."""

_NODES, _PODS = 100, 250
"""Objects a page. At 15 kB a Pod and 30 kB a node, pages stay below 4 MB, half of what is taken."""

_RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

Found = Generator[None, None, tuple[int | None, str]]
"""Looks at one layer, a step a call: Pods that it has room for (None: no limit), and why."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a look found.

    Args:
        gpus: that the deployment could get besides those it has, in whole units of width; None:
            unknown, or unlimited as far as may be seen.
        detail: for people: the layer that has the least, or why nothing is known.
    """

    gpus: int | None
    detail: str


_NOT_YET = Room(None, "not looked at yet")


class Capacity:
    """Looks for one deployment's GPUs.

    Args:
        api: the API server; the target's own connection, in the target's own thread.
        namespace: of the deployment.
        shape: what one more Pod asks for, read anew for each look.
        queued: whether Pods that name no queue go to the namespace's only one.
    """

    def __init__(
        self,
        api: Connection,
        namespace: str,
        shape: Callable[[float], Shape],
        *,
        queued: bool,
    ) -> None:
        self.room = _NOT_YET
        self._api, self._namespace = api, namespace
        self._shape, self._queued = shape, queued
        self._look: Iterator[None] | None = None
        self._wait = 0  # ticks until the next look
        self._until_s = 0.0  # when the present tick's share of time is over
        self._kueue: tuple[str, ...] = quota.VERSIONS

    def tick(self, until_s: float) -> None:
        """Go on looking, if it is time to; for at most half of what one reading may take.

        No page is begun after a quarter of it: cut short, it would have to be read again.

        Args:
            until_s: when the reading that this is a part of has to be over (``deadline_s()``).
        """
        if self._look is None:
            self._wait -= 1
            if self._wait >= 0:
                return
            self._look = self._looking()
        quarter_s = self._api.access.timeout_s / 4
        begun_by_s = self._api.deadline_s() - 3 * quarter_s
        self._until_s = min(until_s, begun_by_s + quarter_s)
        for _ in self._look:
            if self._api.time_left_s(begun_by_s) <= 0:
                return  # the next tick goes on with the next page
        self._look = None

    def look(self) -> Room:
        """Look now, to the end.

        Returns:
            What was found.
        """
        for _ in self._looking():
            self._until_s = self._api.deadline_s()
        return self.room

    def _looking(self) -> Iterator[None]:
        """One look; every step is one call."""
        yield
        try:
            shape = self._shape(self._until_s)
        except (ConfigError, TargetError, Unknown) as error:  # ConfigError: unreadable arguments
            self._found(Room(None, f"unknown: {error}"), forbidden=_forbids(error))
            return
        layers: list[tuple[int, str]] = []
        unknown: list[str] = []
        unlimited: list[str] = []
        forbidden = 0
        for layer in (self._quota(shape), self._nodes(shape)):
            try:
                pods, detail = yield from layer
            except (TargetError, Unknown) as error:
                unknown.append(str(error))
                forbidden += _forbids(error)
                continue
            if pods is None:
                unlimited += [detail] if detail else []
            else:
                layers.append((pods // shape.pods_per_width, detail))
        if layers:
            widths, detail = min(layers)
            gpus = widths * shape.pods_per_width * shape.gpus
            self._found(Room(gpus, detail), forbidden=False)
        else:
            detail = "; ".join(unknown + unlimited)
            self._found(Room(None, f"unknown: {detail}"), forbidden=forbidden > 0)

    def _found(self, room: Room, *, forbidden: bool) -> None:
        self.room = room
        self._wait = _AGAIN if forbidden else _EVERY

    def _quota(self, shape: Shape) -> Found:
        """What Kueue admits; no limit where it is not there, or not in charge."""
        if not shape.queue and not self._queued:
            return None, ""
        queues: Sequence[Any] | None = None
        for version in self._kueue:
            yield
            try:
                page = self._get(version, self._namespace, "localqueues", "")
            except Gone:  # this version is not served, or Kueue is not installed
                continue
            queues, self._kueue = sequence(page.get("items")), (version,)
            break
        if queues is None:
            return None, ""
        local = quota.local_queue(queues, shape.queue)
        if local is None:
            return None, ""
        yield
        name = quota.cluster_queue_name(local)
        return quota.pods(local, self._get(self._kueue[0], "", "clusterqueues", name), shape)

    def _nodes(self, shape: Shape) -> Found:
        """What the nodes have free."""
        nodes = Nodes(shape)
        for page in self._pages("nodes", limit=str(_NODES)):
            nodes.add_nodes(page)
            yield
        for page in self._pages("pods", limit=str(_PODS), fieldSelector=_RUNNING):
            nodes.add_pods(page)
            yield
        return nodes.pods, nodes.detail

    def _pages(self, plural: str, **query: str) -> Iterator[list[Any]]:
        """Every object of the cluster, page by page."""
        at, token = path("v1", "", plural, ""), ""
        while True:
            more = {"continue": token} if token else {}
            page = self._api.get(at, self._until_s, **query, **more)
            yield list(sequence(page.get("items")))
            metadata = page.get("metadata")
            token = str(metadata.get("continue") or "") if isinstance(metadata, Mapping) else ""
            if not token:
                return

    def _get(self, version: str, namespace: str, plural: str, name: str) -> Json:
        at = path(f"{quota.GROUP}/{version}", namespace, plural, name)
        return self._api.get(at, self._until_s)


def _forbids(error: Exception) -> bool:
    return isinstance(error, TargetForbidden)
