"""What one run was worth: latencies, SLO attainment, GPU-hours."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Engine
from autoscaler.engine.layout import ABORTED, COMPLETED, ITL_FINE_FLOOR_S, ITL_FINE_LOG_STEP
from autoscaler.model import Slo
from autoscaler.sim.fleet import Fleet

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Windows:
    """How the SLO fared in rolling windows, one sample a second.

    Args:
        ok_ratio: share of samples within the SLO, 0..1.
        over_slo_s: seconds outside it.
        worst_p95_s: largest rolling p95 TTFT; None: nothing was observed in any window.
    """

    ok_ratio: float
    over_slo_s: int
    worst_p95_s: float | None


def windows(event_s: Floats, value_s: Floats, arrival_s: Floats, slo: Slo) -> Windows:
    """Rolling p95 over the last ``window_s`` seconds, sampled each second until all is answered.

    The p95 is the nearest-rank one: ceil(0.95 n) of n observations lie at or under it. A window
    without an observation is fine while nobody waits, and a miss while somebody does.

    Args:
        event_s: float64[n], when each observation enters: first token, or failure.
        value_s: float64[n], what it enters as: TTFT, or the penalty.
        arrival_s: float64[m], all arrivals, ascending.
        slo: objective and window, which is rounded to whole seconds.
    """
    missed, second, misses = _missed(event_s, value_s, arrival_s, slo)
    over_slo_s = int(np.count_nonzero(missed))
    return Windows(
        1.0 - over_slo_s / len(missed),
        over_slo_s,
        _worst(second, value_s, misses) if len(value_s) else None,
    )


def missed_seconds(engine: Engine, slo: Slo) -> npt.NDArray[np.bool_]:
    """bool[seconds]: whether the window that ends with second 1, 2, … is outside the SLO."""
    event_s, value_s = _events(engine, slo)
    missed: npt.NDArray[np.bool_] = _missed(event_s, value_s, engine.arrival_s, slo)[0]
    return missed


def _missed(event_s: Floats, value_s: Floats, arrival_s: Floats, slo: Slo) -> tuple[Any, Any, Any]:
    """Missed windows by second, the second of each event, and the test for any limit."""
    # To the last answer, not only to the last arrival: a queue left over is no end of the breach.
    end_s = max(float(arrival_s[-1]), float(event_s.max()) if len(event_s) else 0.0)
    seconds = max(math.ceil(end_s), 1)
    length = max(round(slo.window_s), 1)
    # Second k covers (k - 1, k]; what falls at or before 0 belongs to the first one.
    second = np.maximum(np.ceil(event_s), 1.0).astype(np.int32)
    counted = np.bincount(second, minlength=seconds + 1)
    total = _rolling(counted, length)
    allowed = total - np.ceil(0.95 * total - 1e-9).astype(np.int64)

    def misses(limit_s: float, second: Any, value: Any) -> Any:
        over = np.bincount(second[value > limit_s], minlength=seconds + 1)
        return _rolling(over, length) > allowed

    missed = misses(slo.ttft_p95_s, second, value_s)
    arrived = np.searchsorted(arrival_s, np.arange(1, seconds + 1), side="right")
    answered = np.cumsum(counted)[1:]
    missed |= (total == 0) & (arrived > answered)
    return missed, second, misses


def _events(engine: Engine, slo: Slo) -> tuple[Floats, Floats]:
    """When each observation enters, and as what.

    A request cut off after its first token has shown a TTFT and enters once more as a failure.
    """
    failed = engine.outcome > COMPLETED
    if not failed.any() and engine.state["completed"] == len(failed):
        return engine.first_s, engine.first_s - engine.arrival_s  # no copies of whole columns
    served = np.isfinite(engine.first_s)
    ttft_s = (engine.first_s - engine.arrival_s)[served]
    event_s = np.concatenate([engine.first_s[served], engine.finish_s[failed]])
    return event_s, np.concatenate([ttft_s, np.full(int(failed.sum()), slo.failure_penalty_s)])


def _rolling(per_second: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Sum of the last ``length`` seconds at each second from 1 on."""
    summed = np.cumsum(per_second)
    result = summed[1:].copy()
    if length < len(result):
        result[length:] -= summed[1 : len(summed) - length]
    return result


