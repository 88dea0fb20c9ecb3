"""Makes the shipped profiles of this package: ``python -m autoscaler.calibrate.shipped``.

Reads ``simulations/captures``, writes ``simulations/profiles``, both under the current folder.
With names as arguments, only these. Those of measured single runs are made by ``runs.py``.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoscaler import profiles
from autoscaler.calibrate import assumed, captures, partial, report, tables
from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.parameters import Prior
from autoscaler.calibrate.workload import Workload
from autoscaler.profile import Profile

CAPTURES = Path("simulations/captures")
PROFILES = Path("simulations/profiles")
HEADER = "Written by `python -m autoscaler.calibrate.shipped`; do not edit, edit what makes it."

_MODEL = (
    "DeepSeek-V2-Lite-Chat on 8 H100, prompts of 1,024 tokens, outputs of 256 at most, "
    "max-num-seqs 16 a rank, closed loop"
)
_ASSUMED = (
    "Assumed, as the benchmark does not state them: a token budget of 8,192, no asynchronous "
    "scheduling (with it the fit is worse), and that the dispatcher counts a waiting request as "
    "one: with vLLM's weight of 4 full ranks would queue at width 4, concurrency 64, which the "
    "tables do not show."
)
_PARTIAL_FILE = "h100-dsv2lite-external-dp-and-wide-tp.csv"
_WIDE_TP_TOK_PER_S = 1017.434 * 2.27
"""At concurrency 64: the benchmark's text gives it as 2.27 times external DP's on TCP."""


PRIORS = {
    # 2.4 billion active parameters: 4.8 GFLOP a token, on two H100 at 40 % of 989 TFLOP/s.
    "tcp": {"rank_token_s": Prior(6e-6)},
    # Experts' input and output go to all 8 GPUs: 26 layers x 2,048 x 2 bytes x 7 x 2 = 1.5 MB a
    # token, over 8 x 400 Gbit/s at 60 %. Nothing else of a token is paid once for all ranks. (On
    # TCP the bandwidth is unknown, and the kernel copies what stays on the host too.)
    "rdma": {
        "rank_token_s": Prior(6e-6),
        "network_token_s": Prior(6e-6),
        "token_s": Prior(0.0, factor=1.0),
    },
}
"""By transport: what is known without the tables, see ``tables.fit``."""


def elastic_ep_base(transport: str) -> Profile:
    """Elastic EP over one transport, without its costs."""
    return tables.unfitted(
        f"h100-dsv2lite-elastic-ep-{transport}",
        "elastic_ep",
        f"Fitted to the tables of the GPUStack Elastic EP benchmark: {_MODEL}, TP 2 a rank, "
        f"12 cells (widths 2 and 4, concurrency 1 to 64), transport {transport}. {_ASSUMED}",
        tp=2,
        waiting_weight=1.0,
    )


def elastic_ep(transport: str) -> Profile:
    """Elastic EP over one transport, from its 12 cells."""
    base = elastic_ep_base(transport)
    cells = captures.read(CAPTURES / f"{base.name}.csv")
    fit = tables.fit(cells, base, priors=PRIORS[transport])
    comparisons = report.compare(cells, fit.profile, fit.workload)
    return report.described(fit, comparisons, [f"{base.name}.csv"])


def external_dp(transport: str) -> Profile:
    """External DP 4 over one transport, from the few cells that are known."""
    neighbour = profiles.read(PROFILES / f"h100-dsv2lite-elastic-ep-{transport}.yaml")
    base = replace(
        neighbour,
        name=f"h100-dsv2lite-external-dp-{transport}",
        kind="partial",
        layout="external_dp",
        widths={4: neighbour.widths[4]},
        provenance=(
            f"Partial: the cells of the GPUStack External DP benchmark that its text gives: "
            f"{_MODEL} (and 4,096 / 128), DP 4 with TP 2 and an API server a rank, {transport}. "
            f"They fix three scales on the steps of {neighbour.name} at width 4 (fit.scales); "
            "all else is that profile's."
        ),
        fit={},
    )
    cells = [
        c
        for c in captures.read(CAPTURES / _PARTIAL_FILE, tp=2)
        if (c.layout, c.transport) == ("external_dp", transport)
    ]
    # The same hardware and kernels: only what stands in front of the ranks differs.
    return _partial(cells, base, Workload(**neighbour.fit["workload"]), factor=1.2)


def wide_tp() -> Profile:
    """One engine with TP 8, from the few cells that are known."""
    neighbour = profiles.read(PROFILES / "h100-dsv2lite-elastic-ep-rdma.yaml")
    base = replace(
        neighbour,
        name="h100-dsv2lite-wide-tp",
        kind="partial",
        layout="wide_tp",
        tp=1,
        widths={8: neighbour.widths[2]},
        provenance=(
            f"Partial: the cells of the GPUStack External DP benchmark that its text gives: "
            f"{_MODEL} (and 4,096 / 128), TP 8 in one engine. They fix three scales on the steps "
            f"of {neighbour.name} at width 2 (fit.scales); all else is that profile's."
        ),
        fit={},
    )
    cells = []
    for cell in captures.read(CAPTURES / _PARTIAL_FILE, tp=2):
        if cell.layout != "wide_tp":
            continue
        if (cell.concurrency, cell.prompt_tokens) == (64, 1024):
            measured = cell.measured | {"output_tok_per_s": _WIDE_TP_TOK_PER_S}
            cell = replace(cell, measured=measured)  # the text adds to the table
        cells.append(cell)
    return _partial(cells, base, Workload(**neighbour.fit["workload"]), factor=2.0)


def _partial(cells: list[Cell], base: Profile, workload: Workload, *, factor: float) -> Profile:
    effort = tables.Effort(generations=30, population=8, refinements=150, draws=6)
    profile, scales = partial.fit_scales(cells, base, workload, effort, factor=factor)
    comparisons = report.compare(cells, profile, workload)
    fit = {
        "captures": [_PARTIAL_FILE],
        "seed": effort.seed,
        "workload": report.workload_dict(workload),
        "scales": scales,
        "errors": report.summary(comparisons),
        "cells": [c.to_dict() for c in comparisons],
    }
    return replace(profile, fit=fit)


def wide() -> Profile:
    """``assumed-wide``, shaped like the RDMA fit."""
    return assumed.assumed_wide(profiles.read(PROFILES / "h100-dsv2lite-elastic-ep-rdma.yaml"))


MAKERS: dict[str, Callable[[], Profile]] = {
    "h100-dsv2lite-elastic-ep-rdma": lambda: elastic_ep("rdma"),
    "h100-dsv2lite-elastic-ep-tcp": lambda: elastic_ep("tcp"),
    "h100-dsv2lite-external-dp-rdma": lambda: external_dp("rdma"),
    "h100-dsv2lite-external-dp-tcp": lambda: external_dp("tcp"),
    "h100-dsv2lite-wide-tp": wide_tp,
    "assumed-wide": wide,
    "gb200-ramp-13": lambda: assumed.ramp_family(13.0),
    "gb200-ramp-13.5": lambda: assumed.ramp_family(13.5),
    "gb200-ramp-14": lambda: assumed.ramp_family(14.0),
    "gb200-ramp-15": lambda: assumed.ramp_family(15.0),
}
"""By name, in the order to make them: later ones read earlier ones."""


def main(names: list[str]) -> None:
    """Make the named profiles, or all."""
    for name in names or list(MAKERS):
        print(name, file=sys.stderr)  # noqa: T201  # progress
        profiles.write(MAKERS[name](), PROFILES / f"{name}.yaml", header=HEADER)


if __name__ == "__main__":
    main(sys.argv[1:])
