"""Watches: the history from a version on, then what happens, a bookmark, and the end."""

import threading
from collections.abc import Iterator, Mapping

from autoscaler.clock import SystemClock
from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import ApiError, Json
from autoscaler.testing_apiserver._store import Store

_BOOKMARK_S = 60.0


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
    second_s: float,
    closing: threading.Event,
) -> Iterator[Json]:
    """The events, and a bookmark a minute, until the time is over or the server is closed.

    ``second_s``: real seconds that one second lasts here.
    """
    clock = SystemClock()
    end_s = clock.now_s() + float(query.get("timeoutSeconds", "1800")) * second_s
    marks = query.get("allowWatchBookmarks") in ("1", "true")
    mark_s = clock.now_s() + _BOOKMARK_S * second_s
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
                due_s = max(mark_s - clock.now_s(), 0.0) if marks else left_s
                store.changed.wait(min(left_s, due_s))
        if marks and clock.now_s() >= mark_s:
            mark_s += _BOOKMARK_S * second_s
            yield _bookmark(resource, version)
    if marks:
        yield _bookmark(resource, version)


def _bookmark(resource: Resource, version: int) -> Json:
    mark = {"resourceVersion": str(version)}
    kind = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {"type": "BOOKMARK", "object": {**kind, "metadata": mark}}
