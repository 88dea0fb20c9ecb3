import json

import pytest
from typer.testing import CliRunner

from autoscaler.cli_trace import app
from autoscaler.errors import AutoscalerError, ConfigError, TraceError
from autoscaler.traces import load

NATIVE = (
    '{"arrival_s": 1.5, "prompt_tokens": 1, "output_tokens": 10}\n'
    '{"arrival_s": 2.0, "prompt_tokens": 2, "output_tokens": 20}\n'
    '{"arrival_s": 4.0, "prompt_tokens": 3, "output_tokens": 0}\n'
)


@pytest.fixture
def native(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text(NATIVE)
    return file


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, AutoscalerError):  # the main command's business
        raise result.exception
    return result


@pytest.mark.parametrize("command", ["stats", "convert", "synth"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: autoscaler trace {command}" in result.stdout


def test_stats_as_json_is_one_document_on_stdout(native):
    result = run("stats", native, "--format", "json")
    document = json.loads(result.stdout)
    assert (document["requests"], document["duration_s"]) == (3, 2.5)
    assert document["output_tokens"]["total"] == 30


def test_stats_as_text(native):
    lines = run("stats", native).stdout.splitlines()
    assert lines[:2] == ["format    jsonl", "requests  3 in 2.500 s"]
    assert lines[-1] == "prefill   1 requests have no output"


def test_options_of_reading_are_passed_on(native):
    native.write_text(NATIVE + "junk\n")
    result = run("stats", native, native, "--skip-bad-rows", "--speed", 2, "--start-s", 0.25,
                 "--trace-format", "jsonl", "--format", "json")  # fmt: skip
    document = json.loads(result.stdout)
    assert (document["requests"], document["duration_s"], document["skipped_rows"]) == (4, 1.0, 2)
    text = run("stats", native, "--skip-bad-rows")
    assert "left out  1 rows" in text.stdout
    assert "note: " in text.stderr
    assert "note: " not in text.stdout


def test_convert_writes_what_load_reads(native, tmp_path):
    out = tmp_path / "out.parquet"
    result = run("convert", native, "--out", out, "--duration-s", 1)
    assert result.stdout.startswith(f"wrote     {out}\n")
    assert load(out).prompt_tokens.tolist() == [1, 2]


def test_synth_makes_the_ramp(tmp_path):
    out = tmp_path / "ramp.jsonl.zst"
    result = run("synth", "--rate", "8:16", "--requests", 11_391, "--arrivals", "deterministic",
                 "--out", out, "--format", "json")  # fmt: skip
    assert json.loads(result.stdout)["requests"] == 11_391
    trace = load(out)
    assert trace.requests == 11_391
    assert trace.duration_s == pytest.approx(949.25, abs=1 / 15)


@pytest.mark.parametrize("arguments", [
    ("--rate", "20", "--duration-s", "60"), ("--steps", "8x60,16x60"),
    ("--curve", "CURVE", "--rate-scale", "2", "--start-s", "5", "--duration-s", "60"),
    ("--rate", "20", "--requests", "1200", "--arrivals", "gamma", "--arrival-cv", "2"),
    ("--rate", "20", "--duration-s", "60", "--lengths-from", "NATIVE"),
    ("--rate", "20", "--duration-s", "60", "--prompt-cv", "1", "--max-tokens", "2000"),
])  # fmt: skip
def test_synth_is_seeded_and_makes_about_what_is_asked_for(native, tmp_path, arguments):
    curve = tmp_path / "curve.csv"
    curve.write_text("start_s,arrival_rps\n0,10\n60,10\n")
    given = [{"CURVE": curve, "NATIVE": native}.get(a, a) for a in arguments]
    outs = [tmp_path / f"{i}.jsonl" for i in range(3)]
    for out, seed in zip(outs, (1, 1, 2), strict=True):
        assert run("synth", *given, "--out", out, "--seed", seed).exit_code == 0
    assert outs[0].read_bytes() == outs[1].read_bytes() != outs[2].read_bytes()
    assert 1000 < load(outs[0]).requests < 1700


@pytest.mark.parametrize(("arguments", "rule"), [
    ((), "exactly one of --rate, --steps, --curve"),
    (("--rate", "1", "--steps", "1x1"), "exactly one of"),
    (("--rate", "1"), "either duration_s or requests"),
    (("--rate", "a:b", "--duration-s", "9"), "rate: must be number:number; got 'a:b'"),
    (("--steps", "8"), "steps: must be numberxnumber; got '8'"),
    (("--steps", "8x9", "--duration-s", "9"), "duration_s: must not be given with --steps"),
    (("--rate", "1", "--duration-s", "9", "--start-s", "1"), "with --curve only"),
    (("--rate", "1", "--duration-s", "9", "--arrivals", "gamma"), "arrival_cv: must be given"),
    (("--rate", "1", "--duration-s", "9", "--arrival-cv", "2"), "arrival_cv: must be given"),
])  # fmt: skip
def test_synth_refuses_what_does_not_go_together(tmp_path, arguments, rule):
    with pytest.raises(ConfigError, match=rule):
        run("synth", "--out", tmp_path / "t.jsonl", *arguments)


def test_an_unusable_trace_or_argument_is_an_error_for_the_main_command(native, tmp_path):
    native.write_text("junk")
    with pytest.raises(TraceError, match=f"^{native}:1: "):
        run("stats", native)
    with pytest.raises(ConfigError, match="out: must end with"):
        run("convert", native, "--out", tmp_path / "t.csv")
    assert run("stats").exit_code == 2
