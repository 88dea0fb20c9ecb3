"""Each fault at least once, in a phase that the seed chooses; the whole matrix is a command.

``python -m tests.e2e.faults.matrix`` plays every fault in every phase and prints the table.
"""

from pathlib import Path

import pytest

from tests.e2e.faults import matrix
from tests.e2e.faults.rows import PHASES
from tests.e2e.faults.table import FAULTS

SEED = 6
LANES = {"prometheus": 4, "api server": 4, "engine": 3, "process": 3}


@pytest.mark.parametrize("group", LANES)
def test_each_fault_is_named_survived_and_over_within_three_ticks(
    group: str, tmp_path: Path
) -> None:
    cells = matrix.chosen(group, SEED)
    results = matrix.play(cells, tmp_path, LANES[group])
    assert [str(result) for result in results if result.problems] == []
    assert len(results) == len(cells)


def test_the_table_has_every_group_and_names_each_fault_once() -> None:
    assert {fault.group for fault in FAULTS} == set(LANES)
    names = [(fault.group, fault.name) for fault in FAULTS]
    assert len(set(names)) == len(names)
    for fault in FAULTS:
        assert set(fault.phases) <= set(PHASES)
        usual = fault.metric and fault.says and not fault.patience_s
        assert usual or fault.why or not fault.lives, fault.name
