"""Fakes and contract checks, for this package's tests and for those of third-party plug-ins.

Fakes pass the same checks as the real things. A check raises ``AssertionError`` that says which
promise was broken and by what.
"""

# ruff: noqa: S101  # assert is how checks speak, as in tests

import copy
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from autoscaler.errors import AutoscalerError
from autoscaler.model import (
    Capabilities,
    Metrics,
    Observation,
    Proposal,
    Resize,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Tristate,
    WidthStatus,
)
from autoscaler.ports import MetricsSource, Policy, Target

_CODE = re.compile(r"[a-z][a-z0-9_]*")


class ManualClock:
    """A clock that moves only when told, or by whoever sleeps on it.

    Args:
        now_s: where it starts; not 0, so that code which forgets to subtract is found out.
    """

    def __init__(self, now_s: float = 1_000.0) -> None:
        self._now_s = now_s
        self.slept_s: list[float] = []

    def now_s(self) -> float:
        """Seconds; only differences mean anything."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Let the time pass."""
        self.slept_s.append(duration_s)
        self.advance(max(duration_s, 0.0))

    def advance(self, duration_s: float) -> None:
        """Let the time pass without anybody sleeping, as work does."""
        self._now_s += duration_s


class FakeSource:
    """Gives what it is told to: metrics, an error to raise, or a function that is called."""

    def __init__(self, metrics: Metrics | AutoscalerError | Callable[[], Metrics]) -> None:
        self.metrics = metrics

    def read(self) -> Metrics:
        """The metrics it was given."""
        if isinstance(self.metrics, AutoscalerError):
            raise self.metrics
        return self.metrics if isinstance(self.metrics, Metrics) else self.metrics()


