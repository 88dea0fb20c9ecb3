"""What a closed-loop table is explained by: physical parameters, shared by its widths.

A small table identifies little. Whatever does not physically depend on the width is one number
for all of them: request overhead, API server, what a prompt token costs. Only the flat cost of a
step that prefills, and the decode staircase, are looked up by width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.search import Vector, rounded
from autoscaler.calibrate.workload import Workload
from autoscaler.profile import Profile
from autoscaler.steps import Steps, graph_sizes

Knots = dict[int, float]
"""Decode step in ms by batch size."""


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
        values = rounded(vector)
        return cls(*values[:7], flat_s=dict(zip(widths, values[7:], strict=True)))

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


def bounds(cells: Sequence[Cell], *, early_stops: bool) -> list[tuple[float, float]]:
    """Where to search, scaled by the unloaded TTFT, so that any model and machine fits in.

    Args:
        cells: the table; its lowest concurrency gives the scale.
        early_stops: whether the share of requests at the cap is searched too, or is 1.
    """
    fewest = min(c.concurrency for c in cells)
    unloaded = [c for c in cells if c.concurrency == fewest and "ttft_p50_ms" in c.measured]
    ttft_s = max((c.measured["ttft_p50_ms"] / 1e3 for c in unloaded), default=0.1)
    token_s = ttft_s / max((c.prompt_tokens for c in unloaded), default=1024)
    return [
        (0.0, 0.5 * ttft_s),  # overhead
        (0.0002, 0.003),  # API server: tokenizing a thousand tokens takes about a millisecond
        (0.0, 0.6 * token_s),
        (0.0, 1.2 * token_s),
        (0.0, 0.3 * token_s),
        (0.0, 1.0),
        (0.5, 0.85) if early_stops else (1.0, 1.0 + 1e-9),
        *[(0.02 * ttft_s, ttft_s)] * len({c.width for c in cells}),
    ]


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
        for below, size in zip(sizes, sizes[1:], strict=False):
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
