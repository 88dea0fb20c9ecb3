"""The shipped scenarios are what they say, and the scoreboard plays them with one command."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from autoscaler import board, board_picture, profiles, shipped
from autoscaler import scenario as scenarios
from autoscaler.engine.capacity import Criterion, capacity_rps
from autoscaler.errors import AutoscalerError, ConfigError
from autoscaler.model import SignalStatus, Slo
from autoscaler.sim.probe import Probe
from autoscaler.sweeps import Journal
from autoscaler.synthetic import Synth
from autoscaler.wiring import simulated, synthesis
from tests.sim.worlds import fleet, steady

NAMES = shipped.names("scenarios")
MEASURED_S = 30.0


def _growth_rps(given, trace, lead_s: float) -> float:
    """The most that the rate grows by over a lead time: exact where it is synthetic."""
    if given.synth is not None:
        rate = synthesis.rate_of(given.synth)
        at_s = np.arange(0.0, rate.duration_s)
        piece = np.searchsorted(rate.edges_s, at_s, side="right") - 1
        share = (at_s - rate.edges_s[piece]) / np.diff(rate.edges_s)[piece]
        rps = rate.from_rps[piece] + share * (rate.to_rps - rate.from_rps)[piece]
    else:
        count = np.searchsorted(trace.arrival_s, np.arange(0.0, trace.duration_s + 1))
        rps = (count[int(MEASURED_S) :] - count[: -int(MEASURED_S)]) / MEASURED_S
    ahead = int(np.ceil(lead_s)) + 1
    padded = np.append(rps, np.full(ahead - 1, rps[-1]))
    return float((np.lib.stride_tricks.sliding_window_view(padded, ahead).max(axis=1) - rps).max())


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_of_the_class_that_it_states(name):
    given = scenarios.load(name, {})
    assert given.title
    assert given.load_class in ("foreseeable", "bursty")
    trace = simulated.load_trace(given)
    assert 1_000 <= trace.requests <= 250_000
    resize = simulated.resize_model(given.resize)
    lead_s = resize.prepare_s + resize.capacity_wait_s
    lead_s += max(resize.pause_up_s, resize.reject_s(up=True))
    profile = profiles.load(given.profile[0])
    widths = (
        given.min_width or profile.known_widths[0],
        given.max_width or profile.known_widths[-1],
    )
    mix = trace.prompt_tokens[:3000], trace.output_tokens[:3000]
    least_rps, most_rps = (
        capacity_rps(
            profile.physics(width), *mix, criterion=Criterion(duration_s=600.0), tolerance=0.05
        )
        for width in widths
    )
    width_rps = (most_rps - least_rps) / (widths[1] - widths[0])
    growth_rps = _growth_rps(given, trace, lead_s)
    if given.load_class == "bursty":
        assert growth_rps > width_rps
    else:
        # The ramp of the Elastic EP study grows by a width in just one lead time.
        suffices = trace.requests / trace.duration_s <= least_rps
        assert growth_rps <= 1.06 * width_rps or suffices


def test_the_scenarios_cover_what_they_are_to_cover():
    loaded = {name: scenarios.load(name, {}) for name in NAMES}
    assert {s.resize for s in loaded.values()} == set(shipped.names("resizes"))
    used = {s.profile[0] for s in loaded.values()}
    assert {f"gb200-ramp-{c}" for c in ("13", "13.5", "14", "15")} <= used
    assert {"h100-dsv2lite-elastic-ep-rdma", "h100-dsv2lite-elastic-ep-tcp"} <= used
    assert {s.speed for s in loaded.values() if "Azure" in str(s.trace)} == {1, 2, 4, 8}
    assert any(s.metrics_delay_s for s in loaded.values())
    assert any(s.scrape_loss_ratio for s in loaded.values())
    wrong = {s.decide_with_profile for s in loaded.values()}
    assert wrong == {None, "assumed-wide@0.7", "assumed-wide@1.3"}
    for shape in ("step", "spike", "sawtooth", "on-off", "drift", "diurnal", "long-prompts"):
        assert any(shape in name for name in NAMES)


def write(folder: Path, name: str, content: dict) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"schema": scenarios.SCHEMA, **content}))
    return str(path)


RATE = [{"rps": 2, "duration_s": 50}, {"from_rps": 2, "to_rps": 6, "duration_s": 50}]


def test_a_synthetic_load_is_drawn_as_it_is_described(tmp_path):
    synth = {"rate": RATE, "repeat": 2, "cv": 0, "prompt_tokens": 10, "output_tokens": 20}
    given = scenarios.load(write(tmp_path, "x", {"synth": synth, "class": "bursty"}), {})
    trace = simulated.load_trace(given)
    assert given.load_class == "bursty"
    assert trace.requests == 2 * (100 + 200)
    assert np.count_nonzero(trace.arrival_s < 50) == 100
    assert set(trace.prompt_tokens) == {10}
    assert np.array_equal(trace.arrival_s, simulated.load_trace(given).arrival_s)


def test_a_curve_is_averaged_and_played_faster_at_the_same_rates(tmp_path):
    rows = "".join(f"{600 * k},{rps}\n" for k, rps in enumerate([10, 30, 20, 60, 40, 80]))
    (tmp_path / "curve.csv").write_text("start_s,arrival_rps\n" + rows)
    synth = {"curve": "curve.csv", "rate_scale": 0.1, "time_scale": 12}
    raw = scenarios.load(write(tmp_path, "raw", {"synth": synth}), {})
    assert raw.synth is not None
    rate = synthesis.rate_of(raw.synth)
    assert rate.duration_s == pytest.approx(300)
    assert rate.from_rps.tolist() == pytest.approx([1, 3, 2, 6, 4, 8])
    mean = scenarios.load(write(tmp_path, "mean", {"synth": {**synth, "curve_mean_s": 1200}}), {})
    assert mean.synth is not None
    rate = synthesis.rate_of(mean.synth)
    assert rate.from_rps.tolist() == pytest.approx([2, 4])
    assert rate.to_rps.tolist() == pytest.approx([4, 6])
    assert rate.edges_s.tolist() == pytest.approx([0, 100, 200])


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"class": "calm"}, ["class", "foreseeable", "calm"]),
        ({"load_class": "bursty"}, ["load_class", "class"]),
        ({"synth": 3}, ["synth", "mapping"]),
        ({"synth": {}}, ["synth", "rate, curve", "none"]),
        ({"synth": {"rate": RATE, "curve": "x.csv"}}, ["rate, curve", "both"]),
        ({"synth": {"rate": [{"rps": 1}]}}, ["rate: 0", "duration_s"]),
        ({"synth": {"rate": [{"rps": -1, "duration_s": 5}]}}, ["rps", "-1"]),
        ({"synth": {"rate": [{"from_rps": 1, "duration_s": 5}]}}, ["from_rps and to_rps"]),
        ({"synth": {"rate": 7}}, ["rate", "list"]),
        ({"synth": {"rate": [7]}}, ["rate: 0", "mapping"]),
        ({"synth": {"rate": RATE, "speed": 2}}, ["speed", "unknown key"]),
        ({"synth": {"rate": RATE}, "trace": "x.jsonl"}, ["trace, synth", "both"]),
        ({"metrics_delay_s": -1}, ["metrics_delay_s", "-1"]),
        ({"scrape_loss_ratio": 1}, ["scrape_loss_ratio", "1"]),
    ],
)
def test_an_unusable_scenario_is_named(tmp_path, content, parts):
    with pytest.raises(ConfigError) as raised:
        scenarios.load(write(tmp_path, "x", content), {})
    for part in (*parts, "x.yaml"):
        assert part in str(raised.value)


def test_a_trace_on_the_command_line_takes_the_place_of_a_synthetic_load(tmp_path):
    given = scenarios.load(
        write(tmp_path, "x", {"synth": {"rate": RATE}}), {"trace": ["other.jsonl"]}
    )
    assert (given.trace, given.synth) == (("other.jsonl",), None)


def test_policies_can_be_told_a_profile_that_is_wrong():
    given = scenarios.load("wrong-profile-1.3", {"policy": ["threshold"]})
    run = simulated.plan(given)[0]
    assert run.profile.name == "assumed-wide"
    assert run.believed is not None
    true, believed = run.profile.physics(4), run.believed.physics(4)
    assert believed.decode_s == pytest.approx(true.decode_s / 1.3)
    assert believed.prefill_flat_s == pytest.approx(true.prefill_flat_s / 1.3)
    assert believed.mixed_share == true.mixed_share
    # A replay finds it by this name.
    assert profiles.load(run.profile_name or "").widths == run.believed.widths


@pytest.mark.parametrize("wrong", ["assumed-wide@0", "assumed-wide@-1", "assumed-wide@x", "no@2"])
def test_a_wrong_profile_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError):
        profiles.load(wrong)


SLO = Slo(5.0, window_s=30.0)


def test_late_metrics_are_those_of_before_and_not_missing():
    late = Probe(fleet(steady(1.5, 300)), SLO, delay_s=30.0)
    late.play(130.0)
    on_time = Probe(fleet(steady(1.5, 300)), SLO)
    on_time.play(100.0)
    read = late.read()
    assert read.age_s.value == 32.5
    assert replace(read, age_s=on_time.read().age_s) == on_time.read()
    assert late.read().arrival_rps.value == pytest.approx(1.5, abs=0.1)


def test_a_lost_scrape_is_a_gap_and_no_zero():
    probe = Probe(fleet(steady(1.5, 600)), SLO, loss_ratio=0.3, rng=np.random.default_rng(5))
    seen = set()
    for at_s in range(60, 600, 5):
        probe.play(float(at_s))
        rate = probe.read().arrival_rps
        seen.add(rate.status)
        assert rate.value is None or rate.value > 1.0
    assert SignalStatus.STALE in seen
    assert SignalStatus.OK in seen


@pytest.fixture
def folder(tmp_path):
    common = {
        "profile": "./linear.yaml",
        "resize": "elastic-nixl",
        "max_width": 4,
        "initial_width": 2,
    }
    profile = {
        "schema": "autoscaler.profile/v1",
        "name": "linear",
        "kind": "assumed",
        "layout": "elastic_ep",
        "provenance": "made for tests",
        "slots_per_rank": 4,
        "tp": 1,
        "reference_output_tokens": 100,
        "capacity_rps_by_width": {1: 1.0, 2: 2.0, 4: 4.0},
    }
    (tmp_path / "linear.yaml").write_text(yaml.safe_dump(profile))
    ramp = {"rate": [{"from_rps": 0.5, "to_rps": 2.5, "duration_s": 300}], "output_tokens": 100}
    write(tmp_path, "ramp", {**common, "synth": ramp, "class": "foreseeable", "title": "up"})
    step = {"rate": [{"rps": 0.5, "duration_s": 150}, {"rps": 3, "duration_s": 150}]}
    write(tmp_path, "step", {**common, "synth": step, "class": "bursty", "title": "at once"})
    return tmp_path


def scoreboard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("--scenario", "./ramp.yaml", "--scenario", "./step.yaml", *arguments)
    return subprocess.run(
        [sys.executable, "-m", "autoscaler", "scoreboard", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_one_command_plays_all_and_leaves_table_numbers_and_picture(folder):
    policies = ("--policy", "threshold", "--policy", "static:4", "--policy", "oracle")
    done = scoreboard(folder, *policies, "--out", "results")
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("ramp.yaml (foreseeable): up", "all bursty scenarios", "threshold", "oracle"):
        assert part in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    results = folder / "results"
    document = json.loads((results / "scoreboard.json").read_text())
    assert document["schema"] == board.SCHEMA
    assert [entry["class"] for entry in document["scenarios"]] == ["foreseeable", "bursty"]
    ratios = {
        r["policy"]: r["oracle_gpu_hours_ratio"]
        for r in document["scenarios"][0]["simulation"]["results"]
    }
    assert ratios["oracle"] == pytest.approx(1.0)
    assert ratios["static:4"] > 1.0
    assert (results / "scoreboard.txt").read_text() == done.stdout
    assert (results / "scoreboard.svg").read_text().startswith("<?xml")


def test_the_scoreboard_is_the_same_with_any_number_of_jobs_S17(folder):
    def without_wall(text: str) -> str:
        document = json.loads(text)
        for entry in document["scenarios"]:
            for result in entry["simulation"]["results"]:
                del result["wall_s"]
        return json.dumps(document)

    policies = ("--policy", "threshold", "--policy", "oracle", "--format", "json")
    outputs = [scoreboard(folder, *policies, "--jobs", jobs).stdout for jobs in ("1", "2")]
    assert without_wall(outputs[0]) == without_wall(outputs[1])


def test_an_interrupted_scoreboard_goes_on_where_it_stopped(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "results").mkdir()
    arguments = ("--policy", "threshold", "--out", "results", "--format", "json", "--jobs", "1")
    names = ["./ramp.yaml", "./step.yaml"]
    played = board.play_one(names[0], ["threshold"])
    played["title"] = "played before"
    of = board.identity(names, ["threshold"])
    journal = Journal(folder / "results" / "scoreboard.partial.jsonl", of, resume=False)
    journal.add(names[0], played)
    journal.close(remove=False)
    refused = scoreboard(folder, *arguments)
    assert refused.returncode == 2
    assert "scoreboard.partial.jsonl: is of an interrupted run" in refused.stderr
    done = scoreboard(folder, *arguments, "--resume")
    assert done.returncode == 0, done.stderr
    titles = [entry["title"] for entry in json.loads(done.stdout)["scenarios"]]
    assert titles == ["played before", "at once"]
    assert not journal.path.exists()


def test_without_a_choice_of_policies_a_few_static_widths_stand_for_all():
    given = scenarios.load("spike", {})
    names = board._few_static(given)
    assert [n for n in names if n.startswith("static:")] == [f"static:{w}" for w in (2, 7, 11, 16)]
    assert {"threshold", "oracle"} <= set(names)


def test_the_picture_is_the_same_each_time_and_refuses_what_it_cannot_write(tmp_path):
    result = {
        "policy": "threshold",
        "gpu_hours": 2.0,
        "oracle_gpu_hours_ratio": 1.5,
        "slo": {"windows_ok_ratio": 0.98},
        "resizes": {"up": 1, "down": 0},
        "requests": {"failed": 0},
    }
    entries = [{"name": "x", "class": "bursty", "title": "", "simulation": {"results": [result]}}]
    document = {"scenarios": entries, "summary": board.summary(entries)}
    for name in ("a.svg", "b.svg", "c.png"):
        board_picture.draw(document, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    for bad in (tmp_path / "a.gif", tmp_path / "nowhere" / "a.svg"):
        with pytest.raises(AutoscalerError) as raised:
            board_picture.draw(document, bad)
        assert str(bad) in str(raised.value)


def test_the_summary_counts_what_was_kept():
    def result(policy: str, attained: float, ratio: float | None) -> dict:
        return {
            "policy": policy,
            "gpu_hours": 1.0,
            "oracle_gpu_hours_ratio": ratio,
            "slo": {"windows_ok_ratio": attained},
            "resizes": {"up": 1, "down": 2},
            "requests": {"failed": 3},
        }

    results = [[result("a", 1.0, 2.0), result("static:2", 1, 1)], [result("a", 0.5, None)]]
    entries = [
        {"name": str(i), "class": "bursty", "title": "", "simulation": {"results": r}}
        for i, r in enumerate(results)
    ]
    assert board.summary(entries) == [
        {
            "class": "bursty",
            "policy": "a",
            "scenarios": 2,
            "kept": 1,
            "windows_ok_ratio": 0.75,
            "worst_windows_ok_ratio": 0.5,
            "gpu_hours": 2.0,
            "oracle_gpu_hours_ratio": pytest.approx(2.0),
            "resizes": 6,
            "failed": 6,
        }
    ]


def test_a_load_needs_a_rate_or_a_curve():
    with pytest.raises(ConfigError):
        Synth()
