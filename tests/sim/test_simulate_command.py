"""``autoscaler simulate`` as a user runs it: a process, its output, its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler import decisions

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


def autoscaler(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "autoscaler", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "linear.yaml").write_text(PROFILE)
    rows = [
        {"arrival_s": 0.4 * k, "prompt_tokens": 10, "output_tokens": 50 + 100 * (k % 2)}
        for k in range(600)
    ]
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


BASE = ("simulate", "--trace", "requests.jsonl", "--profile", "./linear.yaml")


def test_json_holds_what_the_interface_promises(folder):
    done = autoscaler(*BASE, "--resize", "elastic-nixl", "--format", "json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "autoscaler.simulation/v1"
    assert document["trace"] == {
        "paths": ["requests.jsonl"],
        "format": "jsonl",
        "requests": 600,
        "duration_s": pytest.approx(239.6),
        "prompt_tokens": 6000,
        "output_tokens": 60_000,
        "skipped_rows": 0,
    }
    assert (document["profile"], document["resize"]) == ("linear", "elastic-nixl")
    names = [entry["policy"] for entry in document["results"]]
    assert names[-5:] == ["static:1", "static:2", "static:3", "static:4", "oracle"]
    assert "threshold" in names
    for entry in document["results"]:
        assert entry["requests"] == {"offered": 600, "completed": 600, "failed": 0}
        assert set(entry) >= {
            *("policy", "requests", "ttft_s", "itl_s", "e2e_s", "output_tokens_per_s", "slo"),
            *("gpu_hours", "oracle_gpu_hours_ratio", "resizes", "paused_s", "width", "ticks"),
            "wall_s",
        }
    static = {e["policy"]: e for e in document["results"] if e["policy"].startswith("static")}
    # 2.5 requests a second against capacities of 1, 2, 3 and 4.
    assert static["static:2"]["slo"]["windows_ok_ratio"] < 0.6
    assert static["static:4"]["slo"]["windows_ok_ratio"] == 1.0
    assert static["static:3"]["width"]["not_measured"] == [3]


def test_the_table_fits_eighty_columns_and_marks_what_was_not_measured(folder):
    done = autoscaler(*BASE, "--resize", "elastic-nixl", cwd=folder)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "static:4" in done.stdout
    assert "* not measured" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_same_input_and_seed_give_the_same_bytes_with_any_number_of_jobs_S17(folder):
    (folder / "flaky.yaml").write_text(
        "mode: flaky\nprepare_s: 5\npause_up_s: 1\npause_down_s: 1\n"
        "refuse_probability: 0.3\nfail_probability: 0.3\n"
    )
    outputs = []
    for jobs in ("1", "1", "2"):
        options = ("--resize", "./flaky.yaml", "--seed", "3", "--format", "json", "--jobs", jobs)
        document = json.loads(autoscaler(*BASE, *options, cwd=folder).stdout)
        for entry in document["results"]:
            assert entry.pop("wall_s") > 0
        outputs.append(json.dumps(document))
    assert outputs[0] == outputs[1] == outputs[2]


def test_a_growth_that_takes_no_time_is_warned_of_and_the_default_was_measured_S10(folder):
    text = "mode: at once\nprepare_s: 0\npause_up_s: 0\npause_down_s: 0\n"
    (folder / "at-once.yaml").write_text(text)
    few = ("--policy", "static:4", "--duration-s", "5")
    done = autoscaler(*BASE, "--resize", "./at-once.yaml", *few, cwd=folder)
    assert done.returncode == 0
    assert "note: growth takes no time: policies look better than they are" in done.stderr
    measured = autoscaler(*BASE, *few, "--format", "json", cwd=folder)
    assert json.loads(measured.stdout)["resize"] == "gpustack-rdma"
    assert measured.stderr == ""


def test_several_profiles_are_compared_in_one_call(folder):
    (folder / "slow.yaml").write_text(PROFILE.replace("4: 4.0", "4: 2.2").replace("linear", "slow"))
    options = ("--profile", "./slow.yaml", "--policy", "static:4", "--format", "json")
    document = json.loads(autoscaler(*BASE, *options, cwd=folder).stdout)
    assert document["profile"] == ["linear", "slow"]
    assert [entry["profile"] for entry in document["results"]] == ["linear", "slow"]


def test_decisions_are_written_and_can_be_read_back(folder):
    options = ("--policy", "threshold", "--resize", "elastic-nixl", "--decisions", "out.jsonl")
    done = autoscaler(*BASE, *options, "--format", "json", cwd=folder)
    entries = list(decisions.read(folder / "out.jsonl"))
    assert len(entries) == json.loads(done.stdout)["results"][0]["ticks"]
    assert any(entry.decision.width is not None for entry in entries)


def test_a_scenario_file_holds_all_options_and_flags_win(folder):
    (folder / "case.yaml").write_text(
        "schema: autoscaler.scenario/v1\ntrace: requests.jsonl\nprofile: ./linear.yaml\n"
        "policy: [static:4]\nresize: restart\nseed: 5\nspeed: 2\n"
    )
    done = autoscaler("simulate", "--scenario", "./case.yaml", "--format", "json", cwd=folder)
    document = json.loads(done.stdout)
    assert (document["seed"], document["resize"]) == (5, "restart")
    assert document["trace"]["duration_s"] == pytest.approx(119.8)
    won = autoscaler(
        *("simulate", "--scenario", "./case.yaml", "--seed", "6", "--format", "json"), cwd=folder
    )
    assert json.loads(won.stdout)["seed"] == 6


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--trace", "none.jsonl"), ["none.jsonl"]),
        (("--policy", "magic"), ["magic", "threshold"]),
        (("--policy", "static:9"), ["static:9", "1 to 4"]),
        (("--profile", "nowhere"), ["nowhere"]),
        (("--resize", "slow"), ["slow", "elastic-nixl"]),
        (("--max-width", "9"), ["9", "1, 2, 4"]),
        (("--window-s", "7"), ["window_s", "scrape_interval_s", "7"]),
        (("--ttft-slo-s", "nan"), ["ttft_slo_s", "nan"]),
        (("--speed", "0"), ["speed", "0"]),
        (("--seed", "x"), ["seed"]),
        (("--nonsense",), ["--nonsense"]),
        (("--scenario", "./linear.yaml"), ["linear.yaml", "schema"]),
    ],
)
def test_unusable_input_is_named_and_ends_with_exit_code_2(folder, options, parts):
    done = autoscaler(*BASE, *options, cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ('{"arrival_s": 1, "prompt_tokens": -4, "output_tokens": 1}', "-4"),
        ('{"arrival_s": 1, "output_tokens": 1}', "prompt_tokens"),
        ('{"arrival_s": NaN, "prompt_tokens": 4, "output_tokens": 1}', "NaN"),
        ('{"arrival_s": 1, "prompt_tokens": 1e9, "output_tokens": 1}', "10,000,000"),
        ('{"arrival_s": 1, "prompt_tok', ""),
    ],
)
def test_a_bad_row_stops_with_file_and_line_or_is_skipped(folder, row, rule):
    trace = folder / "requests.jsonl"
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([*lines[:41], row, *lines[41:]]) + "\n")
    done = autoscaler(*BASE, "--policy", "static:4", cwd=folder)
    assert done.returncode == 2
    assert "requests.jsonl:42:" in done.stderr
    assert rule in done.stderr
    options = ("--policy", "static:4", "--skip-bad-rows", "--format", "json")
    skipped = json.loads(autoscaler(*BASE, *options, cwd=folder).stdout)
    assert (skipped["trace"]["requests"], skipped["trace"]["skipped_rows"]) == (600, 1)


def test_unsorted_and_equal_arrivals_are_sorted_with_a_notice(folder):
    trace = folder / "requests.jsonl"
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join([lines[0], lines[300], *lines[1:]]) + "\n")
    done = autoscaler(*BASE, "--policy", "static:4", "--format", "json", cwd=folder)
    assert done.returncode == 0
    assert "sorted" in done.stderr
    assert json.loads(done.stdout)["trace"]["requests"] == 601
