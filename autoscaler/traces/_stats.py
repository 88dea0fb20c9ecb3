"""What a trace looks like, in a few numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.traces._trace import Trace


@dataclass(frozen=True, slots=True)
class TokenStats:
    """The distribution of one kind of length, in tokens a request; ``total`` over all requests."""

    total: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Summary of a trace; ``dataclasses.asdict`` makes it JSON.

    Attributes:
        requests: how many.
        duration_s: first arrival to last.
        mean_rps: (requests - 1) over the duration; None without a duration.
        inter_arrival_cv: standard deviation over mean of the gaps between arrivals: 1 for a Poisson
            process; None without a duration.
        burstiness: (cv - 1) / (cv + 1), from -1 (even) through 0 (Poisson) to 1 (all at once), of
            Goh and Barabasi 2008; None without a duration.
        peak_1s_rps: most requests in any window of 1 s (not only whole seconds).
        peak_30s_rps: the same over 30 s, a second.
        peak_60s_rps: the same over 60 s, a second.
        prompt_tokens: lengths of the prompts.
        output_tokens: lengths of the outputs.
        zero_output_requests: requests with no output, which only prefill.
        format: as in ``Trace``.
        paths: as in ``Trace``.
        skipped_rows: as in ``Trace``.
        notices: as in ``Trace``.
    """

    requests: int
    duration_s: float
    mean_rps: float | None
    inter_arrival_cv: float | None
    burstiness: float | None
    peak_1s_rps: float
    peak_30s_rps: float
    peak_60s_rps: float
    prompt_tokens: TokenStats
    output_tokens: TokenStats
    zero_output_requests: int
    format: str
    paths: tuple[str, ...]
    skipped_rows: int
    notices: tuple[str, ...]


def stats(trace: Trace) -> TraceStats:
    """The summary of a trace of at least one request."""
    gaps = np.diff(trace.arrival_s)
    duration_s = trace.duration_s
    cv = float(gaps.std() / gaps.mean()) if duration_s > 0 else None
    return TraceStats(
        requests=trace.requests,
        duration_s=duration_s,
        mean_rps=len(gaps) / duration_s if duration_s > 0 else None,
        inter_arrival_cv=cv,
        burstiness=None if cv is None else (cv - 1) / (cv + 1),
        peak_1s_rps=_peak_rps(trace.arrival_s, 1.0),
        peak_30s_rps=_peak_rps(trace.arrival_s, 30.0),
        peak_60s_rps=_peak_rps(trace.arrival_s, 60.0),
        prompt_tokens=_tokens(trace.prompt_tokens),
        output_tokens=_tokens(trace.output_tokens),
        zero_output_requests=int(np.count_nonzero(trace.output_tokens == 0)),
        format=trace.format,
        paths=trace.paths,
        skipped_rows=trace.skipped_rows,
        notices=trace.notices,
    )


def _peak_rps(arrival_s: npt.NDArray[np.float64], window_s: float) -> float:
    """The most arrivals in any half-open window; one that begins at an arrival is the fullest."""
    ends = np.searchsorted(arrival_s, arrival_s + window_s, side="left")
    return float((ends - np.arange(len(arrival_s))).max() / window_s)


def _tokens(tokens: npt.NDArray[Any]) -> TokenStats:
    p50, p95, p99 = np.quantile(tokens, (0.5, 0.95, 0.99))
    return TokenStats(
        total=int(tokens.sum(dtype=np.int64)),
        mean=float(tokens.mean(dtype=np.float64)),
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        max=int(tokens.max()),
    )
