"""A trace in memory: three arrays, one element a request."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.errors import ConfigError, TraceError

# A request of more tokens is a mistake in the file: the longest contexts served are a tenth of it.
MAX_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The requests of one replay, in order of arrival.

    Attributes:
        arrival_s: float64[n], seconds since the first arrival: ascending, ``arrival_s[0] == 0``.
            Equal times are kept, in file order.
        prompt_tokens: int32[n], 0 to ``MAX_TOKENS``.
        output_tokens: int32[n], 0 to ``MAX_TOKENS``. 0 is a request that only prefills; the engine
            counts it as one output token, because the prefill itself yields one.
        format: the format read, or several joined by a comma.
        paths: the files read; empty for a synthetic trace.
        skipped_rows: rows that are not in the arrays: bad ones under ``skip_bad_rows``, and
            requests that the trace itself marks as failed.
        notices: what a person should know, one sentence each.
    """

    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    format: str = "jsonl"
    paths: tuple[str, ...] = ()
    skipped_rows: int = 0
    notices: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests there are; at least 1 in a trace that ``load`` returned."""
        return len(self.arrival_s)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last; 0 for a single request."""
        return float(self.arrival_s[-1]) if len(self.arrival_s) else 0.0

    def sliced(self, start_s: float | None = None, duration_s: float | None = None) -> "Trace":
        """The requests of ``[start_s, start_s + duration_s)``, shifted so that the first is at 0.

        Args:
            start_s: seconds since the first arrival, >= 0; None is 0.
            duration_s: seconds, > 0; None is to the end.

        Raises:
            ConfigError: an argument out of its range.
            TraceError: no request arrives in the slice.
        """
        if start_s is None and duration_s is None:
            return self
        low, high = slice_bounds(self.arrival_s, start_s, duration_s)
        if low == high:
            file = self.paths[0] if self.paths else "trace"
            raise TraceError(
                f"{file}:0: no request from start_s {start_s or 0:g} for duration_s "
                f"{'the rest' if duration_s is None else f'{duration_s:g}'}; "
                f"the trace lasts {self.duration_s:g} s"
            )
        return replace(
            self,
            arrival_s=self.arrival_s[low:high] - self.arrival_s[low],
            prompt_tokens=self.prompt_tokens[low:high],
            output_tokens=self.output_tokens[low:high],
        )

    def sped_up(self, speed: float) -> "Trace":
        """The same requests with every arrival time divided by ``speed``, so rates multiply by it.

        Args:
            speed: > 0; 2 replays in half the time, 0.5 in twice the time.

        Raises:
            ConfigError: not a positive finite number.
        """
        if not (np.isfinite(speed) and speed > 0):
            raise ConfigError(f"speed: must be a number above 0; got {speed}")
        return self if speed == 1 else replace(self, arrival_s=self.arrival_s / speed)


def slice_bounds(
    arrival_s: npt.NDArray[np.float64], start_s: float | None, duration_s: float | None
) -> tuple[int, int]:
    """Indices ``(low, high)`` of the ascending arrivals in ``[start_s, start_s + duration_s)``.

    Raises:
        ConfigError: a negative start, a duration that is not above 0, or one that is not finite.
    """
    start = 0.0 if start_s is None else start_s
    if not (np.isfinite(start) and start >= 0):
        raise ConfigError(f"start_s: must be a number from 0; got {start_s}")
    if duration_s is not None and not (np.isfinite(duration_s) and duration_s > 0):
        raise ConfigError(f"duration_s: must be a number above 0; got {duration_s}")
    low = int(np.searchsorted(arrival_s, start, side="left"))
    if duration_s is None:
        return low, len(arrival_s)
    return low, int(np.searchsorted(arrival_s, start + duration_s, side="left"))


def in_order(
    arrival_s: npt.NDArray[np.float64],
    prompt_tokens: npt.NDArray[Any],
    output_tokens: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any], npt.NDArray[Any], bool]:
    """The three arrays sorted by arrival (stable), and whether they already were."""
    if bool(np.all(arrival_s[1:] >= arrival_s[:-1])):
        return arrival_s, prompt_tokens, output_tokens, True
    order = np.argsort(arrival_s, kind="stable")
    return arrival_s[order], prompt_tokens[order], output_tokens[order], False
