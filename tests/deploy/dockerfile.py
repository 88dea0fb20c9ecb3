"""Carries out a Dockerfile's steps in a folder instead of a container.

Enough for ours: ARG, ENV, WORKDIR, COPY and RUN, with the paths that the Dockerfile uses moved into
the folder. It has no layers, no users and the base image's Python is this machine's.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_MOVED = re.compile(r"(?<![\w.$}/])/(opt|src|tmp)(?=[/\s:\"]|$)")
_STEP_S = 600


@dataclass
class Stage:
    """The instructions between two FROMs."""

    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def values(self, word: str) -> list[str]:
        return [rest for step, rest in self.steps if step == word]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for rest in self.values("ENV") for pair in shlex.split(rest))


def stages(dockerfile: Path) -> tuple[dict[str, str], list[Stage]]:
    """Global arguments with their defaults, and the stages in order."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    found: list[Stage] = []
    arguments = {}
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append(Stage(rest))
        elif word and found:
            found[-1].steps.append((word, rest.strip()))
        elif word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
    return arguments, found


class Builder:
    """Carries out a stage.

    Args:
        root: stands for the container's ``/``.
        context: stands for the build context.
        arguments: of the build.
    """

    def __init__(self, root: Path, context: Path, arguments: dict[str, str]) -> None:
        self.root, self._context = root, context
        self._folder = root
        programs = root / "base"
        programs.mkdir(parents=True)
        (root / "tmp").mkdir()
        (programs / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
        self._environ = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(root / "tmp"),
            **{k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_", "REQUESTS_"))},
            **arguments,
        }

    def moved(self, text: str) -> str:
        return _MOVED.sub(lambda found: f"{self.root}/{found[1]}", text)

    def carry_out(self, stage: Stage) -> None:
        for word, rest in stage.steps:
            getattr(self, word.lower())(rest)

    def arg(self, rest: str) -> None:
        assert rest.partition("=")[0] in self._environ

    def env(self, rest: str) -> None:
        given = dict(pair.split("=", 1) for pair in shlex.split(self.moved(rest)))
        given.pop("PIP_NO_CACHE_DIR", None)  # a layer's size is no concern here; the network is
        self._environ |= given

    def workdir(self, rest: str) -> None:
        self._folder = Path(self.moved(rest))
        self._folder.mkdir(parents=True, exist_ok=True)

    def copy(self, rest: str) -> None:
        *sources, to = rest.split()
        for source in sources:
            here = self._context / source
            if here.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(here, self._folder / to, ignore=ignore)
            else:
                shutil.copy(here, self._folder / to)

    def run(self, rest: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", self.moved(rest)],
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )
        assert done.returncode == 0, f"{rest}\n{done.stdout}\n{done.stderr}"
