"""Tables, as ``kubectl get`` asks for them: the server works out the columns."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from autoscaler.testing_apiserver._resources import Resource
from autoscaler.testing_apiserver._status import Json

_STEP = re.compile(r"\.([\w-]+)|\[\?\(@\.(\w+)==\"([^\"]*)\"\)\]")
_NAME: Json = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
_AGE: Json = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def wanted(accept: str) -> bool:
    """Whether a request's ``Accept`` asks for a table first."""
    first = accept.partition(",")[0]
    return "as=Table" in first and "g=meta.k8s.io" in first


def table(resource: Resource, items: Sequence[Json], metadata: Json, now: datetime) -> Json:
    """The table of some objects."""
    columns = resource.columns or (_AGE,)
    definitions = [_NAME]
    for column in columns:
        told = {key: column.get(key, "") for key in ("name", "type", "format", "description")}
        definitions.append({**told, "priority": column.get("priority", 0)})
    rows = [
        {
            "cells": [item["metadata"]["name"], *(_cell(column, item, now) for column in columns)],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            },
        }
        for item in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def age(seconds: float) -> str:
    """A duration as Kubernetes writes it for people."""
    s = int(seconds)
    if s < 120:
        return f"{s}s"
    if s < 600:
        return f"{s // 60}m{s % 60}s" if s % 60 else f"{s // 60}m"
    if s < 3 * 3600:
        return f"{s // 60}m"
    if s < 8 * 3600:
        return f"{s // 3600}h{s // 60 % 60}m" if s // 60 % 60 else f"{s // 3600}h"
    return f"{s // 3600}h" if s < 48 * 3600 else f"{s // 86_400}d"


def _cell(column: Mapping[str, Any], item: Json, now: datetime) -> Any:
    found = _at(item, column["jsonPath"])
    if column["type"] != "date":
        return found
    if not isinstance(found, str):
        return "<unknown>"
    return age((now - datetime.fromisoformat(found)).total_seconds())


def _at(found: Any, path: str) -> Any:
    """What a JSONPath of names and equalities leads to; None: nothing."""
    for name, key, value in _STEP.findall(path):
        if name:
            found = found.get(name) if isinstance(found, dict) else None
        else:
            entries = found if isinstance(found, list) else []
            found = next((one for one in entries if one.get(key) == value), None)
    return found
