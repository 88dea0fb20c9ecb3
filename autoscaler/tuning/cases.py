"""What is played: loads to tune on, and loads to judge by."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler import scenario as scenarios
from autoscaler.errors import ConfigError
from autoscaler.policy_file import PolicyChoice
from autoscaler.scenario import Scenario
from autoscaler.sim.resize import ResizeModel
from autoscaler.traces import Trace
from autoscaler.tuning.goals import Outcome
from autoscaler.wiring import simulated
from autoscaler.wiring.simulated import Run

_TUNED_SHARE = 2 / 3
"""Of a single load, in time: the rest is held out."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One load on one deployment.

    Args:
        name: the scenario's, or the trace's file.
        scenario: what is simulated.
        trace: its requests.
        run: its profile and widths, with any policy.
        resize: its resize model.
    """

    name: str
    scenario: Scenario
    trace: Trace
    run: Run
    resize: ResizeModel

    def identity(self) -> list[str]:
        """What a result depends on besides the policy, as digests."""
        columns = (self.trace.arrival_s, self.trace.prompt_tokens, self.trace.output_tokens)
        digest = hashlib.sha256()
        for column in columns:
            digest.update(np.ascontiguousarray(column).tobytes())
        digest.update(repr((replace(self.scenario, trace=()), self.run, self.resize)).encode())
        return [self.name, digest.hexdigest()]


@dataclass(frozen=True, slots=True)
class Split:
    """The cases that a search sees, and those it does not."""

    tuned: tuple[Case, ...]
    held_out: tuple[Case, ...]


def load(
    traces: Sequence[str], scenario_names: Sequence[str], options: Mapping[str, Any]
) -> list[Case]:
    """One case a trace and one a scenario.

    Args:
        traces: files.
        scenario_names: names or files.
        options: fields of ``Scenario``; of a scenario they take the place of its own.

    Raises:
        AutoscalerError: unusable.
    """
    given = [(t, scenarios.load(None, {**options, "trace": [t]})) for t in traces]
    given += [(name, scenarios.load(name, options)) for name in scenario_names]
    return [_case(name, scenario) for name, scenario in given]


def _case(name: str, scenario: Scenario) -> Case:
    path = Path(name)
    stem = path.name if len(path.parts) > 1 else name
    if len(scenario.profile) > 1:
        rule = "must name one profile to tune for"
        raise ConfigError(f"{name}: profile: {rule}; got {', '.join(scenario.profile)}")
    run = simulated.plan(replace(scenario, policy=("hold",)))[0]
    resize = simulated.resize_model(scenario.resize)
    return Case(stem, scenario, simulated.load_trace(scenario), run, resize)


def split(cases: Sequence[Case], held_out: Sequence[Case], share: float, seed: int) -> Split:
    """Set aside what the search may not see.

    Args:
        cases: at least one.
        held_out: those that are held out by name; empty: some of ``cases``, drawn.
        share: of ``cases`` to draw, > 0, < 1; at least one is drawn and one stays. A single case
            is cut in time: its last third is held out.
        seed: of the draw.

    Raises:
        ConfigError: nothing to tune on, or two cases of one name.
        TraceError: a single case that is too short to be cut.
    """
    if not cases:
        raise ConfigError("trace, scenario: must name something to tune on; got nothing")
    names = [case.name for case in (*cases, *held_out)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"trace, scenario: must be given once each; got {twice[0]} twice")
    if held_out:
        return Split(tuple(cases), tuple(held_out))
    if len(cases) == 1:
        return _cut(cases[0])
    drawn = np.random.default_rng(seed).permutation(len(cases))
    count = min(max(round(share * len(cases)), 1), len(cases) - 1)
    away = set(drawn[:count].tolist())
    return Split(
        tuple(c for i, c in enumerate(cases) if i not in away),
        tuple(c for i, c in enumerate(cases) if i in away),
    )


def _cut(case: Case) -> Split:
    at_s = _TUNED_SHARE * case.trace.duration_s
    first = replace(case, name=f"{case.name}, first 2/3", trace=case.trace.sliced(None, at_s))
    last = replace(case, name=f"{case.name}, last 1/3", trace=case.trace.sliced(at_s))
    return Split((first,), (last,))


def played(item: tuple[Case, PolicyChoice]) -> dict[str, Any]:
    """The ``Outcome`` of a policy in a case, as a mapping: what workers send back."""
    case, choice = item
    run = replace(case.run, policy=choice)
    entry = simulated.simulate_run(case.scenario, case.trace, run, case.resize)
    hours = max(case.trace.duration_s / 3600, 1.0)
    return {
        "windows_ok_ratio": entry["slo"]["windows_ok_ratio"],
        "gpu_hours": entry["gpu_hours"],
        "reversals_per_hour": entry["resizes"]["reversals"] / hours,
        "failed": entry["requests"]["failed"],
    }


def outcome(found: Mapping[str, Any]) -> Outcome:
    """What ``played`` sent."""
    return Outcome(**found)
