"""The table of reported cases names tests that exist, and each of them names its case."""

import ast
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"\| ([MTASG]\d\d) \| .* \| (.*) \|")


def test_every_case_has_tests_that_carry_its_id():
    rows = ROW.findall((ROOT / "docs" / "cases.md").read_text())
    assert len(rows) == len(dict(rows)) == 133
    for case, cell in rows:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", cell)
        assert tests or cell.startswith("not applicable: "), case
        for file, name in tests:
            assert case in name.split("_"), f"{name} is no test of {case}"
            assert name in functions(ROOT / "tests" / file), f"{case}: {file} has no {name}"


@lru_cache
def functions(file: Path) -> set[str]:
    """Names of the functions in a file."""
    tree = ast.parse(file.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
