"""Tunes the policies that ship tuned and writes their files: ``benchmarks/tuned_policies.py``.

About 2 minutes of one core each. The same code gives the same bytes on any number of cores; after
a change of the simulator, the guards or the scenarios, the numbers found are others.
"""

import argparse
import sys
from pathlib import Path

from autoscaler.cli import main

TRIALS = {"threshold": 120, "pid": 160}
"""By policy. Neither model_based, nor any of those that are there for comparison: these ship with
the defaults that their users run."""

TUNED_ON = (
    *("slow-drift", "step-small", "ramp-up-and-down", "long-prompts-ramp"),
    *("ramp-gb200-14", "h100-rdma", "azure-conv", "mooncake-long-prompts"),
)
"""One of each kind of load that a policy without foresight can hope to follow. Two of them need no
resize: without these the search finds marks below what an idle engine takes for a long prompt.
Bursts faster than any resize would only teach to stay wide."""

HELD_OUT = (
    *("diurnal-servegen", "diurnal-servegen-raw", "azure-conv-x4", "azure-conv-x8"),
    *("mooncake-long-prompts-x4", "aibrix-up-and-down", "noisy-metrics", "late-metrics"),
    *("ramp-gb200-15", "resize-gpustack-rdma", "resize-vllm-0.25-measured", "h100-tcp"),
    *("spike", "sawtooth", "step-large"),
)


def _tune(policy: str, folder: Path, jobs: int | None) -> None:
    arguments = ["tune", "--policy", policy, "--out", str(folder / f"{policy}.yaml")]
    arguments += ["--trials", str(TRIALS[policy]), "--resume"]
    for name in TUNED_ON:
        arguments += ["--scenario", name]
    for name in HELD_OUT:
        arguments += ["--holdout-scenario", name]
    main(arguments + (["--jobs", str(jobs)] if jobs else []))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=TRIALS, action="append")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "policies")
    parser.add_argument("--jobs", type=int, default=None)
    given = parser.parse_args()
    for each in given.policy or TRIALS:
        try:
            _tune(each, given.out, given.jobs)
        except SystemExit as end:
            if end.code:
                sys.exit(end.code)
