"""The definition is current, is a structural schema, and says what the classes say."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler import limits, plugins
from autoscaler.convergence import Params as Convergence
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.objects import crd
from autoscaler.settings import schema
from autoscaler.settings.target import TargetSection

FILE = Path(__file__).parents[3] / crd.FILE
LEFT_OPEN = "x-kubernetes-preserve-unknown-fields"
EXAMPLES: dict[str, dict[str, Any]] = {
    "sources/prometheus": {"url": "http://prometheus:9090"},
    "sources/scrape": {"urls": ("http://engine:8000/metrics",)},
    "targets/gpustack": {"namespace": "a", "name": "b"},
    "targets/scale_subresource": {
        "namespace": "a", "name": "b", "workload": "deployment", "max_width": 64,
        "gpus_per_width": 1,
    },
    "targets/kserve": {
        "namespace": "a", "name": "b", "workload": "deployment", "workload_name": "c",
        "max_width": 64, "gpus_per_width": 1,
    },
    "targets/ray_serve": {
        "url": "http://head:8265", "application": "a", "deployment": "b", "max_width": 64,
        "gpus_per_width": 1,
    },
    "targets/vllm": {"url": "http://engine:8000", "max_width": 64, "gpus_per_width": 1},
    "policies/static": {"width": 2},
    "policies/schedule": {"policy": "hold", "timezone": "UTC", "windows": ()},
}  # fmt: skip


def classes():
    for group in ("sources", "targets", "policies"):
        for kind in plugins.names(group):
            yield f"{group}/{kind}", plugins.find(group, kind).Params
    yield "guards", limits.Params
    yield "convergence", Convergence


def bounded():
    """Every stated bound, with a value just beyond it."""
    for where, cls in classes():
        for name, one in schema.of_params(cls)["properties"].items():
            for keyword, outward in (("minimum", -1), ("maximum", 1)):
                if keyword in one:
                    exclusive = one.get(f"exclusive{keyword.capitalize()}", False)
                    yield where, name, one[keyword] + (0 if exclusive else outward)


BOUNDS = list(bounded())


def buildable(where, cls):
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    given = EXAMPLES.get(where, {})
    assert needed <= given.keys(), f"{where} needs an example here"
    return given


def test_the_file_is_current():
    assert FILE.read_text(encoding="utf-8") == crd.text(), "run python -m autoscaler.objects.crd"


def test_it_can_be_written_anywhere_and_says_where_it_cannot(tmp_path):
    assert crd.main([str(tmp_path / "crd.yaml")]) == 0
    assert yaml.safe_load((tmp_path / "crd.yaml").read_text()) == crd.definition()
    with pytest.raises(ConfigError, match="must be a file that can be written"):
        crd.main([str(tmp_path / "nowhere" / "crd.yaml")])


def test_an_object_is_an_entry_of_targets_without_its_name():
    spec = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
        "spec"
    ]
    assert {*spec["properties"], "name"} == set(TargetSection.model_fields)
    assert spec["required"] == ["source", "target", "policy"]
    target = spec["properties"]["target"]["properties"]
    assert not {"kubeconfig", "context"} & target.keys()
    assert target["kind"]["enum"] == plugins.names("targets")


def test_the_schema_is_structural():
    version = crd.definition()["spec"]["versions"][0]
    opened = []

    def check(one: dict[str, Any], at: str) -> None:
        if one.get(LEFT_OPEN):
            opened.append(at)
        else:
            assert one["type"] in ("object", "array", "string", "integer", "number", "boolean"), at
        assert not ("properties" in one and "additionalProperties" in one), at
        for key, below in one.get("properties", {}).items():
            check(below, f"{at}.{key}")
        for key in ("items", "additionalProperties"):
            if key in one:
                check(one[key], f"{at}.{key}")

    check(version["schema"]["openAPIV3Schema"], "")
    # A text or a number or a truth value: no structural schema can say so.
    assert {at.rpartition("policy_params.")[2] for at in opened} == {
        "also.items.additionalProperties",
        "policy",
        "windows.items.additionalProperties",
    }


def test_every_parameter_is_described():
    missing = [
        f"{where}.{name}"
        for where, cls in classes()
        for name, one in schema.of_params(cls)["properties"].items()
        if not one.get("description")
    ]
    assert missing == []


@pytest.mark.parametrize(("where", "name", "beyond"), BOUNDS, ids=map(str, BOUNDS))
def test_every_bound_in_the_schema_is_the_classes_own(where, name, beyond):
    cls = dict(classes())[where]
    with pytest.raises(ConfigError, match=name):
        cls(**{**buildable(where, cls), name: beyond})


def test_there_are_bounds():
    assert len(BOUNDS) > 100
    assert ("guards", "min_width", -1) in BOUNDS


def test_a_kind_of_several_permits_what_one_of_them_permits():
    merged = schema.merged(
        {
            "a": {"x": {"type": "integer", "minimum": 0, "description": "of a."}},
            "b": {"x": {"type": "integer", "minimum": 2, "maximum": 9, "description": "of b."}},
            "c": {"y": {"type": "string"}},
        }
    )
    assert merged["x"] == {
        "type": "integer",
        "minimum": 0,
        "description": "a: of a. | b: of b.",
    }
    assert merged["y"] == {"type": "string"}


def test_the_objective_has_its_defaults_in_words():
    assert "Default: 5.0." in schema.of_params(Slo)["properties"]["ttft_p95_s"]["description"]
