"""A measured run with a time stamp for everything: read, replayed open loop, fitted, judged.

The physics are fitted on the outcomes of the first requests of a run and judged on the rest. All
requests are replayed, since the later ones are load to the earlier ones; what became of the later
ones the fit never sees.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler.calibrate.search import Vector, robust, rounded, search
from autoscaler.engine.fleet import Engine, Load
from autoscaler.errors import ConfigError
from autoscaler.profile import Profile
from autoscaler.steps import Steps, graph_sizes

PERCENTILES = (50, 90, 95, 99)
_COLUMNS = (
    *("prompt_tokens", "output_tokens", "arrival_s", "queued_s", "scheduled_s"),
    *("first_token_s", "last_token_s"),
)
_TTFT_LOG_ERROR, _TPOT_ERROR, _FINISH_ERROR_S = 0.2, 0.01, 0.3
"""What counts as a small error of a single request: 20 % of its TTFT (a step earlier or later),
1 % of its TPOT, 0.3 s at its end."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Requests of a run, in order of arrival, in seconds from the first arrival.

    Args:
        load: what arrived when.
        queued_s: float64[n], when the engine took the request in: at the end of a step.
        first_token_s, last_token_s: float64[n].
    """

    load: Load
    queued_s: Vector
    first_token_s: Vector
    last_token_s: Vector

    @property
    def ttft_s(self) -> Vector:
        """float64[n], from arrival to first token."""
        return self.first_token_s - self.load.arrival_s

    @property
    def tpot_s(self) -> Vector:
        """float64[n], mean time between the tokens of a request."""
        gaps = np.maximum(self.load.output_tokens - 1, 1)
        return (self.last_token_s - self.first_token_s) / gaps


def read_run(path: Path) -> MeasuredRun:
    """A run from CSV; arrivals and the engine's time stamps are from two clocks.

    The clocks are aligned by the request that got from arrival to the engine's queue fastest, as
    if that took no time; so TTFT from arrival is too short by what that takes, some milliseconds.

    Raises:
        ConfigError: unreadable, other columns, or a value that is no number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != _COLUMNS:
                wanted = ",".join(_COLUMNS)
                raise ConfigError(f"{path}: columns: must be {wanted}; got {reader.fieldnames}")
            rows = [[float(row[name]) for name in _COLUMNS] for row in reader]
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: must be a readable table of numbers; {error}") from error
    prompt, output, arrival_s, queued_s, _, first_s, last_s = np.array(rows).T
    offset_s = float(np.min(queued_s - arrival_s))
    load = Load(arrival_s, prompt.astype(np.int32), output.astype(np.int32))
    return MeasuredRun(load, queued_s - offset_s, first_s - offset_s, last_s - offset_s)


def replay(profile: Profile, width: int, run: MeasuredRun) -> MeasuredRun:
    """The same load served by a profile; ``queued_s`` is the arrival there."""
    engine = Engine(run.load, profile.physics(width))
    engine.run()
    return MeasuredRun(run.load, run.load.arrival_s, engine.first_s, engine.finish_s)


def judge(measured: MeasuredRun, predicted: MeasuredRun, part: slice) -> dict[str, Any]:
    """Percentiles of one part of a run, measured and predicted.

    Returns:
        By quantity (ttft_s, tpot_s) and percentile or mean: measured, predicted, error_ratio.
    """
    report: dict[str, Any] = {}
    for name in ("ttft_s", "tpot_s"):
        values = [getattr(source, name)[part] for source in (measured, predicted)]
        pairs = {f"p{p}": [float(np.percentile(v, p)) for v in values] for p in PERCENTILES}
        pairs["mean"] = [float(np.mean(v)) for v in values]
        report[name] = {
            key: {
                "measured": round(real, 5),
                "predicted": round(model, 5),
                "error_ratio": round(model / real - 1, 4),
            }
            for key, (real, model) in pairs.items()
        }
    return report


