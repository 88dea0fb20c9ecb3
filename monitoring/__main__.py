"""Writes the dashboards: ``python -m monitoring [FOLDER]``, by default deploy/dashboards."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from monitoring.overview import overview
from monitoring.target import target

FOLDER = Path(__file__).parent.parent / "deploy" / "dashboards"


def dashboards() -> Mapping[str, str]:
    """Every dashboard as JSON, by the name of its file."""
    return {
        f"{made.uid}.json": json.dumps(made, cls=JSONEncoder, indent=2) + "\n"
        for made in (overview(), target())
    }


def main(folder: Path = FOLDER) -> None:
    """Write the dashboards to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in dashboards().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
