"""Every shipped policy against the contract; new ones are found by themselves."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import autoscaler.policies
from autoscaler import plugins, policy_file, profiles, shipped
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.parameters import ranges
from autoscaler.ports import PolicyContext
from autoscaler.testing import check_policy
from autoscaler.tuning import tuned_file

MODULES = sorted(
    path.stem
    for path in Path(autoscaler.policies.__path__[0]).glob("*.py")
    if not path.stem.startswith("_")
)


def test_each_policy_has_a_file_and_each_file_a_policy():
    assert shipped.names("policies") == MODULES


@pytest.mark.parametrize("kind", MODULES)
def test_the_file_names_its_policy_and_sets_every_parameter_to_its_default_or_tunes_it(kind):
    choice = policy_file.load(kind)
    assert choice.kind == choice.name == kind
    content = policy_file.read_yaml(shipped.shipped("policies", kind))
    params = fields(plugins.find("policies", kind).Params)
    assert list(content) == ["kind", *(p.name for p in params)]
    path = shipped.shipped("policies", kind)
    tuned = tuned_file.MARK in path.read_text(encoding="utf-8")
    searched = ranges(plugins.find("policies", kind).Params) if tuned else {}
    for param in params:
        if param.name in searched:
            axis, _ = searched[param.name]
            assert axis.low <= getattr(choice.params, param.name) <= axis.high, param.name
        elif param.default is not MISSING:
            assert getattr(choice.params, param.name) == param.default, param.name


@pytest.mark.parametrize("kind", MODULES)
def test_every_parameter_is_explained_in_file_and_docstring(kind):
    lines = shipped.shipped("policies", kind).read_text(encoding="utf-8").splitlines()
    for param in fields(plugins.find("policies", kind).Params):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{param.name}:"))
        assert lines[at - 1].startswith("#"), f"{param.name} has no comment above it"
        assert param.name in plugins.find("policies", kind).Params.__doc__


@pytest.mark.parametrize("kind", MODULES)
def test_unknown_keys_are_refused_by_name_with_what_is_allowed(kind, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"kind: {kind}\nspeling: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml: speling: unknown key; must be one of"):
        policy_file.load(file)


def context():
    """The context that policies are built with here; add what a policy turns out to need."""
    return PolicyContext(Slo(), 5.0, profiles.load("assumed-wide"))


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("width", [2, 4])
def test_contract(kind, width):
    check_policy(lambda: policy_file.load(kind).build(context()), width)