@dataclass(frozen=True, slots=True)
class MoePhysics:
    """Parameters of a mixture-of-experts deployment with data-parallel attention.

    A decode step reads the weights of the experts that its tokens pick, and those are more the
    more tokens there are, up to all: decode = fixed + experts x (1 - exp(-batch / half)) +
    request x batch, in ms (each token picks k of E experts independently: the share of experts
    that none picks is (1 - k / E) ^ tokens, an exponential).

    Args:
        fixed_ms, experts_ms, experts_batch, request_ms: the decode step as above.
        kv_token_s, mixed_kv_token_s, prefill_flat_s, prefill_token_s, prefill_rank_token_s,
            prefill_token2_s, mixed_share: as in ``engine.Physics``.
        overhead_s: from arrival to the engine.
    """

    fixed_ms: float
    experts_ms: float
    experts_batch: float
    request_ms: float
    kv_token_s: float
    mixed_kv_token_s: float
    prefill_flat_s: float
    prefill_token_s: float
    prefill_rank_token_s: float
    prefill_token2_s: float
    mixed_share: float
    overhead_s: float

    def steps(self, slots: int) -> Steps:
        """The step costs for batches up to ``slots``, tabulated at the CUDA graph sizes."""
        sizes = graph_sizes(slots)
        batch = np.array(sizes, np.float64)
        decode_ms = (
            self.fixed_ms
            + self.experts_ms * (1.0 - np.exp(-batch / self.experts_batch))
            + self.request_ms * batch
        )
        return Steps(
            decode_ms=tuple(zip(sizes, rounded(decode_ms), strict=True)),
            prefill_flat_s=self.prefill_flat_s,
            prefill_token_s=self.prefill_token_s,
            prefill_rank_token_s=self.prefill_rank_token_s,
            prefill_token2_s=self.prefill_token2_s,
            mixed_share=self.mixed_share,
            kv_token_s=self.kv_token_s,
            mixed_kv_token_s=self.mixed_kv_token_s,
        )


MOE_BOUNDS = (
    *((5.0, 40.0), (0.0, 30.0), (4.0, 60.0), (0.0, 0.3), (0.0, 2e-7), (0.0, 5e-7)),
    *((0.0, 0.06), (0.0, 6e-5), (0.0, 6e-5), (0.0, 1e-8), (0.0, 1.0), (0.0, 0.006)),
)
"""Search ranges in the order of ``MoePhysics``."""


def run_errors(measured: MeasuredRun, predicted: MeasuredRun, part: slice) -> Vector:
    """float64[3 x requests]: errors of single requests in units of a small one."""
    ttft = np.log(predicted.ttft_s / measured.ttft_s) / _TTFT_LOG_ERROR
    tpot = (predicted.tpot_s / measured.tpot_s - 1.0) / _TPOT_ERROR
    finish = (predicted.last_token_s - measured.last_token_s) / _FINISH_ERROR_S
    return np.concatenate([ttft[part], tpot[part], finish[part]])


def fit_moe(run: MeasuredRun, fitted: slice, shape: Profile, width: int) -> MoePhysics:
    """Physics that explain the outcomes of the ``fitted`` requests best.

    Args:
        run: the whole run; outcomes outside ``fitted`` are not looked at.
        fitted: the requests whose outcomes count.
        shape: everything but the costs: slots, token budget, scheduling.
        width: of the run.
    """

    def cost(x: Vector) -> float:
        profile = with_moe(shape, width, MoePhysics(*x.tolist()))
        return robust(run_errors(run, replay(profile, width, run), fitted))

    best = search(cost, MOE_BOUNDS, generations=200, population=10, refinements=3000, starts=3)
    return MoePhysics(*rounded(best))


def with_moe(shape: Profile, width: int, physics: MoePhysics) -> Profile:
    """``shape`` with these costs at its one width."""
    content = shape.to_dict()
    content["overhead_s"] = physics.overhead_s
    content["widths"] = {width: physics.steps(shape.slots_per_rank).to_dict()}
    return Profile.from_dict(content, shape.name)
