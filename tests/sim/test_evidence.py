"""What the evidence on policies says of results that are known."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("evidence_runs")


@pytest.fixture
def pictures(runs):
    return importlib.import_module("evidence_pictures")


def result(policy, windows_ok_ratio, gpu_hours):
    return {
        "policy": policy,
        "slo": {"windows_ok_ratio": windows_ok_ratio},
        "gpu_hours": gpu_hours,
    }


def board(runs, ours, theirs):
    results = [result(runs.OURS, *ours), *(result(kind, *theirs) for kind in runs.BASELINES)]
    entry = {"name": "one", "class": "bursty", "simulation": {"results": results}}
    return {"scenarios": [entry]}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((1.0, 2.0), (1.0, 2.5), "dominates"),
        ((1.0, 2.0), (0.9, 2.0), "dominates"),
        ((0.9, 2.0), (1.0, 2.0), "dominated"),
        ((0.9, 1.0), (1.0, 2.0), "neither"),
        ((0.9, 1.0), (0.9, 1.0), "equal"),
    ],
)
def test_dominance_needs_both_counts_and_one_of_them_better(runs, ours, theirs, verdict):
    assert runs.dominance(board(runs, ours, theirs))["hpa"] == {"one": verdict}


def test_beyond_the_goal_attainment_is_no_merit(runs):
    document = board(runs, (0.995, 1.0), (1.0, 2.0))
    assert runs.dominance(document)["kpa"]["one"] == "neither"
    assert runs.dominance(document, beyond=0.99)["kpa"]["one"] == "dominates"


def test_the_baselines_are_played_at_the_defaults_of_their_kind_and_ours_as_it_ships(runs):
    from autoscaler import plugins, policy_file

    with runs.policies() as compared:
        assert compared[0] == runs.OURS
        for name, kind in zip(compared[1:], runs.BASELINES, strict=False):
            choice = policy_file.load(name)
            assert (choice.name, choice.kind) == (kind, kind)
            assert choice.params == plugins.find("policies", kind).Params()


@pytest.mark.parametrize(
    ("attained", "told"),
    [
        ((1.0, 1.0, 1.0), "none"),
        ((1.0, 0.98, 1.0), "after 0 s"),
        ((1.0, 0.99, 0.9), "after 20 s"),
        ((0.9, 1.0, 1.0), "not kept at 0 s"),
    ],
)
def test_a_cliff_is_where_the_slo_ceases_to_be_kept(pictures, attained, told):
    rows = [
        {"delay_s": delay_s, "windows_ok_ratio": ratio}
        for delay_s, ratio in zip((0.0, 20.0, 40.0), attained, strict=True)
    ]
    assert pictures._cliff(rows) == told


def test_the_page_has_a_place_for_every_table():
    page = (BENCHMARKS.parent / "docs" / "policies.md").read_text(encoding="utf-8")
    for name in ("dominance", "bursts", "cliffs", "scenarios"):
        assert page.count(f"<!-- {name}: made by benchmarks/evidence.py -->") == 1
        assert page.count(f"<!-- /{name} -->") == 1
