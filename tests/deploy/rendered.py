"""What ``kubectl kustomize`` makes of the folders in deploy/."""

import shutil
import subprocess
import sys
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(p.name for p in (DEPLOY / "overlays").iterdir() if p.is_dir())

Json = dict[str, Any]


def tool(name: str) -> str:
    """A program of the development environment; the one on PATH may be years older."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


@lru_cache
def _text(folder: str) -> str:
    command = [tool("kubectl"), "kustomize", str(DEPLOY / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr  # such as a deprecated field
    return done.stdout


def rendered(folder: str) -> list[Json]:
    """The objects of a folder below deploy/, each call with copies of its own."""
    return [deepcopy(found) for found in yaml.safe_load_all(_text(folder))]


def overlay(name: str) -> list[Json]:
    return rendered(f"overlays/{name}")


def one(objects: list[Json], kind: str, name: str = "autoscaler") -> Json:
    (found,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def configuration(objects: list[Json], folder: Path) -> Path:
    """Put the ConfigMap's files into a folder, as its volume does; the path of autoscaler.yaml."""
    for name, content in one(objects, "ConfigMap", "autoscaler-config")["data"].items():
        (folder / name).write_text(content)
    return folder / "autoscaler.yaml"


def pod(objects: list[Json]) -> Json:
    return one(objects, "Deployment")["spec"]["template"]["spec"]


def containers(spec: Json) -> list[Json]:
    return [
        *spec.get("initContainers", []),
        *spec["containers"],
        *spec.get("ephemeralContainers", []),
    ]
