"""Every snippet of the README runs as printed, in a folder that has what a reader would have."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SERVERS = ("emulate", "run")
"""Commands that go on until they are told to stop."""


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in snippets("console") for line in block.splitlines()]
    return [line.split("#")[0].split() for line in lines]


def started(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """A server that has said that it is up."""
    server = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert any("http://" in line or "started" in line for line in server.stdout)
    return server


def test_the_readme_is_short_enough_to_be_read():
    assert len(README.splitlines()) <= 120


def test_its_two_commands_are_targets_of_the_makefile():
    made = [words[1] for words in commands() if words[0] == "make"]
    makefile = (ROOT / "Makefile").read_text()
    assert made == ["demo", "test"]
    for target in made:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_file_that_it_links_or_names_is_there():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if not link.startswith("http"):
            assert (ROOT / link).exists(), link


def test_every_other_snippet_runs_as_printed(tmp_path):
    row = snippets("json")[0].strip()
    assert json.loads(row)
    request = json.loads(row)
    rows = [json.dumps(request | {"arrival_s": k / 4}) for k in range(400)]
    (tmp_path / "requests.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "autoscaler.yaml").write_text(snippets("yaml")[0])
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    running: list[subprocess.Popen[str]] = []
    try:
        for words in commands():
            if words[0] == "make":
                continue
            if words[0] != ".venv/bin/autoscaler":
                subprocess.run(words, cwd=tmp_path, check=True)
                continue
            command = [sys.executable, "-m", "autoscaler", *words[1:]]
            if words[1] in SERVERS:
                running.append(started(command, tmp_path))
                continue
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
            )
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            assert done.stdout
        assert len(running) == 2
        for server in running[::-1]:
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=10) == 0
    finally:
        for server in running:
            server.kill()
            server.communicate()


@pytest.mark.parametrize("command", [words for words in commands() if len(words) > 1])
def test_no_snippet_names_an_option_that_does_not_exist(command):
    if command[0] != ".venv/bin/autoscaler":
        return
    done = subprocess.run(
        [sys.executable, "-m", "autoscaler", command[1], "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for option in command:
        if option.startswith("--"):
            assert option in done.stdout
