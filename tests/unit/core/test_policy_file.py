"""Choosing a policy, shipped files, and filling parameter classes."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from autoscaler import policy_file, shipped
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping, require_number, require_whole
from autoscaler.policies import static, threshold
from autoscaler.ports import PolicyContext


def test_a_kind_takes_the_shipped_file():
    choice = policy_file.load("threshold")
    path = shipped.shipped("policies", "threshold")
    assert (choice.kind, choice.path) == ("threshold", path)
    assert choice.params == policy_file.load(path).params


def test_a_kind_with_an_argument():
    choice = policy_file.load("static:7")
    assert (choice.name, choice.kind, choice.params) == ("static:7", "static", static.Params(7))


def test_a_file(tmp_path):
    path = tmp_path / "steep.yaml"
    path.write_text("kind: threshold\nstep_up: 2\nup_for_s: 5\n", encoding="utf-8")
    choice = policy_file.load(path)
    assert (choice.name, choice.kind) == ("steep", "threshold")
    assert choice.params == threshold.Params(step_up=2, up_for_s=5.0)
    assert type(choice.params.up_for_s) is float


def test_each_build_is_a_policy_with_state_of_its_own():
    choice, context = policy_file.load("threshold"), PolicyContext(Slo(), 5.0)
    assert choice.build(context) is not choice.build(context)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("thresh", "must be one of .*threshold.*; got 'thresh'"),
        ("hold:4", "policy hold: must be given without an argument; got 'hold:4'"),
        ("static:four", "must be a whole number >= 0; got 'four'"),
        ("static:-1", "must be a whole number >= 0; got '-1'"),
        ("none.yaml", "must be an existing file; got 'none.yaml'"),
        ("", "must be one of"),
    ],
)
def test_unusable_choices(spec, message):
    with pytest.raises(ConfigError, match=message):
        policy_file.load(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width: 4", "p.yaml: kind: must be one of .*; got None"),
        ("kind: 3", "p.yaml: kind: must be one of .*; got 3"),
        ("kind: nope", "p.yaml: policies kind: must be one of .*; got 'nope'"),
        ("kind: static", "p.yaml: width: must be given; got nothing"),
        ("kind: static\nwidth: four", "p.yaml: width: must be int; got 'four'"),
        ("kind: static\nwidth: true", "p.yaml: width: must be int; got True"),
        ("kind: static\nwidth: 4.0", "p.yaml: width: must be int; got 4.0"),
        ("kind: static\nwidth: -4", "p.yaml: width: must be a whole number >= 0; got -4"),
        ("kind: static\nwidth: 4\nwidht: 5", "p.yaml: widht: unknown key; must be one of width"),
        ("kind: static\nwidth: 4\nwidth: 5", "p.yaml:3:1: .*key 'width' is given twice"),
        ("kind: threshold\nup_for_s: .nan", "p.yaml: up_for_s: must be a finite number >= 0"),
        ("kind: hold\nwidth: 4", r"p.yaml: width: unknown key; must be one of \(none\)"),
        ("- kind: hold", "p.yaml: must be a mapping of keys; got list"),
        ("", "p.yaml: must be a mapping of keys; got NoneType"),
        ("kind: [", "p.yaml:1:8: must be valid YAML"),
        ("1: 2", "p.yaml: keys must be text; got 1"),
    ],
)
def test_unusable_files_are_named_with_key_rule_and_value(text, message, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        policy_file.load(path)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="must be a readable text file"):
        policy_file.load(path)


def test_shipped_things_are_listed_and_located():
    assert {"hold", "static", "threshold"} <= set(shipped.names("policies"))
    assert shipped.shipped("policies", "hold").is_file()
    assert shipped.resolve("policies", "hold") == shipped.shipped("policies", "hold")
    for group in shipped.GROUPS:
        assert isinstance(shipped.names(group), list)
    with pytest.raises(ConfigError, match=r"must be one of .*hold.*; got 'holt'"):
        shipped.shipped("policies", "holt")
    with pytest.raises(ConfigError, match="shipped group: must be one of policies"):
        shipped.names("polices")
    with pytest.raises(ConfigError, match="must be one of"):
        shipped.shipped("policies", "../policies/hold")


def test_shipped_files_are_found_from_any_folder(tmp_path):
    code = "from autoscaler.policy_file import load; print(load('threshold').kind)"
    done = subprocess.run(  # our own interpreter
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "threshold\n"


def test_naming_policies_loads_no_heavy_library(tmp_path):
    code = (
        "import sys; from autoscaler import policy_file, loop; policy_file.load('threshold');"
        "print([m for m in ('numpy', 'polars', 'numba', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run(  # our own interpreter
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@dataclass(frozen=True)
class Example:
    """All the types a parameter may have."""

    name: str
    ratio: float = 1.0
    limit: int | None = None
    on: bool = False
    widths: tuple[int, ...] | None = None


def test_from_mapping_fits_types():
    got = from_mapping(Example, {"name": "x", "ratio": 2, "limit": None, "widths": [2, 4]}, "here")
    assert got == Example("x", 2.0, None, False, (2, 4))


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", 1), ("ratio", True), ("limit", 1.0), ("on", 1), ("widths", [2, "4"]), ("widths", 2)],
)
def test_from_mapping_refuses_other_types(key, value):
    with pytest.raises(ConfigError, match=f"here: {key}: must be .*; got"):
        from_mapping(Example, {"name": "x", key: value}, "here")


def test_rules_with_an_upper_limit_say_so():
    with pytest.raises(ConfigError, match="k: must be a finite number > 0 and <= 1; got 2"):
        require_number("k", 2, 0, 1, above=True)
    with pytest.raises(ConfigError, match="k: must be a whole number >= 1 and <= 3; got 4"):
        require_whole("k", 4, 1, 3)
    require_number("k", None, 0)
    require_whole("k", None, 0)


def test_checkout_and_package_name_the_same_groups():
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    text = pyproject.read_text(encoding="utf-8")
    for group, folder in shipped.GROUPS.items():
        assert f'"{folder}" = "autoscaler/data/{group}"' in text
