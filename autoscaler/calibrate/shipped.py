"""Makes the shipped profiles of the H100 tables: ``python -m autoscaler.calibrate.shipped``.

Reads ``simulations/captures``, writes ``simulations/profiles``, both under the current folder.
With names as arguments, only these.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from autoscaler import profiles
from autoscaler.calibrate import captures, report, tables
from autoscaler.profile import Profile
from autoscaler.steps import Steps

CAPTURES = Path("simulations/captures")
PROFILES = Path("simulations/profiles")
HEADER = """Written by `python -m autoscaler.calibrate.shipped`; do not edit, edit what makes it."""

_SOURCE = (
    "Fitted to the tables of the GPUStack Elastic EP benchmark: DeepSeek-V2-Lite-Chat on 8 H100, "
    "TP 2 a rank, prompts of 1,024 tokens, outputs of 256 at most, max-num-seqs 16 a rank; "
    "closed loop, 12 cells (widths 2 and 4, concurrency 1 to 64). The token budget of 8,192 and "
    "asynchronous scheduling are assumed."
)


def unfitted(name: str, layout: str, provenance: str, **given: object) -> Profile:
    """A profile with everything but its costs."""
    return Profile.from_dict(
        {
            "schema": "autoscaler.profile/v1",
            "name": name,
            "kind": "fitted",
            "layout": layout,
            "provenance": provenance,
            "widths": {1: Steps(((1, 1.0),)).to_dict()},
            **given,
        },
        name,
    )


def elastic_ep(transport: str) -> Profile:
    """Elastic EP over one transport, from its 12 cells."""
    name = f"h100-dsv2lite-elastic-ep-{transport}"
    cells = captures.read(CAPTURES / f"{name}.csv")
    base = unfitted(
        name, "elastic_ep", f"{_SOURCE} Transport: {transport}.", tp=2, schedule_ahead=True
    )
    fit = tables.fit(cells, base)
    comparisons = report.compare(cells, fit.profile, fit.workload)
    return report.described(fit, comparisons, [f"{name}.csv"])


MAKERS: dict[str, Callable[[], Profile]] = {
    "h100-dsv2lite-elastic-ep-rdma": lambda: elastic_ep("rdma"),
    "h100-dsv2lite-elastic-ep-tcp": lambda: elastic_ep("tcp"),
}


def main(names: list[str]) -> None:
    """Make the named profiles, or all."""
    for name in names or list(MAKERS):
        print(name, file=sys.stderr)  # noqa: T201  # progress
        profiles.write(MAKERS[name](), PROFILES / f"{name}.yaml", header=HEADER)


if __name__ == "__main__":
    main(sys.argv[1:])
