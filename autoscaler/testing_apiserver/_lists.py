"""Lists: selectors, and pages of the objects as they were at the first page."""

import base64
import json
from collections.abc import Mapping

from autoscaler.testing_apiserver import _table
from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import ApiError, Json
from autoscaler.testing_apiserver._store import Store
from autoscaler.testing_apiserver._watch import selects


def listed(
    store: Store,
    resource: Resource,
    namespace: str,
    query: Mapping[str, str],
    accept: str = "",
) -> Json:
    """The answer to a list call; ``accept`` is the header, which may ask for a table."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    limit, token = int(query.get("limit") or 0), query.get("continue", "")
    with store.changed:
        version, items = store.version, store.list(resource, namespace)
    after = ""
    if token:
        version, after = _read_token(token)
        if version < store.oldest:
            message = (
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
            raise ApiError(410, "Expired", message)
        # The fake keeps no old objects: what is newer than the first page is left out instead.
        items = [o for o in items if int(o["metadata"]["resourceVersion"]) <= version]
    found = [o for o in items if selects(labels, o) and _fields_select(resource, fields, o)]
    left = [o for o in found if _key(o) > after]
    page = left[:limit] if limit else left
    metadata: Json = {"resourceVersion": str(version)}
    if len(page) < len(left):
        metadata["continue"] = _token(version, _key(page[-1]))
        if not labels and not fields:
            metadata["remainingItemCount"] = len(left) - len(page)
    if _table.wanted(accept):
        return _table.table(resource, page, metadata, store.now())
    if resource.custom:
        metadata.setdefault("continue", "")
    if not resource.custom:
        for item in page:
            del item["kind"], item["apiVersion"]
    kind = f"{resource.kind}List"
    return {
        "kind": kind,
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": page,
    }


def _key(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _fields_select(resource: Resource, selector: str, obj: Json) -> bool:
    """Whether a field selector of equalities (``a=b,c!=d``) selects the object."""
    for term in selector.split(",") if selector else ():
        path, unequal, value = term.partition("!=")
        if not unequal:
            path, _, value = term.replace("==", "=").partition("=")
        if path not in (*resource.fields, "metadata.name", "metadata.namespace"):
            message = (
                f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match '
                f'label selector "", field selector "{selector}": field label not supported: {path}'
            )
            raise ApiError(400, "BadRequest", message)
        found: object = obj
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if ((found or "") == value) == bool(unequal):
            return False
    return True


def _token(version: int, after: str) -> str:
    content = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": after})
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(content["rv"]), str(content["start"])
    except (ValueError, KeyError, TypeError):
        message = f"continue key is not valid: {token[:40]}"
        raise ApiError(400, "BadRequest", message) from None
