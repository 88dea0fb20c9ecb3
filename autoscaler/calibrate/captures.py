"""Benchmark tables: cells of so many clients at some width, read from CSV or benchmark JSON."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.errors import ConfigError

METRICS = (
    "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "itl_p50_ms", "itl_p99_ms", "output_tok_per_s",
)  # fmt: skip
"""What a cell may have measured; the names are the columns of a CSV."""

PROMPT_TOKENS, OUTPUT_TOKENS = 1024, 256
"""Of every request, where a table does not say."""

_WHOLE = ("concurrency", "width", "gpus", "requests", "prompt_tokens", "output_tokens")
_TEXT = ("layout", "transport", "note")
_COLUMNS = (*_WHOLE, "output_tokens_mean", *METRICS, *_TEXT)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a closed-loop benchmark.

    Args:
        concurrency: clients, each sending again as soon as it is served.
        width: data-parallel width; with layout ``wide_tp`` the TP of the one engine.
        requests: of the run.
        measured: metric name (one of METRICS): value, in the unit of its name.
        origin: ``file:line``, for messages and reports.
        gpus: occupied GPUs; None: not stated.
        prompt_tokens, output_tokens: of a request; outputs are caps.
        output_tokens_mean: mean output after early stops; None: not stated.
        layout, transport: what was benchmarked; None: not stated.
    """

    concurrency: int
    width: int
    requests: int
    measured: dict[str, float]
    origin: str
    gpus: int | None = None
    prompt_tokens: int = PROMPT_TOKENS
    output_tokens: int = OUTPUT_TOKENS
    output_tokens_mean: float | None = None
    layout: str | None = None
    transport: str | None = None


def read(path: Path, *, width: int | None = None, tp: int = 1) -> list[Cell]:
    """The cells of one capture.

    Args:
        path: ``.csv`` with a header of column names; ``.json``: what ``vllm bench serve
            --save-result`` or AIPerf wrote, see ``bench_json``.
        width: of every cell that does not state its own.
        tp: GPUs a unit of width: a cell without width that states its GPUs has gpus / tp.

    Raises:
        ConfigError: unreadable, or a cell breaks a rule; the message names file and line.
    """
    if path.suffix == ".json":
        from autoscaler.calibrate import bench_json

        return bench_json.read(path, width)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or ()
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: must be a readable CSV file; {error}") from error
    _check_header(path, header)
    cells = [_cell(row, f"{path}:{line}", width, tp) for line, row in rows]
    if not cells:
        raise ConfigError(f"{path}: must hold at least one cell; got none")
    return cells


def _check_header(path: Path, header: Sequence[str]) -> None:
    for name in header:
        if name not in _COLUMNS:
            allowed = ", ".join(_COLUMNS)
            raise ConfigError(f"{path}:1: {name}: unknown column; must be one of {allowed}")
    for name in ("concurrency", "requests"):
        if name not in header:
            raise ConfigError(f"{path}:1: {name}: this column must be there; got none")
    if not any(name in header for name in METRICS):
        raise ConfigError(f"{path}:1: must have at least one of {', '.join(METRICS)}; got none")


def _cell(row: dict[str, str], origin: str, width: int | None, tp: int) -> Cell:
    if None in row or any(value is None for value in row.values()):
        raise ConfigError(f"{origin}: must have as many fields as the header")
    numbers = {
        name: _number(f"{origin}: {name}", text, whole=name in _WHOLE)
        for name, text in row.items()
        if name not in _TEXT and text.strip()
    }
    texts = {name: row[name].strip() for name in _TEXT if row.get(name, "").strip()}
    for name in ("concurrency", "requests"):
        if name not in numbers:
            raise ConfigError(f"{origin}: {name}: must be given; got nothing")
    measured = {name: numbers[name] for name in METRICS if name in numbers}
    if not measured:
        raise ConfigError(f"{origin}: must have measured something; got no metric")
    gpus = int(numbers["gpus"]) if "gpus" in numbers else None
    own = int(numbers.get("width", 0)) or width
    if own is None and gpus is not None:
        own = gpus if texts.get("layout") == "wide_tp" else gpus // tp
    if not own:
        raise ConfigError(f"{origin}: width: must be given, or gpus as a multiple of tp {tp}")
    return Cell(
        concurrency=int(numbers["concurrency"]),
        width=own,
        requests=int(numbers["requests"]),
        measured=measured,
        origin=origin,
        gpus=gpus,
        prompt_tokens=int(numbers.get("prompt_tokens", PROMPT_TOKENS)),
        output_tokens=int(numbers.get("output_tokens", OUTPUT_TOKENS)),
        output_tokens_mean=numbers.get("output_tokens_mean"),
        layout=texts.get("layout"),
        transport=texts.get("transport"),
    )


def _number(key: str, text: str, *, whole: bool) -> float:
    rule = "a whole number >= 1" if whole else "a finite number > 0"
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError as error:
        raise ConfigError(f"{key}: must be {rule}; got {text!r}") from error
    if not math.isfinite(value) or value < (1 if whole else 1e-300):
        raise ConfigError(f"{key}: must be {rule}; got {text!r}")
    return value
