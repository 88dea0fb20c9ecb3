"""Whatever an API answers: a reading, or a TargetError that says what is wrong. Never a crash."""

import copy
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.cluster.answers import Gone, error_of, outcome
from autoscaler.cluster.connection import Access, Connection
from autoscaler.errors import TargetError
from autoscaler.model import WidthStatus
from autoscaler.targets import gpustack, kserve, scale_subresource
from autoscaler.targets._observation import observed, operation

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
LAYER = {"Known": True, "Value": 4, "Reason": ""}
LAYERS = dict.fromkeys(("desired", "admitted", "allocated", "ray", "effective"), LAYER)
OBSERVATION = {
    "deploymentUID": "u",
    "observedGeneration": 2,
    **LAYERS,
    "state": "",
    "reason": "native ranks and forwards agree",
    "stableWidth": 4,
    "masterUID": "m",
}
OPERATION = {
    "name": "a",
    "width": {"old": 2, "target": 4},
    "state": "CommandSent",
    "scaleAttempts": 1,
    "scaleLastError": "no",
}
ROLE = {"name": "s", "elasticEp": {"width": 4}, "extraArgs": ["-tp", "2"]}
DEPLOYMENT = {
    "metadata": {"uid": "u", "generation": 2},
    "spec": {"roles": [ROLE]},
    "status": {"conditions": [{"type": "ElasticResize", "status": "True", "message": ""}]},
}
SCALED = {
    "metadata": {"uid": "u", "generation": 1, "resourceVersion": "1"},
    "spec": {"replicas": 2, "dgdRef": {"name": "g", "componentName": "c"}},
    "status": {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "activeReplicas": 2,
        "conditions": [
            {"type": "Available", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
        "components": {"c": {"readyReplicas": 2}},
    },
}


class Answers:
    """Gives what it has for the first word that the path contains."""

    access = Access()

    def __init__(self, **documents: Any) -> None:
        self.documents = documents

    def time_left_s(self, until_s: float) -> float:
        return self.access.timeout_s

    def deadline_s(self) -> float:
        return 0.0

    def get(self, path: str, until_s: float | None = None, **query: str) -> dict[str, Any]:
        for word, document in self.documents.items():
            if word.replace("_", "-") in path:
                return cast(dict[str, Any], document)
        raise Gone(path)


def places(found: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(found, dict | list):
        entries = found.items() if isinstance(found, dict) else enumerate(found)
        for key, value in entries:
            yield from places(value, (*at, key))


@st.composite
def damaged(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    """The document with something else at one place, or without it."""
    place = draw(st.sampled_from([p for p in places(whole) if p]))
    broken = copy.deepcopy(whole)
    parent: Any = broken
    for key in place[:-1]:
        parent = parent[key]
    if draw(st.booleans()) and isinstance(parent, dict):
        del parent[place[-1]]
    else:
        parent[place[-1]] = draw(JSON)
    return broken


def config_map(key: str, document: Any) -> dict[str, Any]:
    return {"data": {key: json.dumps(document)}}


def gpu_stack(**documents: Any) -> gpustack.GpuStack:
    return gpustack.GpuStack(gpustack.Params("n", "a"), cast(Connection, Answers(**documents)))


def read(target: Any) -> WidthStatus | None:
    try:
        status = target.read()
    except TargetError:
        return None
    assert isinstance(status, WidthStatus)
    for value in (status.effective, status.stable, *(layer.value for layer in status.layers)):
        assert value is None or type(value) is int
    return status


@settings(deadline=None)
@given(damaged(OBSERVATION))
def test_a_damaged_observation_is_no_proof_of_another_width(document: dict[str, Any]) -> None:
    maps = {"elastic_observation": config_map("observation.json", document)}
    status = read(gpu_stack(modeldeployments=DEPLOYMENT, **maps))
    if status is not None and status.effective is not None:
        assert status.effective == cast(Any, document["effective"])["Value"]


@settings(deadline=None)
@given(damaged(OPERATION), damaged(DEPLOYMENT))
def test_a_damaged_deployment_or_operation_is_an_error_or_a_reading(
    record: dict[str, Any], deployment: dict[str, Any]
) -> None:
    maps = {
        "elastic_observation": config_map("observation.json", OBSERVATION),
        "elastic_resize": config_map("operation.json", record),
    }
    read(gpu_stack(modeldeployments=DEPLOYMENT, **maps))
    read(gpu_stack(modeldeployments=deployment, **maps))


@settings(deadline=None)
@given(damaged(SCALED), st.sampled_from(list(scale_subresource.KINDS)))
def test_a_damaged_scaled_object_is_an_error_or_a_reading(
    document: dict[str, Any], workload: str
) -> None:
    params = scale_subresource.Params("n", "a", workload, 8, 1)
    for answers in (Answers(n=document), Answers(deployments_=SCALED, adapters=document, n=SCALED)):
        read(scale_subresource.ScaleSubresource(params, cast(Connection, answers)))


@settings(deadline=None)
@given(damaged(SCALED), damaged(SCALED))
def test_a_damaged_kserve_object_is_an_error_or_a_reading(
    service: dict[str, Any], workload: dict[str, Any]
) -> None:
    params = kserve.Params("n", "a", "deployment", "w", 8, 1)
    for answers in (
        Answers(llminferenceservices=service, deployments=SCALED),
        Answers(llminferenceservices=SCALED, deployments=workload),
    ):
        read(kserve.KServe(params, cast(Connection, answers)))


@given(JSON)
def test_documents_of_any_shape_are_errors(document: Any) -> None:
    for parse, key in ((observed, "observation.json"), (operation, "operation.json")):
        for found in (config_map(key, document), {"data": document}):
            with pytest.raises(TargetError):
                parse("it", found)


@given(st.integers(300, 599), st.binary(max_size=50) | JSON.map(lambda j: json.dumps(j).encode()))
def test_refusals_of_any_shape_are_target_errors(status: int, content: bytes) -> None:
    error = error_of("GET /", status, "x", content)

    def write() -> dict[str, Any]:
        raise error

    assert outcome(write).detail == str(error)


def test_the_whole_documents_are_read() -> None:
    status = read(
        gpu_stack(
            modeldeployments=DEPLOYMENT,
            elastic_observation=config_map("observation.json", OBSERVATION),
            elastic_resize=config_map("operation.json", OPERATION),
        )
    )
    assert status is not None
    assert (status.desired, status.effective, status.resizing) == (4, 4, True)
    assert status.detail.endswith("operation CommandSent to 4, attempt 1: no")


@pytest.mark.parametrize(
    ("condition", "effective", "refusal"),
    [
        ({"status": "True", "reason": "NoRefusal"}, 4, None),
        ({"status": "False", "reason": "ScaleRefused", "message": "2 to 4: no"}, 4, "2 to 4: no"),
        ({"status": "False"}, 4, "the engine refused"),
        ({"status": "Unknown", "reason": "WorldUnprovable"}, None, None),
    ],
)
def test_the_condition_overrules_the_documents(
    condition: dict[str, str], effective: int | None, refusal: str | None
) -> None:
    conditions = [{"type": "ElasticResize", **condition}]
    status = read(
        gpu_stack(
            modeldeployments={**DEPLOYMENT, "status": {"conditions": conditions}},
            elastic_observation=config_map("observation.json", OBSERVATION),
        )
    )
    assert status is not None
    assert (status.effective, status.refusal) == (effective, refusal)


def test_an_abandoned_operation_is_a_refusal_before_the_condition_says_so() -> None:
    for observation, record in (
        ({**OBSERVATION, "state": "Abandoned", "reason": "refused"}, OPERATION),
        (OBSERVATION, {**OPERATION, "state": "Abandoned"}),
    ):
        status = read(
            gpu_stack(
                modeldeployments=DEPLOYMENT,
                elastic_observation=config_map("observation.json", observation),
                elastic_resize=config_map("operation.json", record),
            )
        )
        assert status is not None
        assert status.refusal is not None
