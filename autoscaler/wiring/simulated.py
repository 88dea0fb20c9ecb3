"""Simulations: a trace, a profile and policies to loops around a simulated fleet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from autoscaler import limits, policy_file, profiles, shipped
from autoscaler.clock import SystemClock
from autoscaler.convergence import Params as ConvergenceParams
from autoscaler.decisions import JsonlLog
from autoscaler.engine.fleet import Load
from autoscaler.errors import ConfigError
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Observation, SetOutcome
from autoscaler.parameters import from_mapping
from autoscaler.policy_file import PolicyChoice
from autoscaler.ports import DecisionLog
from autoscaler.profile import Profile
from autoscaler.scenario import Scenario
from autoscaler.sim.clock import SimClock
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.probe import Probe
from autoscaler.sim.resize import ResizeModel
from autoscaler.sim.score import score
from autoscaler.sim.target import SimTarget
from autoscaler.steering import Steering
from autoscaler.sweeps import Workers, each
from autoscaler.traces import Trace, load
from autoscaler.wiring import clairvoyant, synthesis

SCHEMA = "autoscaler.simulation/v1"

_PROBE_STREAM = 1
"""Lost scrapes are drawn from a stream of their own: they shift no failure of a resize."""

_WORTH_A_WORKER = 3_000_000
"""Requests that are played, over all runs, from which on processes pay: one takes about 2 s to
start, in which the engine plays as many."""

ORACLE = clairvoyant.NAME
"""What the oracle is called among the policies, though it is none that a file describes."""

_COVERED_BY_STATIC_WIDTHS = ("hold", "static")


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one profile.

    ``profile``: what the fleet follows. ``believed``: what the policy knows of it, the same unless
    the scenario has it wrong. ``profile_name``: what a replay finds the latter by.
    """

    profile: Profile
    policy: PolicyChoice
    initial_width: int
    min_width: int
    max_width: int
    profile_name: str | None = None
    believed: Profile | None = None


class _NoLog:
    """Records nothing: a simulation without ``--decisions``."""

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """Nothing."""


def load_trace(scenario: Scenario, on_progress: Callable[[int, int], None] | None = None) -> Trace:
    """The trace that a scenario names, or draws.

    Raises:
        ConfigError: it names none.
        TraceError: a file is unusable.
    """
    if scenario.synth is not None:
        trace = synthesis.draw(scenario.synth, scenario.seed)
        return trace.sliced(scenario.start_s, scenario.duration_s).sped_up(scenario.speed)
    if not scenario.trace:
        raise ConfigError("trace: must name at least one file; got none")
    return load(
        scenario.trace,
        format=scenario.trace_format,
        skip_bad_rows=scenario.skip_bad_rows,
        speed=scenario.speed,
        start_s=scenario.start_s,
        duration_s=scenario.duration_s,
        seed=scenario.seed,
        on_progress=on_progress,
    )


def plan(scenario: Scenario) -> list[Run]:
    """Every policy on every profile, in the order they are reported.

    Raises:
        ConfigError: an unknown policy or profile, or a width that a profile does not know.
    """
    return [run for name in scenario.profile for run in _plan(scenario, name)]


def _plan(scenario: Scenario, profile_name: str) -> list[Run]:
    profile = profiles.load(profile_name)
    known = profile.known_widths
    low = known[0] if scenario.min_width is None else scenario.min_width
    high = known[-1] if scenario.max_width is None else scenario.max_width
    first = low if scenario.initial_width is None else scenario.initial_width
    if not low <= first <= high:
        raise ConfigError(f"initial_width: must be within {low} to {high}; got {first}")
    for width in (low, high):
        profile.physics(width, extrapolate=scenario.extrapolate)
    wrong = scenario.decide_with_profile
    believed = profile if wrong is None else profiles.load(wrong)
    runs = []
    for name in scenario.policy or _every_policy(low, high):
        choice = (
            clairvoyant.unplanned(first) if name == clairvoyant.NAME else policy_file.load(name)
        )
        begin = first
        if choice.kind == "static":
            # A static width is there from the start: growing into it would be another policy.
            begin = choice.params.width
            if not low <= begin <= high:
                raise ConfigError(f"policy {name}: must be within {low} to {high}; got {begin}")
        runs.append(Run(profile, choice, begin, low, high, wrong or profile_name, believed))
    return runs


def _every_policy(low: int, high: int) -> list[str]:
    own = [n for n in shipped.names("policies") if n not in _COVERED_BY_STATIC_WIDTHS]
    return own + [f"static:{width}" for width in range(low, high + 1)] + [clairvoyant.NAME]


def resize_model(name_or_file: str) -> ResizeModel:
    """The resize model of a file, or the shipped one of that name.

    Raises:
        ConfigError: no such model, or one that breaks a rule.
    """
    path = shipped.resolve("resizes", name_or_file)
    return from_mapping(ResizeModel, policy_file.read_yaml(path), str(path))


