"""Watches: the history from a version on, then what happens, a bookmark, and the end."""

import threading
from collections.abc import Iterator, Mapping

from autoscaler.clock import SystemClock
from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import ApiError, Json
from autoscaler.testing_apiserver._store import Store


def selects(selector: str, obj: Json) -> bool:
    """Whether a label selector of equalities (``a=b,c!=d,e``) selects the object."""
    labels = obj["metadata"].get("labels") or {}
    for term in selector.split(",") if selector else ():
        key, unequal, value = term.partition("!=")
        if unequal:
            if labels.get(key) == value:
                return False
            continue
        key, equal, value = term.replace("==", "=").partition("=")
        if key not in labels or (equal and labels[key] != value):
            return False
    return True


def watch(
    store: Store,
    resource: Resource,
    namespace: str,
    query: Mapping[str, str],
    seconds: float,
    closing: threading.Event,
) -> Iterator[Json]:
    """The events, until the time is over or the server is closed."""
    clock = SystemClock()
    end_s = clock.now_s() + seconds
    selector, version = query.get("labelSelector", ""), int(query.get("resourceVersion") or 0)
    if version == 0:
        with store.changed:
            version, present = store.version, store.list(resource, namespace)
        yield from ({"type": "ADDED", "object": o} for o in present if selects(selector, o))
    elif version < store.oldest:
        message = f"too old resource version: {version} ({store.oldest})"
        yield {"type": "ERROR", "object": ApiError(410, "Expired", message).status}
        return
    while True:
        for event in store.since(version):
            version = event.version
            meant = event.resource is resource and namespace in ("", event.namespace)
            if meant and selects(selector, event.object):
                yield {"type": event.type, "object": event.object}
        with store.changed:
            left_s = end_s - clock.now_s()
            if left_s <= 0 or closing.is_set():
                break
            if store.version <= version:
                store.changed.wait(left_s)
    if query.get("allowWatchBookmarks") in ("1", "true"):
        mark = {"resourceVersion": str(version)}
        kind = {"kind": resource.kind, "apiVersion": resource.api_version}
        yield {"type": "BOOKMARK", "object": {**kind, "metadata": mark}}
