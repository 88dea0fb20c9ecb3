"""The oracle of a simulation: from a scenario to the schedule that it follows, and the bound."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler import limits
from autoscaler.engine.capacity import Criterion, capacity_rps, saturated_rps
from autoscaler.engine.fleet import Load
from autoscaler.engine.physics import Physics
from autoscaler.model import Slo
from autoscaler.policy_file import PolicyChoice
from autoscaler.profile import Profile
from autoscaler.scenario import Scenario
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.fluid import Bound, busy_seconds, least_seconds, lower_bound, request_seconds
from autoscaler.sim.oracle import Problem
from autoscaler.sim.plan import Params as Plan
from autoscaler.sim.resize import ResizeModel
from autoscaler.sim.search import KEPT_RATIO, Found, Search, play

NAME = "oracle"
KIND = "autoscaler.sim.plan"
"""The module of the policy that follows a schedule: found by its dotted name, also by replay."""

_STEPS = 450
"""Steps of the dynamic programme; more where a resize would be under four of them."""

_MOST_STEPS = 6000
_MEASURED_WIDTHS = 5
_MEASURED_S = 300.0
_SAMPLE = 4096

_REQUESTS = 4_000_000
"""Requests that the search may play, about as many as the engine serves in 8 s."""

_PLAYS = (12, 80)


@dataclass(frozen=True, slots=True)
class Foresight:
    """What is known beforehand.

    Args:
        found: the best schedule.
        bound: what no policy that keeps the SLO can do without.
        busy_bound: the same for an engine as fast as with a queue that never empties: closer,
            and no proof.
    """

    found: Found
    bound: Bound
    busy_bound: Bound

    @property
    def policy(self) -> PolicyChoice:
        """The policy that follows the schedule."""
        return PolicyChoice(NAME, KIND, self.found.best.plan)

    def describe(self, windows_ok_ratio: float) -> dict[str, Any]:
        """What the results say of it besides its score.

        Args:
            windows_ok_ratio: what its schedule attained, played through the control loop.
        """
        plan, best = self.found.best.plan, self.found.best
        bound_h = self.bound.gpu_seconds / 3600
        # Measured, so that it may lie a hair under what is proven.
        busy_h = max(self.busy_bound.gpu_seconds / 3600, bound_h)
        infeasible = windows_ok_ratio < KEPT_RATIO
        gap_ratio = best.gpu_seconds / 3600 / busy_h - 1 if busy_h > 0 else None
        return {
            "slo_infeasible": infeasible,
            "proven_infeasible": self.bound.infeasible,
            "lower_bound_gpu_hours": bound_h,
            "busy_bound_gpu_hours": busy_h,
            "gap_ratio": None if infeasible else gap_ratio,
            "plan": [[at_s, width] for at_s, width in zip(plan.at_s, plan.width, strict=True)],
            "plays": self.found.plays,
            "search_finished": self.found.finished,
        }


def compare(results: list[dict[str, Any]]) -> None:
    """Enter each policy's GPU-hours over those of the oracle on the same profile, where it has any.

    Stays null where no oracle was run, or where it found no schedule that keeps the SLO.
    """
    hours = {
        entry["profile"]: entry["gpu_hours"]
        for entry in results
        if "oracle" in entry and not entry["oracle"]["slo_infeasible"]
    }
    for entry in results:
        least = hours.get(entry["profile"], 0.0)
        if least > 0:
            entry["oracle_gpu_hours_ratio"] = entry["gpu_hours"] / least


def unguarded(guards: limits.Params) -> limits.Params:
    """Only the bounds: patience is for those who do not know what comes."""
    return replace(
        guards,
        cooldown_up_s=0.0,
        cooldown_down_s=0.0,
        scale_down_window_s=0.0,
        max_reversals_per_hour=None,
        settle_s=0.0,
        settle_holds_growth=False,
    )


def unplanned(initial_width: int) -> PolicyChoice:
    """The oracle before it has looked ahead."""
    return PolicyChoice(NAME, KIND, Plan((), (), initial_width))


def look_ahead(
    scenario: Scenario,
    load: Load,
    profile: Profile,
    resize: ResizeModel,
    widths: range,
    initial_width: int,
    new_fleet: Callable[[], Fleet],
) -> Foresight:
    """The cheapest schedule that was found, and the lower bound.

    Args:
        scenario: the objective and the tick.
        load: what arrives.
        profile: what the fleet follows.
        resize: the course of a resize.
        widths: those permitted.
        initial_width: one of them.
        new_fleet: a fleet that has served nothing yet.
    """
    physics = {w: profile.physics(w, extrapolate=scenario.extrapolate) for w in widths}
    gpus = {w: profile.gpus(w) for w in widths}
    bounds = _bounds(load, physics, gpus, scenario.slo, resize, initial_width)
    still = play(new_fleet(), Plan((), (), initial_width), scenario.tick_s, scenario.slo)
    if still.missed_s == 0 and initial_width == widths[0]:
        return Foresight(Found(still, 1, True), *bounds)  # nothing is cheaper than the least width
    tick_s = _step_s(float(load.arrival_s[-1]), scenario.tick_s, resize)
    problem = Problem(
        tick_s,
        _work(load, physics[widths[-1]], tick_s),
        _rates(load, physics, scenario.slo),
        gpus,
        resize,
        _drain_s(load, physics[widths[0]]),
        scenario.slo,
        initial_width,
    )
    plays = int(np.clip(_REQUESTS // len(load.arrival_s), *_PLAYS))
    return Foresight(Search(problem, scenario.tick_s, new_fleet, plays).run(still), *bounds)


def _step_s(duration_s: float, tick_s: float, resize: ResizeModel) -> float:
    """A multiple of the control period: a resize of four steps at least, if that is affordable."""
    lead_s = resize.prepare_s + resize.capacity_wait_s + resize.pause_up_s
    wanted_s = min(duration_s / _STEPS, lead_s / 4)
    wanted_s = max(wanted_s, duration_s / _MOST_STEPS)
    return tick_s * max(int(np.ceil(wanted_s / tick_s - 1e-9)), 1)


def _work(load: Load, physics: Physics, step_s: float) -> npt.NDArray[np.float64]:
    """Requests of mean cost by the step."""
    cost = request_seconds(physics, load, alone=True)
    cost = cost / cost.mean() if cost.sum() > 0 else np.ones(len(cost))
    steps = int(load.arrival_s[-1] / step_s) + 1
    step = (load.arrival_s / step_s).astype(np.int64)
    return np.bincount(step, cost, minlength=steps).astype(np.float64)


def _bounds(
    load: Load,
    physics: Mapping[int, Physics],
    gpus: Mapping[int, int],
    slo: Slo,
    resize: ResizeModel,
    initial_width: int,
) -> tuple[Bound, Bound]:
    """What nobody can beat, and what nobody beats without a trick."""
    slots = max(p.ranks * p.slots_per_rank for p in physics.values())
    prompts, outputs = _sample(load)
    measured = _some_of(physics)
    rps = [saturated_rps(physics[w], prompts, outputs) for w in measured]
    saturated = {w: float(np.interp(w, measured, rps)) for w in physics}
    least = least_seconds(load, physics)
    busy = busy_seconds(load, physics, saturated)
    proof, close = (
        lower_bound(load, seconds, gpus, slots, slo, resize, initial_width)
        for seconds in (least, busy)
    )
    return proof, close


def _sample(load: Load) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Every so many-th request: a mix that changes is there in all its parts."""
    stride = max(len(load.arrival_s) // _SAMPLE, 1)
    prompts, outputs = load.prompt_tokens[::stride], load.output_tokens[::stride]
    return np.ascontiguousarray(prompts), np.ascontiguousarray(outputs)


def _some_of(widths: Iterable[int]) -> list[int]:
    """The widths that are measured; between them the curve is smooth."""
    known = sorted(widths)
    return sorted({int(w) for w in np.linspace(known[0], known[-1], _MEASURED_WIDTHS)})


def _rates(load: Load, physics: Mapping[int, Physics], slo: Slo) -> dict[int, float]:
    """Requests a second that each width bears, measured in the engine at some of the widths."""
    measured = _some_of(physics)
    prompts, outputs = _sample(load)
    criterion = Criterion(slo.ttft_p95_s, duration_s=_MEASURED_S)
    rps = [
        capacity_rps(physics[w], prompts, outputs, criterion=criterion, tolerance=0.03)
        for w in measured
    ]
    # A width that bears nothing at all still gets its queue done some day.
    return {w: max(float(np.interp(w, measured, rps)), 1e-3) for w in physics}


def _drain_s(load: Load, physics: Physics) -> float:
    """How long ranks that leave take to finish: an output that is longer than nearly all."""
    return float(np.percentile(load.output_tokens, 99)) * float(physics.decode_s[-1])
