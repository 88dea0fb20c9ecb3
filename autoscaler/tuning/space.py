"""Where a search looks: the parameters that have a range, as points of a unit cube."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.parameters import ranges

_DIGITS = 3
"""Significant digits that a value keeps: what a person would write, and finer than any effect."""


class Space:
    """The searched parameters of one policy.

    Args:
        kind: the policy's, for messages.
        base: the parameters that the search begins with; what has no range stays as it is there.

    Raises:
        ConfigError: none of them has a range.
    """

    def __init__(self, kind: str, base: Any) -> None:
        self.base = base
        self._axes = ranges(type(base))
        if not self._axes:
            raise ConfigError(
                f"policy {kind}: must have parameters with a range to search; has none"
            )

    @property
    def names(self) -> list[str]:
        """The searched parameters, in their order."""
        return list(self._axes)

    def values(self, params: Any) -> dict[str, float]:
        """The searched part of ``params``, by name."""
        return {name: getattr(params, name) for name in self._axes}

    def params(self, point: Sequence[float]) -> Any:
        """The parameters at a point, each coordinate within 0 to 1.

        Raises:
            ConfigError: they contradict one another.
        """
        values: dict[str, float] = {}
        for (name, (axis, kind)), at in zip(self._axes.items(), point, strict=True):
            share = min(max(float(at), 0.0), 1.0)
            if kind is int:
                # Each whole number gets an equal part of the axis.
                count = int(axis.high) - int(axis.low) + 1
                values[name] = int(axis.low) + min(int(share * count), count - 1)
                continue
            low, high = (math.log(v) if axis.log else v for v in (axis.low, axis.high))
            value = low + share * (high - low)
            value = float(f"{math.exp(value) if axis.log else value:.{_DIGITS}g}")
            values[name] = min(max(value, axis.low), axis.high)
        return replace(self.base, **values)

    def point(self, params: Any) -> list[float]:
        """Where ``params`` lie; a value outside its range counts as the end nearest to it."""
        found = []
        for name, (axis, kind) in self._axes.items():
            value = min(max(getattr(params, name), axis.low), axis.high)
            if kind is int:
                count = int(axis.high) - int(axis.low) + 1
                found.append((value - axis.low + 0.5) / count)
                continue
            low, high, at = (math.log(v) if axis.log else v for v in (axis.low, axis.high, value))
            found.append((at - low) / (high - low))
        return found
