"""How well the engine reproduces two real runs, request by request: prints JSON.

python benchmarks/fidelity_runs.py [--refit]

--refit fits both profiles anew instead of reading the shipped ones.
"""

import json
import sys
from pathlib import Path
from typing import Any

from autoscaler import profiles
from autoscaler.calibrate import runs
from autoscaler.calibrate.replay import read_run
from autoscaler.profile import Profile

CAPTURES = Path(__file__).parents[1] / "simulations" / "captures"


def report(moe: Profile, h200: Profile) -> dict[str, Any]:
    """Everything that is known about how well both profiles do."""
    return {
        "moe_run": runs.moe_report(moe, read_run(CAPTURES / f"{runs.MOE}-requests.csv")),
        "h200_cells": runs.h200_report(h200, CAPTURES),
        "h200_held_out": runs.held_out_report(h200, CAPTURES),
        "h200_open_loop": runs.open_loop_report(h200),
    }


if __name__ == "__main__":
    fitted = (
        runs.fit_all(CAPTURES)
        if "--refit" in sys.argv[1:]
        else [profiles.load(name) for name in (runs.MOE, runs.H200)]
    )
    print(json.dumps(report(*fitted), indent=2))
