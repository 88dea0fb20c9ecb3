"""The step costs at one width as profiles store them, and the decode table they expand to."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.errors import ConfigError
from autoscaler.parameters import require_number, require_whole


@dataclass(frozen=True, slots=True)
class Steps:
    """The step costs at one width; the formulas are those of ``engine.Physics``.

    Args:
        decode_ms: (batch, milliseconds) knots, ascending in batch, at least one; see
            ``decode_table``.
        prefill_flat_s, prefill_token_s, prefill_rank_token_s, prefill_token2_s: seconds, >= 0.
        prefill_floor_s, prefill_spread_s: seconds, >= 0.
        prefill_spread_power: > 0.
        mixed_share: 0..1.
        kv_token_s, mixed_kv_token_s: seconds, >= 0.
    """

    decode_ms: tuple[tuple[int, float], ...]
    prefill_flat_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_rank_token_s: float = 0.0
    prefill_token2_s: float = 0.0
    prefill_floor_s: float = 0.0
    prefill_spread_s: float = 0.0
    prefill_spread_power: float = 1.0
    mixed_share: float = 0.0
    kv_token_s: float = 0.0
    mixed_kv_token_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.decode_ms:
            raise ConfigError("decode_ms: must hold at least one batch size; got none")
        before = 0
        for batch, step_ms in self.decode_ms:
            require_whole("decode_ms: batch", batch, before + 1)
            require_number(f"decode_ms: {batch}", step_ms, 0, above=True)
            before = batch
        for name in COSTS:
            high = 1.0 if name == "mixed_share" else math.inf
            above = name == "prefill_spread_power"
            require_number(name, getattr(self, name), 0, high, above=above)

    @classmethod
    def from_dict(cls, data: object, where: str) -> "Steps":
        """Step costs from the mapping under one width of a profile.

        Raises:
            ConfigError: unknown or missing key, wrong type, or a rule is broken.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where}: must be a mapping of step costs; got {data!r}")
        knots = data.get("decode_ms")
        if not isinstance(knots, Mapping):
            raise ConfigError(
                f"{where}: decode_ms: must be a mapping of batch size to ms; got {knots!r}"
            )
        for key in data:
            if key != "decode_ms" and key not in COSTS:
                allowed = ", ".join(("decode_ms", *COSTS))
                raise ConfigError(f"{where}: {key}: unknown key; must be one of {allowed}")
        for key, value in data.items():
            if value is None:
                raise ConfigError(f"{where}: {key}: must be a number; got nothing")
        for batch, step_ms in knots.items():
            if type(batch) is not int or step_ms is None:
                raise ConfigError(
                    f"{where}: decode_ms: must map whole batch sizes to ms; "
                    f"got {batch!r}: {step_ms!r}"
                )
        try:
            return cls(**{**data, "decode_ms": tuple(sorted(knots.items()))})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    def sped_up(self, ratio: float) -> "Steps":
        """The same with every time divided by ``ratio``, > 0."""
        times = {n: getattr(self, n) / ratio for n in COSTS if n.endswith("_s")}
        knots = tuple((batch, step_ms / ratio) for batch, step_ms in self.decode_ms)
        return replace(self, decode_ms=knots, **times)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``from_dict`` reads; costs at their default are left out."""
        costs = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        del costs["decode_ms"]
        return {"decode_ms": dict(self.decode_ms)} | {
            name: value for name, (value, default) in costs.items() if value != default
        }


COSTS = tuple(f.name for f in fields(Steps) if f.name != "decode_ms")
"""Fields of ``Steps`` apart from the decode table; each is a field of ``Physics`` too."""


def graph_sizes(slots: int) -> tuple[int, ...]:
    """CUDA graph capture sizes up to the first that holds ``slots`` requests.

    1, 2, 4, then every multiple of 8: vLLM's default ``cudagraph_capture_sizes``.
    """
    sizes = [1, 2, 4]
    while sizes[-1] < slots:
        sizes.append(8 * (sizes[-1] // 8 + 1))
    return tuple(sizes)


def decode_table(
    decode_ms: tuple[tuple[int, float], ...], slots: int, *, padded: bool = True
) -> npt.NDArray[np.float64]:
    """Seconds of a decode step by the size of the largest batch.

    Args:
        decode_ms: (batch, milliseconds) knots. Between two knots lies a straight line, before
            the first its value, and after the last the line through the last two goes on, where
            that rises.
        slots: batch sizes to tabulate.
        padded: a batch costs what the next CUDA graph size costs, so the table is a staircase.

    Returns:
        float64[slots + 1]; entry 0 equals entry 1 and is not used.
    """
    batches = np.array([b for b, _ in decode_ms], np.float64)
    steps_s = np.array([ms for _, ms in decode_ms]) / 1e3
    size = np.maximum(np.arange(slots + 1), 1)
    if padded:
        graphs = np.array(graph_sizes(slots))
        size = graphs[np.searchsorted(graphs, size)]
    table = np.interp(size, batches, steps_s)
    if len(batches) > 1:
        slope_s = max((steps_s[-1] - steps_s[-2]) / (batches[-1] - batches[-2]), 0.0)
        table += slope_s * np.maximum(size - batches[-1], 0.0)
    return np.asarray(table, np.float64)
