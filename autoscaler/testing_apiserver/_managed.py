"""Who set which field of an object last, as ``metadata.managedFields`` has it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from autoscaler.testing_apiserver._patch import Owners
from autoscaler.testing_apiserver._status import Json

_ENTRY = re.compile(r'\[name="(.*)"\]')


def managed_fields(api_version: str, owners: Owners, wrote_at: Mapping[str, str]) -> list[Json]:
    """One entry for each manager that has a name and owns something below ``spec``.

    Args:
        api_version: of the object.
        owners: who set each field last.
        wrote_at: when each manager wrote last.
    """
    trees: dict[str, Json] = {}
    for path, manager in owners.items():
        if manager:
            at: dict[str, Any] = trees.setdefault(manager, {})
            for step in path:
                at = at.setdefault(_key(step), {})
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": api_version,
            "time": wrote_at[manager],
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        for manager, tree in trees.items()
    ]


def _key(step: str) -> str:
    named = _ENTRY.fullmatch(step)
    if named is None:
        return "f:" + step.removeprefix(".")
    return "k:" + json.dumps({"name": named[1]}, separators=(",", ":"))
