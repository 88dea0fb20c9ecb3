"""Closed-loop cells with fixed lengths: read, simulated, compared."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscaler.calibrate.search import Vector
from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import ITL_FINE_FLOOR_S, ITL_FINE_LOG_STEP
from autoscaler.engine.physics import Physics
from autoscaler.errors import ConfigError

PROMPT_TOKENS, OUTPUT_TOKENS = 1024, 256
"""Of every request of the H200 curves; no early stops there."""

QUANTITIES = ("ttft_p50_s", "ttft_p95_s", "itl_p50_s", "output_tokens_per_s")
_STEPS_BETWEEN_DRAWS = 4096


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a curve: so many clients, each sending again as soon as it is served.

    Args:
        width, clients, requests: as measured.
        ttft_p50_s, ttft_p95_s, itl_p50_s: seconds.
        output_tokens_per_s: of all clients.
    """

    width: int
    clients: int
    requests: int
    ttft_p50_s: float
    ttft_p95_s: float
    itl_p50_s: float
    output_tokens_per_s: float

    def values(self) -> Vector:
        """float64[4] in the order of ``QUANTITIES``."""
        return np.array([getattr(self, name) for name in QUANTITIES])


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as its client saw it.

    Args:
        run: which run it belongs to; runs named ``curve-...`` make up the curves.
        width, clients: of the run.
        submit_s: from the start of the run, or from the resize that the run is about.
        ttft_s, latency_s: from submission to first and last token.
    """

    run: str
    width: int
    clients: int
    submit_s: float
    ttft_s: float
    latency_s: float


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(f"{path}: must be a readable table; {error}") from error


def read_sent(path: Path) -> list[Sent]:
    """Requests from CSV.

    Raises:
        ConfigError: unreadable, a column is missing, or a value is no number.
    """
    try:
        return [
            Sent(
                run=row["run"],
                width=int(row["width"]),
                clients=int(row["concurrency"]),
                submit_s=float(row["submit_s"]),
                ttft_s=float(row["ttft_s"]),
                latency_s=float(row["latency_s"]),
            )
            for row in _rows(path)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: must hold the columns of Sent; {error!r}") from error


def read_cells(path: Path) -> list[Cell]:
    """Cells of a capture with columns in milliseconds, as its rows come.

    Raises:
        ConfigError: unreadable, a column is missing, or a value is no number.
    """
    try:
        return [
            Cell(
                width=int(row["width"]),
                clients=int(row["concurrency"]),
                requests=int(row["requests"]),
                ttft_p50_s=float(row["ttft_p50_ms"]) / 1e3,
                ttft_p95_s=float(row["ttft_p95_ms"]) / 1e3,
                itl_p50_s=float(row["itl_p50_ms"]) / 1e3,
                output_tokens_per_s=float(row["output_tok_per_s"]),
            )
            for row in _rows(path)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: must hold the columns of a capture; {error!r}") from error


def simulate(cell: Cell, physics: Physics, draws: int) -> Vector:
    """What the physics say of a cell, the median over draws of the prefill spread.

    Returns:
        float64[4] in the order of ``QUANTITIES``.
    """
    n = cell.requests
    load = Load(
        np.zeros(n), np.full(n, PROMPT_TOKENS, np.int32), np.full(n, OUTPUT_TOKENS, np.int32)
    )
    results = []
    for draw in range(draws):
        engine = Engine(load, physics, clients=cell.clients)
        engine.state["prefill_steps"] = _STEPS_BETWEEN_DRAWS * draw
        engine.run()
        below = np.cumsum(engine.itl_fine)
        middle = int((below < below[-1] / 2).sum()) + 0.5
        ttft_p50_s, ttft_p95_s = np.percentile(engine.first_s - engine.arrival_s, (50, 95))
        itl_p50_s = ITL_FINE_FLOOR_S * np.exp(middle * ITL_FINE_LOG_STEP)
        tokens_per_s = n * OUTPUT_TOKENS / float(engine.finish_s.max())
        results.append((ttft_p50_s, ttft_p95_s, itl_p50_s, tokens_per_s))
    return np.asarray(np.median(results, axis=0), np.float64)


def pooled(cells: Sequence[Cell], sent: Sequence[Sent]) -> list[Cell]:
    """The cells with TTFT percentiles over all runs of their curve, where there was more than one.

    A closed loop with lockstep ranks has several gaits, and a run stays in one of them by chance:
    at width 2, concurrency 8 two runs of 32 requests gave TTFT p50 of 239 and 129 ms.
    """
    result = []
    for cell in cells:
        ttft_s = [
            r.ttft_s
            for r in sent
            if r.run.startswith("curve") and (r.width, r.clients) == (cell.width, cell.clients)
        ]
        p50_s, p95_s = np.percentile(ttft_s, (50, 95))
        result.append(
            Cell(
                width=cell.width,
                clients=cell.clients,
                requests=cell.requests,
                ttft_p50_s=float(p50_s),
                ttft_p95_s=float(p95_s),
                itl_p50_s=cell.itl_p50_s,
                output_tokens_per_s=cell.output_tokens_per_s,
            )
        )
    return result
