"""``autoscaler tune`` as a user runs it: a process, its files, its output, its exit code."""

import json
import signal
import subprocess
import sys
import threading

import pytest

from autoscaler import policy_file

PROFILE = """\
schema: autoscaler.profile/v1
name: linear
kind: assumed
layout: elastic_ep
provenance: made for tests
tp: 2
slots_per_rank: 4
reference_prompt_tokens: 10
reference_output_tokens: 100
capacity_rps_by_width: {1: 1.0, 2: 2.0, 4: 4.0}
"""
COMMON = ("--profile", "./linear.yaml", "--resize", "elastic-nixl", "--policy", "threshold")
TRACES = ("--trace", "slow.jsonl", "--trace", "fast.jsonl", "--holdout-trace", "other.jsonl")


def command(*arguments):
    return [sys.executable, "-W", "error", "-m", "autoscaler", "tune", *arguments]


def tune(folder, *arguments):
    return subprocess.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "linear.yaml").write_text(PROFILE, encoding="utf-8")
    # A load that grows past width 1, at three paces.
    for name, every_s in (("slow", 1.1), ("fast", 0.6), ("other", 0.8)):
        arrivals_s = [every_s * k * (1 - k / 1200) for k in range(400)]
        rows = [{"arrival_s": t, "prompt_tokens": 10, "output_tokens": 100} for t in arrivals_s]
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
    return tmp_path


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_jobs_S17(folder):
    texts = []
    for jobs in ("1", "2"):
        options = ("--trials", "14", "--seed", "5", "--jobs", jobs, "--out", "tuned.yaml")
        done = tune(folder, *COMMON, *TRACES, *options)
        assert done.returncode == 0, done.stderr
        texts.append((folder / "tuned.yaml").read_bytes())
    assert texts[0] == texts[1]
    assert not (folder / "tuned.trials.jsonl").exists()
    policy_file.load(folder / "tuned.yaml")


def test_json_reports_default_and_tuned_on_both_kinds_of_load(folder):
    options = ("--trials", "30", "--jobs", "1", "--out", "tuned.yaml", "--format", "json")
    done = tune(folder, *COMMON, *TRACES, *options)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["schema"] == "autoscaler.tuning/v1"
    assert found["trials"] == 30
    assert found["tuned_on"]["cases"] == ["slow.jsonl", "fast.jsonl"]
    assert found["held_out"]["cases"] == ["other.jsonl"]
    for part in (found["tuned_on"], found["held_out"]):
        for which in ("default", "tuned"):
            assert 0.0 <= part[which]["windows_ok_ratio"] <= 1.0
            assert part[which]["gpu_hours"] > 0.0
    assert _worth(found["tuned_on"]["tuned"]) >= _worth(found["tuned_on"]["default"])
    tuned = policy_file.load(folder / "tuned.yaml").params
    for name, values in found["parameters"].items():
        assert getattr(tuned, name) == values["tuned"]


def _worth(summary):
    return (summary["kept"], round(summary["windows_ok_ratio"], 2), -summary["gpu_hours"])


def test_with_nothing_named_to_judge_by_some_are_drawn_and_stay_unseen(folder):
    traces = ("--trace", "slow.jsonl", "--trace", "fast.jsonl", "--trace", "other.jsonl")
    options = ("--trials", "1", "--jobs", "1", "--out", "tuned.yaml", "--format", "json")
    found = json.loads(tune(folder, *COMMON, *traces, *options).stdout)
    tuned_on, held_out = found["tuned_on"]["cases"], found["held_out"]["cases"]
    assert len(held_out) == 1
    assert sorted(tuned_on + held_out) == ["fast.jsonl", "other.jsonl", "slow.jsonl"]


def test_a_single_trace_is_judged_by_its_last_third(folder):
    options = ("--trials", "1", "--jobs", "1", "--out", "tuned.yaml", "--format", "json")
    found = json.loads(tune(folder, *COMMON, "--trace", "slow.jsonl", *options).stdout)
    assert found["tuned_on"]["cases"] == ["slow.jsonl, first 2/3"]
    assert found["held_out"]["cases"] == ["slow.jsonl, last 1/3"]


def test_ctrl_c_leaves_the_best_so_far_and_resume_ends_where_it_would_have_ended(folder):
    options = (*COMMON, *TRACES, "--trials", "40", "--jobs", "1", "--out", "tuned.yaml")
    straight = tune(folder, *options)
    assert straight.returncode == 0, straight.stderr
    expected = (folder / "tuned.yaml").read_bytes()
    (folder / "tuned.yaml").unlink()

    journal = folder / "tuned.trials.jsonl"
    process = subprocess.Popen(
        command(*options), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with process:
        pause = threading.Event()
        for _ in range(4000):
            if journal.exists() and journal.read_text(encoding="utf-8").count("\n") > 20:
                break
            pause.wait(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "--resume goes on" in errors
    assert "Traceback" not in errors
    assert "interrupted after" in (folder / "tuned.yaml").read_text(encoding="utf-8")
    policy_file.load(folder / "tuned.yaml")

    again = tune(folder, *options)
    assert again.returncode == 2
    assert "tuned.trials.jsonl: is of an interrupted run: must be resumed or removed" in (
        again.stderr
    )
    resumed = tune(folder, *options, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert (folder / "tuned.yaml").read_bytes() == expected
    assert not journal.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*COMMON,), "must name something to tune on; got nothing"),
        ((*COMMON, "--trace", "slow.jsonl", "--trace", "slow.jsonl"), "given once each"),
        ((*COMMON[:-1], "hold", "--trace", "slow.jsonl"), "must have parameters"),
        ((*COMMON[:-1], "nobody", "--trace", "slow.jsonl"), "must be one of"),
        ((*COMMON, "--trace", "none.jsonl"), "none.jsonl"),
        ((*COMMON[:-1], "schedule", "--trace", "slow.jsonl"), "must"),
    ],
)
def test_unusable_arguments_are_named_without_a_traceback(folder, arguments, message):
    done = tune(folder, *arguments, "--out", "tuned.yaml")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "tuned.yaml").exists()
    assert not (folder / "tuned.trials.jsonl").exists()