class FakeTarget:
    """A deployment whose resizes take ``resize_s`` on the given clock and always work.

    ``answers`` are given to the next writes instead (an outcome to return or an error to raise;
    nothing is applied then); ``unreadable`` is raised by the next reads while it is set.
    """

    def __init__(
        self,
        clock: ManualClock,
        width: int = 2,
        resize_s: float = 180.0,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.clock = clock
        self.resize_s = resize_s
        self.desired = width
        self.effective: int | None = width
        self.generation = 1
        self.incarnation = "one"
        self.writes: list[int] = []
        self.answers: list[SetOutcome | AutoscalerError] = []
        self.unreadable: AutoscalerError | None = None
        self._stable = width
        self._due_s: float | None = None
        self._capabilities = capabilities or Capabilities(1, 8, can_shrink=Tristate.YES)

    def read(self) -> WidthStatus:
        """The present width."""
        if self.unreadable is not None:
            raise self.unreadable
        if self._due_s is not None and self.clock.now_s() >= self._due_s:
            self.effective, self._due_s = self.desired, None
            self._stable = self.desired
        return WidthStatus(
            desired=self.desired,
            effective=self.effective,
            stable=self._stable,
            generation=self.generation,
            observed_generation=self.generation,
            incarnation=self.incarnation,
        )

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Begin a resize, or give the answer prepared for this write."""
        self.writes.append(width)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, AutoscalerError):
                raise answer
            return answer
        if expected != self.desired:
            return SetOutcome(SetResult.CONFLICT, detail=f"the width is {self.desired}")
        if not self._capabilities.permits(width):
            return SetOutcome(SetResult.REFUSED, detail=f"{width} is not a permitted width")
        self.apply(width)
        return SetOutcome(SetResult.APPLIED, self.generation)

    def apply(self, width: int) -> None:
        """Change the desired width, as a write does; also to play somebody else."""
        self.desired = width
        self.generation += 1
        self._due_s = self.clock.now_s() + self.resize_s

    def capabilities(self) -> Capabilities:
        """What it can do."""
        return self._capabilities


def observation(
    tick: int = 0,
    now_s: float = 1_000.0,
    width: int = 2,
    capabilities: Capabilities | None = None,
    resize: Resize | None = None,
    slo: Slo | None = None,
    window_s: float = 30.0,
    signals: Mapping[str, float | Signal | None] | None = None,
    **named: float | Signal | None,
) -> Observation:
    """An observation of a steady width; ``signals`` (or ``named`` ones), None for a missing one.

    Signals that are not named are a quiet but not idle engine's: p95 TTFT 1 s, empty queue.
    """
    known: dict[str, float | Signal | None] = {
        "ttft_p95_s": 1.0,
        "queue_depth": 0.0,
        "arrival_rps": 1.0,
        "ttft_observations": 30.0,
        **(signals or {}),
        **named,
    }
    missing = Signal(None, SignalStatus.NO_SERIES)
    given = {
        name: value if isinstance(value, Signal) else missing if value is None else Signal(value)
        for name, value in known.items()
    }
    return Observation(
        tick,
        now_s,
        Metrics(window_s, **given),
        WidthStatus(width, width, width),
        capabilities or Capabilities(1, 8, can_shrink=Tristate.YES),
        slo or Slo(),
        resize,
    )


def check_policy(build: Callable[[], Policy], width: int = 4) -> None:
    """Hold a policy against the contract of its port.

    Equal observations give equal proposals, also after a deep copy in the middle and on a shifted
    clock; no input raises; proposals have a whole width, a short code and a reason; the state is
    JSON; and missing data asks for no smaller width than an overload does.

    Args:
        build: a new policy with each call.
        width: the present width in the observations, with room above and below.
    """
    for name, sequence in _sequences(width).items():
        said = _run(build(), sequence, name)
        assert said == _run(build(), sequence, name), f"{name}: equal inputs, unequal proposals"
        shifted = [_shift(obs, 4096.0) for obs in sequence]
        widths = [(p.width, p.code) for p in _run(build(), shifted, name)]
        assert widths == [(p.width, p.code) for p in said], f"{name}: depends on the clock's start"
        policy, half = build(), len(sequence) // 2
        _run(policy, sequence[:half], name)
        copied = copy.deepcopy(policy)
        rest = _run(policy, sequence[half:], name)
        assert rest == _run(copied, sequence[half:], name), f"{name}: state outside the policy"

    overloaded = min(p.width for p in _run(build(), _sequences(width)["overload"], "overload"))
    for name in ("missing", "no_ttft"):
        for proposal in _run(build(), _sequences(width)[name], name):
            floor = min(width, overloaded)
            assert proposal.width >= floor, f"{name}: smaller width on missing data: {proposal}"


def check_source(source: MetricsSource) -> Metrics:
    """Hold one reading of a metrics source against the contract of its port; returns it."""
    metrics = source.read()
    assert metrics.window_s > 0, f"window_s: must be > 0; got {metrics.window_s!r}"
    for field in fields(metrics):
        signal = getattr(metrics, field.name)
        if isinstance(signal, Signal):
            ok = signal.status is SignalStatus.OK
            assert ok == (signal.value is not None), f"{field.name}: value and status disagree"
            for number in (signal.value, signal.lower_bound):
                assert number is None or math.isfinite(number), f"{field.name}: not finite"
    return metrics


def check_target(target: Target, *, write: bool = True) -> None:
    """Hold a steady target against the contract of its port.

    Args:
        target: its width is at rest and has a permitted neighbour.
        write: whether a resize to that neighbour may really be asked for.
    """
    before, can = target.read(), target.capabilities()
    assert before.desired >= 0, f"desired: must be >= 0; got {before.desired}"
    assert 0 <= can.min_width <= can.max_width, f"bounds: {can.min_width}..{can.max_width}"
    assert can.gpus_per_width >= 1, f"gpus_per_width: must be >= 1; got {can.gpus_per_width}"
    lattice = can.valid_widths
    if lattice is not None:
        assert list(lattice) == sorted(set(lattice)), f"valid_widths: not ascending: {lattice}"
    grown = can.neighbour(before.desired, 1)
    width = grown if grown != before.desired else can.neighbour(before.desired, -1)
    wrong = target.set_width(width, before.desired + 1)
    assert wrong.result is SetResult.CONFLICT, f"wrong expected width: got {wrong.result}"
    assert target.read().desired == before.desired, "a conflicting write changed the width"
    if write:
        outcome = target.set_width(width, before.desired)
        assert outcome.result is SetResult.APPLIED, f"write of {width}: {outcome}"
        assert target.read().desired == width, f"the write of {width} does not show"


def _run(policy: Policy, sequence: Sequence[Observation], name: str) -> list[Proposal]:
    said = []
    for obs in sequence:
        proposal = policy.propose(obs)
        assert isinstance(proposal.width, int), f"{name}: width is not whole: {proposal}"
        assert _CODE.fullmatch(proposal.code), f"{name}: code is no short word: {proposal}"
        assert proposal.reason, f"{name}: no reason: {proposal}"
        json.dumps(policy.state(), allow_nan=False)
        said.append(proposal)
    return said


def _shift(obs: Observation, by_s: float) -> Observation:
    resize = obs.resize
    if resize is not None:
        resize = replace(resize, requested_at_s=resize.requested_at_s + by_s)
    return replace(obs, now_s=obs.now_s + by_s, resize=resize)


def _sequences(width: int) -> dict[str, list[Observation]]:
    """Loads by name, 120 ticks of 5 s each."""
    top = Signal(None, SignalStatus.TOP_BUCKET, 2560.0)
    none = Signal(None, SignalStatus.NO_OBSERVATIONS)
    blank = {f.name: None for f in fields(Metrics) if f.name != "window_s"}
    zero = dict.fromkeys(blank, 0.0)
    resize = Resize(width, width + 2, 1_000.0)
    kinds: dict[str, dict[str, float | Signal | None]] = {
        "quiet": {},
        "overload": {"ttft_p95_s": 60.0, "queue_depth": 500.0, "arrival_rps": 90.0},
        "top_bucket": {"ttft_p95_s": top, "queue_depth": 5000.0},
        "missing": dict(blank),
        "no_ttft": {"ttft_p95_s": None},
        "idle": {"ttft_p95_s": none, "arrival_rps": 0.0, "ttft_observations": 0.0},
        "stalled": {"ttft_p95_s": none, "queue_depth": 50.0},
        "zero": dict(zero),
        "huge": dict.fromkeys(blank, 1e18),
    }
    ticks = range(120)
    found = {
        name: [observation(i, 1_000.0 + 5.0 * i, width, signals=signals) for i in ticks]
        for name, signals in kinds.items()
    }
    found["mixed"] = [
        found[name][i] for i, name in zip(ticks, list(kinds) * len(ticks), strict=False)
    ]
    found["resizing"] = [replace(obs, resize=resize) for obs in found["overload"]]
    found["width_zero"] = [observation(i, 1_000.0 + 5.0 * i, 0) for i in ticks]
    found["unread_width"] = [replace(o, width=WidthStatus(width, None)) for o in found["overload"]]
    found["clock_back"] = list(reversed(found["overload"]))
    return found
