import json

import pytest
import typer
from typer.testing import CliRunner

from autoscaler import cli_calibrate, profiles
from autoscaler.calibrate import tables
from autoscaler.errors import ConfigError

TABLE = """concurrency,width,gpus,requests,output_tokens,ttft_p50_ms,itl_p50_ms,output_tok_per_s
1,2,4,8,64,90,6,130
4,2,4,16,64,95,7,390
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command with a search so small that it proves nothing but the way through."""
    effort = tables.Effort

    def small(*, seed):
        return effort(
            generations=1, population=1, refinements=5, draws=2, judged_draws=3, seed=seed
        )

    monkeypatch.setattr(tables, "Effort", small)
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    app = typer.Typer()
    app.command()(cli_calibrate.calibrate)

    def invoke(*arguments):
        command = ["--captures", str(table), "--tp", "2", *map(str, arguments)]
        return CliRunner().invoke(app, command)

    return invoke


def test_the_command_writes_a_profile_and_prints_every_cell(run, tmp_path):
    out = tmp_path / "mine.yaml"
    result = run("--out", out)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("output_tok_per_s") == 3
    profile = profiles.read(out)
    assert (profile.name, profile.kind, profile.tp, profile.known_widths) == (
        "mine",
        "fitted",
        2,
        (2,),
    )
    assert profile.fit["captures"] == ["table.csv"]


def test_json_output_and_equal_bytes(run, tmp_path):
    outs = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    documents = [
        json.loads(run("--out", o, "--name", "same", "--format", "json").stdout) for o in outs
    ]
    assert documents[0]["summary"] == documents[1]["summary"]
    assert documents[0]["cells"][0]["ttft_p50_ms"].keys() == {"measured", "fitted", "error_ratio"}
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_folder_that_is_not_there_is_refused_before_the_work(run, tmp_path):
    result = run("--out", tmp_path / "no" / "mine.yaml")
    assert isinstance(result.exception, ConfigError)
    assert "--out: its folder must exist" in str(result.exception)
