"""What the loop needs from the world. Each port has a live and a simulated implementation.

Every call returns within less than a tick, or raises an ``AutoscalerError``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from autoscaler.model import (
    Capabilities,
    Decision,
    Metrics,
    Observation,
    Proposal,
    SetOutcome,
    Slo,
    WidthStatus,
)


class Clock(Protocol):
    """Monotonic time with an arbitrary start."""

    def now_s(self) -> float:
        """Seconds; only differences mean anything."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Return after ``duration_s`` (none if not positive), or sooner if the clock is stopped."""
        ...


class MetricsSource(Protocol):
    """Reads what the engine shows of itself."""

    def read(self) -> Metrics:
        """One call a tick, each signal with its own status.

        Raises:
            ObservationError: no usable answer at all.
        """
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a metrics source is built from besides its own parameters.

    ``engines``: how many engines are to be counted now, that is the effective width; None while
    that is unknown: then all that show themselves count.
    """

    slo: Slo
    clock: Clock
    engines: Callable[[], int | None]


class Target(Protocol):
    """The deployment whose width is steered."""

    def read(self) -> WidthStatus:
        """The present width.

        Raises:
            TargetError: unreadable this tick.
        """
        ...

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Ask for an absolute width, on condition that the desired one is still ``expected``.

        Never retried inside: an unclear answer is ``AMBIGUOUS``.
        """
        ...

    def capabilities(self) -> Capabilities:
        """What the target can do now; may sharpen as it learns (a refused shrink)."""
        ...


@runtime_checkable
class MemoryPlace(Protocol):
    """Where what a controller remembers outlives its process: one text a target."""

    def recall(self) -> str | None:
        """The text; None: there is none.

        Raises:
            TargetForbidden: reading it is not permitted.
            TargetError: unreadable now.
        """
        ...

    def remember(self, text: str) -> None:
        """Keep a text in place of the last one.

        Raises:
            TargetConflict: another process has kept one since.
            TargetError: it may not have been kept.
        """
        ...


@runtime_checkable
class RememberingTarget(MemoryPlace, Protocol):
    """A target that keeps the text beside the width, and writes both in one.

    ``recall`` gives what the last ``read`` found.
    """

    def set_width(self, width: int, expected: int, note: str | None = None) -> SetOutcome:
        """As ``Target.set_width``, and keeps ``note`` exactly if it sets the width."""
        ...


class Policy(Protocol):
    """Turns an observation into a wish. May keep state; does no I/O and reads no clock.

    Asked once every tick, also while a resize is in flight (its wish is then recorded only).
    Equal sequences of observations give equal proposals.
    """

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now, bounds and lattice not necessarily respected."""
        ...

    def state(self) -> dict[str, Any]:
        """JSON-ready internal state, for the decision log; empty for a stateless policy."""
        ...


@runtime_checkable
class KnowsCapacity(Protocol):
    """A policy that also knows what a width bears; others need not."""

    def capacity_rps(self, width: int) -> float | None:
        """Arrivals a second, of the present mix, that a width serves within the objective.

        None: not known (yet).
        """
        ...


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may be built from besides its own parameters.

    ``tick_s``: seconds between two calls of ``propose``, > 0. ``profile``: the captured width
    curves, None where there are none; a policy that needs them says so with a ConfigError.
    ``epoch_s``: Unix time at which the loop's clock showed 0, s; None: there is no wall clock, as
    in a simulation. A number and no clock, so that what it was built from explains a policy.
    ``scale_down_window_s``, ``settle_s``: how long the guards hold a wish for less, and every wish
    after a resize, s, >= 0; ``max_reversals_per_hour``: how many changes of direction they allow,
    None: any number. So that a policy that looks ahead knows when its wish can come true.
    """

    slo: Slo
    tick_s: float
    profile: Any = None
    epoch_s: float | None = None
    scale_down_window_s: float = 0.0
    settle_s: float = 0.0
    max_reversals_per_hour: int | None = None


class DecisionLog(Protocol):
    """Where each tick is recorded, once."""

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """``obs`` None: nothing could be observed; ``outcome`` None: nothing was written.

        ``shadows``: what each shadow policy decided, by its name; None: there are none.
        """
        ...
