"""Plays cells in several lanes at once. ``python -m tests.e2e.faults.matrix`` plays all of them."""

import argparse
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tests.e2e.faults.cells import Result, run
from tests.e2e.faults.lane import CLOCKED, FAKETIME, PLAIN, WATCHING, Lane
from tests.e2e.faults.rows import ALL, Fault
from tests.e2e.faults.table import FAULTS

Cell = tuple[Fault, str]


def whole(groups: Iterable[str] = ()) -> list[Cell]:
    """Every cell of these groups, or of all."""
    wanted = set(groups)
    return [(f, p) for f in FAULTS for p in f.phases if not wanted or f.group in wanted]


def chosen(group: str, seed: int) -> list[Cell]:
    """Each fault of a group in one phase, in which it is named where there is one."""
    rng = np.random.default_rng(seed)
    found = []
    for fault in (f for f in FAULTS if f.group == group):
        phases = [p for p in fault.phases if p in fault.named_in]
        found.append((fault, str(rng.choice(phases))))
    return found


def play(cells: list[Cell], folder: Path, lanes: int) -> list[Result]:
    """Play cells, so many at a time."""
    assert FAKETIME, "must have libfaketime, to set a process's clock: make debian"
    waiting = {
        kind: deque(cell for cell in cells if cell[0].lane == kind)
        for kind in (PLAIN, CLOCKED, WATCHING)
    }
    results: list[Result] = []
    threads = [
        threading.Thread(target=_lane, args=(folder / f"lane{n}", kind, waiting[kind], results))
        for n, kind in enumerate((*[PLAIN] * lanes, CLOCKED, WATCHING))
        if waiting[kind]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _lane(folder: Path, kind: str, waiting: deque[Cell], results: list[Result]) -> None:
    lane = None
    number = 0
    try:
        while True:
            try:
                fault, phase = waiting.popleft()
            except IndexError:
                return
            if lane is None:
                (folder / str(number)).mkdir(parents=True)
                lane = Lane(folder / str(number), kind)
                number += 1
                lane.start()
            result = run(lane, fault, phase)
            results.append(result)
            print(f"{result.duration_s:5.1f} s {result}", file=sys.stderr, flush=True)  # noqa: T201  # progress
            if result.problems:  # what it left behind is not the next one's
                _close(lane)
                lane = None
    finally:
        if lane is not None:
            _close(lane)


def _close(lane: Lane) -> None:
    lane.close()
    (lane.folder / "log").write_text("".join(lane.lines()), encoding="utf-8")


def table(results: Iterable[Result]) -> str:
    """For people: a row for each fault, a column for each phase."""
    found = {(r.fault.group, r.fault.name, r.phase): r for r in results}
    rows = ["| Where | Fault | " + " | ".join(ALL) + " |", "|---|---|" + "---|" * len(ALL)]
    for fault in FAULTS:
        cells = [_shown(found.get((fault.group, fault.name, phase))) for phase in ALL]
        if any(cells):
            rows.append(f"| {fault.group} | {fault.name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _shown(result: Result | None) -> str:
    if result is None:
        return ""
    if result.problems:
        return "FAILED"
    return f"ok ({result.recovery_ticks})"


def main() -> int:
    """Play the whole matrix, or parts of it."""
    parser = argparse.ArgumentParser(description="Every fault in every phase.")
    parser.add_argument("--lanes", type=int, default=4, help="how many cells at a time")
    parser.add_argument("--group", action="append", default=[], help="only this one")
    parser.add_argument("--fault", default="", help="only faults whose name contains this")
    parser.add_argument("--phase", default="", help="only this phase")
    parser.add_argument("--folder", help="where files are kept; default: they are not")
    asked = parser.parse_args()
    cells = [
        (fault, phase)
        for fault, phase in whole(asked.group)
        if asked.fault in fault.name and asked.phase in phase
    ]
    with tempfile.TemporaryDirectory() as folder:
        results = play(cells, Path(asked.folder or folder), asked.lanes)
    print(table(results))  # noqa: T201  # its results
    for result in results:
        if result.problems:
            print(result)  # noqa: T201  # its results
    failed = sum(bool(result.problems) for result in results)
    spent_s = sum(result.duration_s for result in results)
    print(f"{len(results)} cells, {failed} failed, {spent_s:.0f} s of lanes")  # noqa: T201  # its results
    return 1 if failed or len(results) < len(cells) else 0


if __name__ == "__main__":
    sys.exit(main())