def play(
    scenario: Scenario, trace: Trace, run: Run, resize: ResizeModel, log: DecisionLog | None = None
) -> tuple[Fleet, ControlLoop]:
    """Run the control loop against the simulated fleet until every request has ended."""
    fleet = _fleet(scenario, trace, run, resize)
    probe = Probe(
        fleet,
        scenario.slo,
        scenario.scrape_interval_s,
        delay_s=scenario.metrics_delay_s,
        loss_ratio=scenario.scrape_loss_ratio,
        rng=np.random.default_rng((scenario.seed, _PROBE_STREAM)),
    )
    clock = SimClock(probe.play)
    target = SimTarget(fleet, clock, run.profile, resize, run.min_width, run.max_width)
    loop = ControlLoop(
        probe,
        target,
        _steering(scenario, run).build(),
        clock,
        log or _NoLog(),
        scenario.slo,
        scenario.tick_s,
    )

    last_s = float(trace.arrival_s[-1])

    def stop_when_done() -> None:
        if clock.now_s() >= last_s and fleet.done:
            loop.stop()

    loop.run(after_tick=stop_when_done)
    return fleet, loop


def _fleet(scenario: Scenario, trace: Trace, run: Run, resize: ResizeModel) -> Fleet:
    return Fleet(
        _load_of(trace),
        run.profile,
        resize,
        run.initial_width,
        run.max_width,
        np.random.default_rng(scenario.seed),
        extrapolate=scenario.extrapolate,
    )


def _load_of(trace: Trace) -> Load:
    return Load(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)


def simulate_run(
    scenario: Scenario, trace: Trace, run: Run, resize: ResizeModel, log: DecisionLog | None = None
) -> dict[str, Any]:
    """One entry of the results."""
    clock = SystemClock()
    started_s = clock.now_s()
    ahead = None
    if run.policy.kind == clairvoyant.KIND:
        ahead = clairvoyant.look_ahead(
            scenario,
            _load_of(trace),
            run.profile,
            resize,
            range(run.min_width, run.max_width + 1),
            run.initial_width,
            lambda: _fleet(scenario, trace, run, resize),
        )
        run = replace(run, policy=ahead.policy)
    fleet, loop = play(scenario, trace, run, resize, log)
    entry: dict[str, Any] = {"policy": run.policy.name, "profile": run.profile.name}
    entry |= score(fleet, scenario.slo)
    served = sorted({width for _, width in fleet.widths})
    entry["width"]["not_measured"] = [w for w in served if w not in run.profile.known_widths]
    if ahead is not None:
        entry["oracle"] = ahead.describe(entry["slo"]["windows_ok_ratio"])
    return {**entry, "ticks": loop.ticks, "wall_s": clock.now_s() - started_s}


def simulate(
    scenario: Scenario,
    trace: Trace,
    *,
    workers: Workers = Workers(1),  # noqa: B008  # immutable
    decisions: TextIO | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The whole comparison, as ``autoscaler.simulation/v1`` has it.

    Args:
        scenario: what to simulate.
        trace: the scenario's trace.
        workers: who plays, a run each; the result is the same whoever does.
        decisions: takes the decision log; with it the runs go one after the other.
        on_done: called with the number of runs done and that of all runs.

    Raises:
        ConfigError: the scenario is unusable.
    """
    resize = resize_model(scenario.resize)
    runs = plan(scenario)
    results: list[dict[str, Any]] = []
    for entry in _results(scenario, trace, runs, resize, workers, decisions):
        results.append(entry)
        if on_done is not None:
            on_done(len(results), len(runs))
    clairvoyant.compare(results)
    names = list(dict.fromkeys(run.profile.name for run in runs))
    return {
        "schema": SCHEMA,
        "trace": {
            "paths": list(trace.paths),
            "format": trace.format,
            "requests": trace.requests,
            "duration_s": trace.duration_s,
            "prompt_tokens": int(trace.prompt_tokens.sum(dtype=np.int64)),
            "output_tokens": int(trace.output_tokens.sum(dtype=np.int64)),
            "skipped_rows": trace.skipped_rows,
        },
        "profile": names[0] if len(names) == 1 else names,
        "resize": _stem(scenario.resize),
        "seed": scenario.seed,
        "slo": {
            "ttft_p95_s": scenario.ttft_slo_s,
            "itl_p95_s": scenario.itl_slo_s,
            "window_s": scenario.window_s,
            "failure_penalty_s": scenario.failure_penalty_s,
        },
        "results": results,
    }


def _stem(name_or_file: str) -> str:
    """A name as it is, dots and all (vllm-0.25-measured); of a file its stem."""
    path = Path(name_or_file)
    return path.stem if path.suffix in (".yaml", ".yml") else path.name


def _results(
    scenario: Scenario,
    trace: Trace,
    runs: Sequence[Run],
    resize: ResizeModel,
    workers: Workers,
    decisions: TextIO | None,
) -> Iterator[dict[str, Any]]:
    """The entries in the order of the runs, as they come."""
    if decisions is None:
        if workers == Workers() and len(runs) * trace.requests < _WORTH_A_WORKER:
            workers = Workers(1)
        yield from each(_played, [(scenario, trace, run, resize) for run in runs], workers)
        return
    for run in runs:
        name = f"{run.profile.name}/{run.policy.name}"
        log = JsonlLog(decisions, _steering(scenario, run).describe(name))
        yield simulate_run(scenario, trace, run, resize, log)


def _played(item: tuple[Scenario, Trace, Run, ResizeModel]) -> dict[str, Any]:
    return simulate_run(*item)


def _steering(scenario: Scenario, run: Run) -> Steering:
    """How this run's controller decides."""
    guards = limits.Params(min_width=run.min_width, max_width=run.max_width)
    if run.policy.kind == clairvoyant.KIND:
        guards = clairvoyant.unguarded(guards)
    return Steering(
        run.policy,
        scenario.slo,
        scenario.tick_s,
        guards,
        ConvergenceParams(),
        run.believed or run.profile,
        run.profile_name or run.profile.name,
    )
