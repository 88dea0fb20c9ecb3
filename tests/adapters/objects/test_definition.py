"""The definition as an API server goes by it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cluster.connection import Access, Connection, path
from autoscaler.errors import TargetRefused
from autoscaler.objects.resource import API_VERSION, PLURAL
from autoscaler.testing_apiserver import ApiServer

from .test_watching import CRD, SPEC

OBJECTS = path(API_VERSION, "here", PLURAL, "")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Connection]:
    with ApiServer() as server:
        server.install(CRD)
        connection = Connection(Access(server.kubeconfig(tmp_path / "kubeconfig")))
        yield connection
        connection.close()


def create(api: Connection, spec: dict[str, Any], **query: str) -> dict[str, Any]:
    return api.send("POST", OBJECTS, {"metadata": {"name": "a"}, "spec": spec}, **query)


def test_what_the_schema_knows_is_kept_and_the_status_is_a_subresource(api: Connection) -> None:
    spec = SPEC | {"guards": {"max_width": None, "min_width": 2}, "policy_params": {"kp": 0.1}}
    assert create(api, spec)["spec"] == spec
    assert "status" not in api.get(path(API_VERSION, "here", PLURAL, "a"))


def test_a_mistyped_limit_is_refused_where_fields_are_validated_A14(api: Connection) -> None:
    spec = SPEC | {"guards": {"max_widht": 3}}
    with pytest.raises(TargetRefused, match=r'unknown field "spec\.guards\.max_widht"'):
        create(api, spec, fieldValidation="Strict")  # as kubectl does by itself
    assert create(api, spec)["spec"]["guards"] == {}, "others lose it without a word"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": None}, "spec.policy"),
        ({"target": {"kind": "gpu"}}, 'Unsupported value: "gpu"'),
        ({"guards": {"min_width": -1}}, "greater than or equal to 0"),
        ({"slo": {"window_s": "long"}}, "must be of type number"),
        ({"convergence": {"timeout_s": 0}}, "should be greater than 0"),
        ({"policy": ""}, "at least 1 chars long"),
        ({"shadow": ["hold"] * 17}, "must have at most 16 items"),
    ],
    ids=json.dumps,
)
def test_what_the_schema_rules_out_is_refused_at_once(
    api: Connection, change: dict[str, Any], message: str
) -> None:
    spec = {key: value for key, value in {**SPEC, **change}.items() if value is not None}
    with pytest.raises(TargetRefused) as caught:
        create(api, spec)
    assert message in str(caught.value)
