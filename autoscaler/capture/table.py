"""Writes captures: the table that ``calibrate`` reads, and where it comes from beside it."""

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscaler.capture.cells import Cell
from autoscaler.errors import ConfigError

SCHEMA = "autoscaler.capture/v1"

_METRICS = (
    "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "itl_p50_ms", "itl_p99_ms", "output_tok_per_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was measured.

    Args:
        gpus_per_width: GPUs of one rank; None: not stated, and the table says no GPUs.
        prompt_tokens, output_tokens: of every request.
    """

    gpus_per_width: int | None
    prompt_tokens: int
    output_tokens: int


def write(
    out: Path,
    cells: Iterable[tuple[int, Cell]],
    deployment: Deployment,
    provenance: Mapping[str, Any],
) -> list[Path]:
    """Write all cells, each with the width at which it was measured; returns the files.

    Closed-loop cells go to ``out``. ``calibrate`` fits closed loops only, so that open-loop cells
    go to ``<stem>.open-loop.csv`` beside it. ``<stem>.provenance.json`` says where they are from.

    Raises:
        ConfigError: a file cannot be written.
    """
    cells = list(cells)
    closed = [(w, c) for w, c in cells if c.concurrency is not None]
    opened = [(w, c) for w, c in cells if c.concurrency is None]
    written = []
    for path, group, key in (
        (out, closed, "concurrency"),
        (out.with_name(f"{out.stem}.open-loop.csv"), opened, "arrival_rps"),
    ):
        if group:
            _table(path, group, key, deployment)
            written.append(path)
    beside = out.with_name(f"{out.stem}.provenance.json")
    content = {"schema": SCHEMA, **provenance, "failed": sum(c.failed for _, c in cells)}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        beside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{beside}: must be a writable file; {error.strerror}") from error
    return [*written, beside]


def _table(path: Path, cells: list[tuple[int, Cell]], key: str, deployment: Deployment) -> None:
    gpus = deployment.gpus_per_width
    columns = [key, "width", "gpus", "requests", "prompt_tokens", "output_tokens",
               "output_tokens_mean", *_METRICS]  # fmt: skip
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for width, cell in cells:
                writer.writerow(
                    {
                        key: getattr(cell, key),
                        "width": width,
                        "gpus": "" if gpus is None else gpus * width,
                        "requests": cell.requests,
                        "prompt_tokens": deployment.prompt_tokens,
                        "output_tokens": deployment.output_tokens,
                        "output_tokens_mean": round(cell.output_tokens_mean, 3),
                        **{name: _rounded(getattr(cell, name)) for name in _METRICS},
                    }
                )
    except OSError as error:
        raise ConfigError(f"{path}: must be a writable file; {error.strerror}") from error


def _rounded(value: float) -> float | str:
    return "" if math.isnan(value) else round(value, 3)
