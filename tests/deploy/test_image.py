"""The Dockerfile, carried out as far as a machine without containers can, and the wheel in it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .dockerfile import Builder, stages
from .rendered import DEPLOY, ROOT, containers, one, pod, rendered, tool

DOCKERFILE = DEPLOY / "Dockerfile"
ARGUMENTS, (BUILD, FINAL) = stages(DOCKERFILE)


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """What the build stage leaves, below a folder that stands for ``/``."""
    root = Path(tempfile.mkdtemp(prefix="image-"))
    try:
        Builder(root, ROOT, ARGUMENTS).carry_out(BUILD)
        yield root
    finally:
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o755)
        shutil.rmtree(root)


@pytest.fixture(scope="module")
def sealed(built: Path) -> Path:
    """The same with nothing in it that may be written."""
    for folder, _, files in os.walk(built):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)
        Path(folder).chmod(0o555)
    return built


def autoscaler(
    root: Path, *words: str, compiled: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the image's program without the right to write where permissions forbid it."""
    without_rights: list[str] = []
    if os.geteuid() == 0:  # root obeys no permission bits, unless it has no capabilities
        without_rights = ["setpriv", "--bounding-set=-all", "--no-new-privs"]
    environ = {
        **{k: v for k, v in FINAL.environment.items() if k != "PATH"},
        "PATH": "/usr/bin:/bin",
        "HOME": str(root / "nonexistent"),
        "NUMBA_CACHE_DIR": str(compiled or root / "opt" / "compiled"),
    }
    return subprocess.run(
        [*without_rights, str(root / "opt" / "autoscaler" / "bin" / "autoscaler"), *words],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def trace(root: Path) -> str:
    """A sample trace inside the installed package."""
    (found,) = root.glob(
        "opt/autoscaler/lib/python3*/site-packages/autoscaler/data/traces/*conv.csv"
    )
    return str(found)


def test_the_linter_has_nothing_to_say():
    done = subprocess.run(
        [tool("hadolint"), str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_both_stages_come_from_one_base_that_is_pinned_by_digest_S17():
    assert {BUILD.base, FINAL.base} == {"${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"}
    assert re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", ARGUMENTS["PYTHON_IMAGE"])


@pytest.mark.parametrize("image", ["python:3.11-slim", ""])
def test_a_base_without_a_digest_is_refused(image, tmp_path):
    builder = Builder(tmp_path / "root", ROOT, {"PYTHON_IMAGE": image})
    with pytest.raises(AssertionError, match="PYTHON_IMAGE: must name a digest"):
        builder.run(BUILD.values("RUN")[0])


def test_the_image_is_what_the_deployment_takes_it_for():
    spec = pod(rendered("base"))
    security = spec["securityContext"]
    assert FINAL.values("USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]
    assert json.loads(FINAL.values("ENTRYPOINT")[0]) == ["autoscaler"]
    (program,) = spec["containers"]
    assert "command" not in program
    assert FINAL.values("EXPOSE") == [str(p["containerPort"]) for p in program["ports"]]
    compiled = FINAL.environment["NUMBA_CACHE_DIR"]
    (first,) = spec["initContainers"]
    assert first["command"][:3] == ["cp", "-R", f"{compiled}/."]
    shared = {m["name"]: m["mountPath"] for m in program["volumeMounts"]}
    assert shared[first["volumeMounts"][0]["name"]] == compiled
    for key in ("NUMBA_CPU_NAME", "NUMBA_CACHE_DIR"):  # else it is compiled again
        assert BUILD.environment[key] == FINAL.environment[key]
    named = {e["name"] for c in containers(spec) for e in c.get("env", ())}
    assert not named & set(FINAL.environment)


def test_only_what_the_image_is_built_from_is_sent_to_the_builder():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {line[1:] for line in rules if line.startswith("!")}
    copied = {source for rest in BUILD.values("COPY") for source in rest.split()[:-1]}
    assert sent == copied
    assert all((ROOT / source).exists() for source in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert all(any(Path(part).is_relative_to(source) for source in copied) for part in included)


def test_the_image_has_the_locked_packages_and_no_other(built):
    locked = set(
        re.findall(
            r"^([a-z0-9-]+)==(\S+)", (DEPLOY / "locks" / "run.lock").read_text(), re.MULTILINE
        )
    )
    site = next(built.glob("opt/autoscaler/lib/python3*/site-packages"))
    there = {tuple(p.stem.rsplit("-", 1)) for p in site.glob("*.dist-info")}
    names = {(re.sub("[-_.]+", "-", name).lower(), version) for name, version in there}
    assert names - {("autoscaler", one_version())} == locked
    assert not list((built / "opt" / "autoscaler" / "bin").glob("pip*"))


def one_version() -> str:
    image = one(rendered("base"), "Deployment")["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    return image.partition(":")[2]


def test_every_command_is_there_in_the_wheel(sealed):
    done = autoscaler(sealed, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    commands = ("simulate", "run", "check", "capture", "calibrate", "replay", "trace", "emulate")
    for command in commands:
        assert re.search(rf"\b{command}\b", done.stdout)
        shown = autoscaler(sealed, command, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")


SIMULATE = ("simulate", "--duration-s", "60", "--policy", "threshold", "--policy", "static:4")


def test_a_simulation_runs_where_nothing_may_be_written_S4(sealed):
    done = autoscaler(sealed, *SIMULATE, "--trace", trace(sealed))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "threshold" in done.stdout


def test_a_copy_of_the_compiled_code_is_all_that_a_start_needs_S4(sealed, tmp_path):
    compiled = tmp_path / "compiled"
    shutil.copytree(sealed / "opt" / "compiled", compiled)
    for path in [compiled, *compiled.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    before = {p: p.stat().st_mtime_ns for p in compiled.rglob("*") if p.is_file()}
    assert before
    done = autoscaler(sealed, *SIMULATE, "--trace", trace(sealed), compiled=compiled)
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in compiled.rglob("*") if p.is_file()} == before


def test_an_unusable_configuration_is_said_in_one_line_and_not_with_a_traceback(sealed, tmp_path):
    wrong = tmp_path / "autoscaler.yaml"
    wrong.write_text("tick_s: 0\n")
    done = autoscaler(sealed, "run", "--config", str(wrong))
    assert done.returncode == 2
    assert "tick_s" in done.stderr
    assert "Traceback" not in done.stderr
