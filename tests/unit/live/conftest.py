"""The plug-ins of the end-to-end tests, importable by their dotted names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "e2e" / "run" / "plugins"))
