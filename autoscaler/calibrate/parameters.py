"""What a closed-loop table is explained by: physical parameters, shared by its widths.

A small table identifies little. Whatever does not physically depend on the width is one number
for all of them: request overhead, API server, what a prompt token costs. Only the flat cost of a
step that prefills, and the decode staircase, are looked up by width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.search import Vector, rounded
from autoscaler.calibrate.workload import Workload
from autoscaler.profile import Profile
from autoscaler.steps import Steps, graph_sizes

Knots = dict[int, float]
"""Decode step in ms by batch size."""


NAMES = (
    "overhead_s", "api_serial_s", "token_s", "network_token_s", "rank_token_s", "mixed_share",
    "cap_share",
)  # fmt: skip
"""Parameters that do not depend on the width, in the order of a vector."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a parameter without the table.

    Args:
        value: from the model's and the machine's data sheets, > 0.
        factor: how far off it may well be; infinite certainty: 1, which fixes the value.
    """

    value: float
    factor: float = 2.0

    def cost(self, value: float) -> float:
        """Squared distance in powers of the factor, weighed like a few cells."""
        if self.factor == 1.0:
            return 0.0
        distance = np.log(max(value, 1e-12) / self.value) / np.log(self.factor)
        return 2.0 * float(distance) ** 2


@dataclass(frozen=True, slots=True)
class Fitted:
    """The parameters of one table.

    Args:
        overhead_s, api_serial_s: as in ``Profile``.
        token_s: cost of a prompt token wherever it is, summed over ranks.
        network_token_s: cost of a prompt token that crosses the network between ranks; of all
            tokens (width - 1) / width do, as experts are spread evenly.
        rank_token_s: cost of a prompt token of the fullest rank.
        mixed_share: as in ``Steps``.
        cap_share: as in ``Workload``.
        flat_s: by width: what a step that prefills costs at least.
    """

    overhead_s: float
    api_serial_s: float
    token_s: float
    network_token_s: float
    rank_token_s: float
    mixed_share: float
    cap_share: float
    flat_s: Mapping[int, float]

    @classmethod
    def from_vector(cls, vector: Vector, widths: Sequence[int]) -> "Fitted":
        """From float64[7 + widths], in the order of the fields, to five digits."""
        overhead, api, token, network, rank, mixed, cap, *flat = rounded(vector)
        by_width = dict(zip(widths, flat, strict=True))
        return cls(overhead, api, token, network, rank, mixed, cap, by_width)

    def steps(self, width: int, decode_ms: Knots) -> Steps:
        """Step costs at one width."""
        crossing = (width - 1) / width
        return Steps(
            decode_ms=tuple(sorted(decode_ms.items())),
            prefill_flat_s=self.flat_s[width],
            prefill_token_s=float(f"{self.token_s + self.network_token_s * crossing:.5g}"),
            prefill_rank_token_s=self.rank_token_s,
            mixed_share=self.mixed_share,
        )

    def workload(self, mean_share: float) -> Workload:
        """The requests of the table."""
        return Workload(self.cap_share, mean_share)

    def apply(self, base: Profile, decode_ms: Mapping[int, Knots]) -> Profile:
        """The profile with these parameters in place of its own costs."""
        return replace(
            base,
            overhead_s=self.overhead_s,
            api_serial_s=self.api_serial_s,
            widths={w: self.steps(w, knots) for w, knots in decode_ms.items()},
        )


def bounds(
    cells: Sequence[Cell], priors: Mapping[str, Prior], *, early_stops: bool
) -> list[tuple[float, float]]:
    """Where to search, scaled by the unloaded TTFT, so that any model and machine fits in.

    Args:
        cells: the table; its lowest concurrency gives the scale.
        priors: by name; those with factor 1 are not searched.
        early_stops: whether the share of requests at the cap is searched too, or is 1.
    """
    fewest = min(c.concurrency for c in cells)
    unloaded = [c for c in cells if c.concurrency == fewest and "ttft_p50_ms" in c.measured]
    ttft_s = max((c.measured["ttft_p50_ms"] / 1e3 for c in unloaded), default=0.1)
    token_s = ttft_s / max((c.prompt_tokens for c in unloaded), default=1024)
    limits = {
        "overhead_s": (0.0, 0.5 * ttft_s),
        # Tokenizing a thousand tokens takes about a millisecond.
        "api_serial_s": (0.0002, 0.003),
        "token_s": (0.0, 0.6 * token_s),
        "network_token_s": (0.0, 1.2 * token_s),
        "rank_token_s": (0.0, 0.3 * token_s),
        "mixed_share": (0.0, 1.0),
        "cap_share": (0.5, 0.85) if early_stops else (1.0, 1.0),
    }
    for name, prior in priors.items():
        if prior.factor == 1.0:
            limits[name] = (prior.value, prior.value)
    widths = {c.width for c in cells}
    return [limits[name] for name in NAMES] + [(0.02 * ttft_s, ttft_s)] * len(widths)


def staircases(cells: Sequence[Cell], slots: int, ranks_of: Mapping[int, int]) -> dict[int, Knots]:
    """Decode step in ms by batch size and width, read off the cells' ITL p50.

    With c clients on r ranks the median gap between tokens is a plain decode step with c / r
    requests on the fullest rank, padded to a CUDA graph size. Cells of the same batch are
    averaged geometrically. A batch size that one width has no cell for costs there what it costs
    at the other widths, relative to the next smaller one: the same kernels run.

    Args:
        cells: the table; those without ITL p50 are left out.
        slots: requests a rank takes at most.
        ranks_of: by width.
    """
    logs: dict[int, dict[int, list[float]]] = {w: {} for w in sorted({c.width for c in cells})}
    sizes = [size for size in graph_sizes(slots) if size < slots] + [slots]
    for cell in cells:
        if "itl_p50_ms" not in cell.measured:
            continue
        batch = min(-(-cell.concurrency // ranks_of[cell.width]), slots)
        size = next(size for size in sizes if size >= batch)
        logs[cell.width].setdefault(size, []).append(np.log(cell.measured["itl_p50_ms"]))
    known = {w: {s: float(np.mean(v)) for s, v in sorted(by.items())} for w, by in logs.items()}
    for width, by_size in known.items():
        for below, size in pairwise(sizes):
            growth = [
                other[size] - other[below]
                for w, other in known.items()
                if w != width and below in logs[w] and size in logs[w]
            ]
            if size not in by_size and below in by_size and growth:
                by_size[size] = by_size[below] + float(np.mean(growth))
    return {
        width: {size: float(f"{np.exp(log):.5g}") for size, log in sorted(by_size.items())}
        for width, by_size in known.items()
    }
