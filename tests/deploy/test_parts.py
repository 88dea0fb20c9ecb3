"""What the image consists of: locks by hash, and the list of parts."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from .rendered import DEPLOY, ROOT

IMAGE_LOCKS = sorted((DEPLOY / "locks").glob("*.lock"))
LOCKS = [ROOT / "requirements.lock", DEPLOY / "parts.lock", *IMAGE_LOCKS]


def pins(lock: Path) -> dict[tuple[str, str], set[str]]:
    """Hashes by name and version."""
    found: dict[tuple[str, str], set[str]] = {}
    for block in re.split(r"\n(?=[a-z0-9])", lock.read_text()):
        head = re.match(r"([a-z0-9-]+)==([^\s;]+)", block)
        assert head, f"{lock}: {block!r:.80}"
        found[head[1], head[2]] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
    return found


def name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9-]", requirement)[0].lower()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_everything_is_pinned_by_hash_and_names_no_index_S16(lock):
    assert all(pins(lock).values())
    assert "://" not in lock.read_text()


@pytest.mark.parametrize("lock", IMAGE_LOCKS, ids=lambda path: path.name)
def test_the_image_is_built_from_what_the_tests_ran_with(lock):
    tested = pins(LOCKS[0])
    for pin, hashes in pins(lock).items():
        assert hashes == tested[pin], pin


def test_every_dependency_is_in_the_images_lock_and_no_tool_is():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = {package for package, _ in pins(DEPLOY / "locks" / "run.lock")}
    assert {name(d) for d in project["project"]["dependencies"]} <= locked
    tools = {name(d) for d in project["dependency-groups"]["dev"] if isinstance(d, str)}
    assert not tools & locked
    (backend,) = {name(d) for d in project["build-system"]["requires"]}
    assert backend in {package for package, _ in pins(DEPLOY / "locks" / "build.lock")}


def test_the_list_of_parts_is_the_lock_with_its_hashes_S17(tmp_path):
    made = tmp_path / "sbom.json"
    (recipe,) = re.findall(r"\.parts/bin/(cyclonedx-py .*\\\n.*)", (ROOT / "Makefile").read_text())
    words = recipe.replace("\\\n", " ").replace("dist/sbom.cdx.json", str(made)).split()
    subprocess.run(
        [ROOT / ".parts" / "bin" / words[0], *words[1:]],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    parts = json.loads(made.read_text())
    assert parts["bomFormat"] == "CycloneDX"
    assert parts["metadata"]["component"]["name"] == "autoscaler"
    listed = {
        (c["name"], c["version"]): {
            h["content"] for r in c["externalReferences"] for h in r.get("hashes", ())
        }
        for c in parts["components"]
    }
    assert listed == pins(DEPLOY / "locks" / "run.lock")
