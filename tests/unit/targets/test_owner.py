"""Whose width it is."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from autoscaler.cluster.answers import Gone
from autoscaler.cluster.connection import Access, Connection
from autoscaler.targets import gpustack
from autoscaler.targets._owner import owner

EXCHANGES = Path(__file__).parents[2] / "data" / "apiserver" / "exchanges.jsonl"
WIDTH = ("f:spec", "f:roles", 'k:{"name":"server"}', "f:elasticEp", "f:width")


def recorded() -> dict[str, Any]:
    for line in EXCHANGES.read_text().splitlines():
        exchange = json.loads(line)
        if exchange["name"] == "json patch width 2 to 4 with tests":
            return cast(dict[str, Any], exchange["response"]["body"])
    raise AssertionError("not recorded")


def entry(manager: str, time: str, *field: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key in reversed(field):
        fields = {key: fields}
    return {"manager": manager, "time": time, "fieldsV1": fields}


@pytest.mark.parametrize(
    ("entries", "who"),
    [
        ([entry("a", "1", *WIDTH), entry("b", "2", *WIDTH)], "b"),
        ([entry("a", "1", *WIDTH), entry("b", "2", "f:status")], "a"),
        ([entry("a", "1", "f:spec", "f:roles")], "a"),
        ([entry("a", "1", "f:spec", "f:model")], ""),
        ([{"manager": "a", "time": "1", "fieldsV1": {}}], ""),
        ([{}, 1, None], ""),
        (None, ""),
    ],
)
def test_the_newest_manager_of_the_field_is_its_owner(entries: Any, who: str) -> None:
    assert owner({"metadata": {"managedFields": entries}}, WIDTH) == who


class Answers:
    access = Access()

    def __init__(self, deployment: dict[str, Any]) -> None:
        self.deployment = deployment

    def time_left_s(self, until_s: float) -> float:
        return self.access.timeout_s

    def deadline_s(self) -> float:
        return 0.0

    def get(self, path: str, until_s: float | None = None, **query: str) -> dict[str, Any]:
        if "modeldeployments" not in path:
            raise Gone(path)
        return self.deployment


def test_another_writer_of_the_width_is_named_A17() -> None:
    found = recorded()
    api = cast(Connection, Answers(found))
    target = gpustack.GpuStack(gpustack.Params("gpustack-bench", "b2-elastic-ep"), api)
    assert target.read().detail.endswith("the width was last set by 'python-requests'")
    found["metadata"]["managedFields"][0]["manager"] = "autoscaler"
    assert "last set" not in target.read().detail
