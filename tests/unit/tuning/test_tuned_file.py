"""The file that a search writes is a policy file like the others."""

from dataclasses import replace

import pytest

from autoscaler import policy_file
from autoscaler.errors import ConfigError
from autoscaler.policies import hpa, pid
from autoscaler.policy_file import PolicyChoice
from autoscaler.tuning import tuned_file

SUMMARY = {
    "kept": 1,
    "cases": 2,
    "windows_ok_ratio": 0.99,
    "worst_windows_ok_ratio": 0.98,
    "gpu_hours": 3.5,
}
PART = {"cases": ["spike"], "default": SUMMARY, "tuned": SUMMARY}
DOCUMENT = {
    "goal": {"attainment_ratio": 0.99, "reversals_per_hour": 4.0},
    "command": "autoscaler tune --policy pid",
    "trials": 12,
    "trials_asked": 12,
    "seed": 7,
    "interrupted": False,
    "tuned_on": PART,
    "held_out": PART,
}


def written(params, kind="pid", path=None):
    return tuned_file.text(PolicyChoice(kind, kind, params, path), DOCUMENT)


def test_it_loads_as_the_parameters_that_were_found(tmp_path):
    params = replace(pid.Params(), kp=0.731, ki_per_s=1e-5, ratio_high=7.0)
    file = tmp_path / "pid.yaml"
    file.write_text(written(params), encoding="utf-8")
    assert policy_file.load(file).params == params


def test_the_comments_of_the_shipped_file_stay_above_their_keys():
    lines = written(replace(pid.Params(), kp=0.731)).splitlines()
    at = lines.index("kp: 0.731")
    assert lines[at - 1].startswith("# Larger: grows sooner")


def test_its_origin_is_written_anew_and_never_twice(tmp_path):
    file = tmp_path / "pid.yaml"
    file.write_text(written(pid.Params()), encoding="utf-8")
    again = written(pid.Params(), path=file)
    assert again == file.read_text(encoding="utf-8")
    assert again.count(tuned_file.MARK) == 1
    assert "seed 7" in again
    assert "autoscaler tune --policy pid" in again


def test_lists_and_mappings_that_are_not_searched_stay_as_they_were_written(tmp_path):
    file = tmp_path / "hpa.yaml"
    file.write_text(written(replace(hpa.Params(), target=7.5), kind="hpa"), encoding="utf-8")
    assert "  - {percent: 100, period_s: 15}" in file.read_text(encoding="utf-8")
    assert policy_file.load(file).params == replace(hpa.Params(), target=7.5)


def test_a_file_that_names_only_some_parameters_gets_the_others(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("# mine\nkind: pid\nkp: 0.1  # low\n", encoding="utf-8")
    params = replace(pid.Params(), kp=0.4, kd_s=1.5)
    file.write_text(written(params, path=file), encoding="utf-8")
    assert file.read_text(encoding="utf-8").startswith("# mine\nkind: pid\nkp: 0.4\n")
    assert policy_file.load(file).params == params


def test_a_value_that_is_not_in_a_line_of_its_own_is_refused_by_name(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("{kind: pid, kp: 0.1}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml: kp: must be a plain value"):
        written(replace(pid.Params(), kp=0.4), path=file)


def test_an_interrupted_search_says_so():
    document = {**DOCUMENT, "trials": 5, "interrupted": True, "held_out": {**PART, "tuned": None}}
    text = tuned_file.text(PolicyChoice("pid", "pid", pid.Params()), document)
    assert "interrupted after 5" in text
    assert "not played: interrupted" in text