def _worst(second: npt.NDArray[np.int32], value: Floats, misses: Any) -> float:
    """The largest p95 of any window: the least value above which no window has too many.

    Bisects over the observed values, largest first, so that each probe looks only at the few
    that are larger than what is already known to be exceeded.
    """
    # Some window is at least as bad as nine tenths of all are, or nearly always.
    low_s = float(np.quantile(value, 0.9))
    if not misses(low_s, second, value).any():
        low_s = -1.0
    above = value > low_s
    second, value = second[above], value[above]
    candidates = np.unique(value)
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if misses(float(candidates[middle]), second, value).any():
            low = middle + 1
        else:
            high = middle
    return float(candidates[low])


def score(fleet: Fleet, slo: Slo, gpus_until_s: float | None = None) -> dict[str, Any]:
    """The entry of one run in the results, as ``autoscaler.simulation/v1`` has it.

    Args:
        fleet: a fleet that has served its load.
        slo: the objective.
        gpus_until_s: end of the bill; None: the last completion.
    """
    engine = fleet.engine
    arrival_s = engine.arrival_s
    completed = engine.outcome == COMPLETED
    failed = int(np.count_nonzero(engine.outcome > COMPLETED))
    event_s, value_s = _events(engine, slo)
    rolling = windows(event_s, value_s, arrival_s, slo)
    ttft_s, finish_s, cut_off = value_s[: len(value_s) - failed], engine.finish_s, 0
    e2e_s = finish_s - arrival_s
    if not completed.all():
        finish_s, e2e_s = finish_s[completed], e2e_s[completed]
        cut = (engine.outcome == ABORTED) & np.isfinite(engine.first_s)
        cut_off = int(np.count_nonzero(cut))
    end_s = float(finish_s.max()) if len(finish_s) else float(arrival_s[-1])
    within = int(np.count_nonzero(ttft_s <= slo.ttft_p95_s)) - cut_off
    tally = fleet.tally
    until_s = end_s if gpus_until_s is None else gpus_until_s
    return {
        "requests": {
            "offered": len(arrival_s),
            "completed": len(finish_s),
            "failed": failed,
        },
        "ttft_s": _summary(ttft_s, (50, 95, 99), mean=True),
        "itl_s": itl_quantiles(engine, (50, 95, 99)),
        "e2e_s": _summary(e2e_s, (50, 95, 99)),
        "output_tokens_per_s": float(engine.state["output_tokens"]) / max(end_s, 1e-9),
        "slo": {
            "windows_ok_ratio": rolling.ok_ratio,
            "windows_over_s": rolling.over_slo_s,
            "requests_ok_ratio": max(within, 0) / len(arrival_s),
            "worst_window_p95_s": rolling.worst_p95_s,
        },
        "gpu_hours": fleet.bill.gpu_seconds(until_s) / 3600,
        "oracle_gpu_hours_ratio": None,
        "resizes": {
            "up": tally.up,
            "down": tally.down,
            "refused": tally.refused,
            "failed": tally.failed,
            "reversals": tally.reversals,
        },
        "paused_s": tally.paused_s,
        "width": _widths(fleet.widths, end_s),
    }


def _summary(values: Floats, percents: tuple[int, ...], *, mean: bool = False) -> dict[str, Any]:
    """Percentiles by name; null where there is nothing to take them of."""
    names = [f"p{p}" for p in percents]
    if not len(values):
        return dict.fromkeys([*names, "mean"] if mean else names)
    found = dict(zip(names, np.percentile(values, percents).tolist(), strict=True))
    return {**found, "mean": float(values.mean())} if mean else found


def itl_quantiles(engine: Engine, percents: tuple[int, ...]) -> dict[str, float | None]:
    """Quantiles of the inter-token latency, from bins of 0.2 %."""
    counts = np.cumsum(engine.itl_fine)
    if not counts[-1]:
        return dict.fromkeys([f"p{p}" for p in percents])
    bins = np.searchsorted(counts, np.array(percents) / 100 * counts[-1])
    values = ITL_FINE_FLOOR_S * np.exp((bins + 0.5) * ITL_FINE_LOG_STEP)
    return {f"p{p}": float(v) for p, v in zip(percents, values, strict=True)}


def _widths(steps: list[tuple[float, int]], end_s: float) -> dict[str, Any]:
    ends = [*(at_s for at_s, _ in steps[1:]), end_s]
    held = [max(min(end, end_s) - at_s, 0.0) for (at_s, _), end in zip(steps, ends, strict=True)]
    values = [width for _, width in steps]
    total = sum(held)
    mean = sum(w * h for w, h in zip(values, held, strict=True)) / total if total else values[0]
    return {
        "initial": values[0],
        "min": min(values),
        "max": max(values),
        "mean": mean,
        "final": values[-1],
    }
