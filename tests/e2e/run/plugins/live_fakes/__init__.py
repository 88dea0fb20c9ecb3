"""Third-party plug-ins whose world is two JSON files: loaded by their dotted names."""

import json
import os
from pathlib import Path


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write(path, content):
    """Whole or not at all: somebody else may be reading."""
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps(content), encoding="utf-8")
    os.replace(beside, path)  # noqa: PTH105  # as the point is what the system call promises
