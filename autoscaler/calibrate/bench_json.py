"""Cells from what benchmark tools write: one JSON file a cell.

``vllm bench serve --save-result``: field names checked against vLLM's ``benchmarks/serve.py``.
The width is no field of it: give it with ``--metadata width=4`` when benchmarking (it then stands
at the top of the file, as text), or to the reader. p95 is there only if it was asked for with
``--metric-percentiles 50,95,99``.

AIPerf ``profile_export_aiperf.json``, schema 1.x: one block ``{unit, avg, p50, ...}`` a metric.
Its ``inter_token_latency`` is a mean a request, so it is read as TPOT; gaps between chunks are
``inter_chunk_latency``. Where its ``input_config`` holds the concurrency differs between
versions: taken from ``run_info.variation_values`` or any key ``concurrency`` inside
``input_config``; that this finds it in every version is not verified.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscaler.calibrate.captures import Cell
from autoscaler.errors import ConfigError

_VLLM = {
    "median_ttft_ms": "ttft_p50_ms",
    "p95_ttft_ms": "ttft_p95_ms",
    "median_tpot_ms": "tpot_p50_ms",
    "median_itl_ms": "itl_p50_ms",
    "p99_itl_ms": "itl_p99_ms",
    "output_throughput": "output_tok_per_s",
}
_AIPERF = (
    ("time_to_first_token", "p50", "ttft_p50_ms"),
    ("time_to_first_token", "p95", "ttft_p95_ms"),
    ("inter_token_latency", "p50", "tpot_p50_ms"),
    ("inter_chunk_latency", "p50", "itl_p50_ms"),
    ("inter_chunk_latency", "p99", "itl_p99_ms"),
    ("output_token_throughput", "avg", "output_tok_per_s"),
)


def read(path: Path, width: int | None) -> list[Cell]:
    """The cell of one JSON file.

    Args:
        path: the file.
        width: used where the file does not state one.

    Raises:
        ConfigError: unreadable, of neither tool, or a field is missing or breaks a rule.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: must be a readable JSON file; {error}") from error
    if isinstance(content, dict) and "output_throughput" in content:
        return [_vllm(content, str(path), width)]
    if isinstance(content, dict) and "output_token_throughput" in content:
        return [_aiperf(content, str(path), width)]
    raise ConfigError(
        f"{path}: must be a result of vllm bench serve (output_throughput) or of AIPerf "
        "(output_token_throughput); got neither"
    )


def _vllm(content: Mapping[str, Any], origin: str, width: int | None) -> Cell:
    concurrency = content.get("max_concurrency")
    if concurrency is None:
        raise ConfigError(
            f"{origin}: max_concurrency: must be given (a closed loop); got an open one"
        )
    completed = _whole(origin, "completed", content.get("completed"))
    return Cell(
        concurrency=_whole(origin, "max_concurrency", concurrency),
        width=_width(origin, content.get("width"), width),
        requests=completed,
        measured={
            ours: _positive(origin, theirs, content[theirs])
            for theirs, ours in _VLLM.items()
            if content.get(theirs) is not None
        },
        origin=origin,
        gpus=_whole(origin, "gpus", content["gpus"]) if "gpus" in content else None,
        prompt_tokens=_mean(origin, content, "total_input_tokens", completed),
        # The cap is no field of the file; without the lengths the mean stands for it.
        output_tokens=max(
            [*content.get("output_lens", ())]
            or [_mean(origin, content, "total_output_tokens", completed)]
        ),
        output_tokens_mean=_positive(
            origin, "total_output_tokens", content.get("total_output_tokens")
        )
        / completed,
    )


def _mean(origin: str, content: Mapping[str, Any], key: str, completed: int) -> int:
    return max(round(_positive(origin, key, content.get(key)) / completed), 1)


def _aiperf(content: Mapping[str, Any], origin: str, width: int | None) -> Cell:
    def stat(metric: str, name: str) -> float | None:
        block = content.get(metric)
        value = block.get(name) if isinstance(block, Mapping) else None
        return None if value is None else _positive(origin, f"{metric}: {name}", value)

    for metric in ("time_to_first_token", "inter_token_latency", "inter_chunk_latency"):
        block = content.get(metric)
        if isinstance(block, Mapping) and block.get("unit", "ms") != "ms":
            raise ConfigError(f"{origin}: {metric}: unit: must be ms; got {block['unit']!r}")
    info = content.get("run_info") or {}
    swept = info.get("variation_values") or {}
    found = [v for k, v in swept.items() if str(k).split(".")[-1] == "concurrency"]
    found = found or _find(content.get("input_config"), "concurrency")
    if not found:
        raise ConfigError(f"{origin}: concurrency: must stand in input_config; got none")
    mean = stat("output_sequence_length", "avg")
    return Cell(
        concurrency=_whole(origin, "concurrency", found[0]),
        width=_width(origin, None, width),
        requests=_whole(origin, "request_count: avg", stat("request_count", "avg")),
        measured={
            ours: value
            for metric, name, ours in _AIPERF
            if (value := stat(metric, name)) is not None
        },
        origin=origin,
        prompt_tokens=round(stat("input_sequence_length", "avg") or 1024),
        output_tokens=round(stat("output_sequence_length", "max") or mean or 256),
        output_tokens_mean=mean,
    )


def _find(node: object, key: str) -> list[Any]:
    """Values of ``key`` anywhere inside a JSON tree, in file order, without null."""
    if isinstance(node, Mapping):
        own = [node[key]] if node.get(key) is not None else []
        return own + [v for child in node.values() for v in _find(child, key)]
    if isinstance(node, list):
        return [v for child in node for v in _find(child, key)]
    return []


def _width(origin: str, stated: object, given: int | None) -> int:
    if stated is None and given is None:
        raise ConfigError(f"{origin}: width: must be stated in the file or given; got nothing")
    return _whole(origin, "width", stated if stated is not None else given)


def _whole(origin: str, key: str, value: object) -> int:
    number = _positive(origin, key, value)
    if number != int(number):
        raise ConfigError(f"{origin}: {key}: must be a whole number >= 1; got {value!r}")
    return int(number)


def _positive(origin: str, key: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
        raise ConfigError(f"{origin}: {key}: must be a finite number > 0; got {value!r}")
    return number
