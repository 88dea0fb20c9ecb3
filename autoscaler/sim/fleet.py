"""A serving fleet that can be resized: the engine, the course of resizes, the bill."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.physics import Physics
from autoscaler.model import Layer, SetOutcome, SetResult, WidthStatus
from autoscaler.profile import Profile
from autoscaler.sim.resize import ResizeModel

_DRAIN_POLL_S = 0.25
_NEVER_S = float("inf")


@dataclass(slots=True)
class Tally:
    """What resizes did in one run."""

    up: int = 0
    down: int = 0
    refused: int = 0
    failed: int = 0
    reversals: int = 0
    paused_s: float = 0.0
    last_direction: int = 0


@dataclass(slots=True)
class Bill:
    """GPUs allocated over time, as steps (at_s, gpus); the first at 0."""

    steps: list[tuple[float, int]] = field(default_factory=list)

    def gpu_seconds(self, until_s: float) -> float:
        """GPU-seconds from 0 to ``until_s``."""
        total = 0.0
        for (at_s, gpus), (end_s, _) in zip(
            self.steps, [*self.steps[1:], (until_s, 0)], strict=True
        ):
            total += gpus * max(min(end_s, until_s) - at_s, 0.0)
        return total


class Fleet:
    """Serves a load at a width that can be changed while it runs.

    Args:
        load: what arrives.
        profile: step times by width.
        resize: the course of a resize.
        width: the first width.
        max_width: the largest it may be asked for.
        rng: decides refusals, failures and stuck resizes.
        extrapolate: permit widths outside those that were measured.

    Attributes:
        engine: the compiled fleet.
        serving: width that serves now (the old one until a commit is over).
        desired: width asked for last.
        metrics_up: whether ``/metrics`` answers.
        restarts: how often the engine's counters have begun anew.
        widths: steps (at_s, width) of the serving width, the first at 0.
    """

    def __init__(
        self,
        load: Load,
        profile: Profile,
        resize: ResizeModel,
        width: int,
        max_width: int,
        rng: np.random.Generator,
        *,
        extrapolate: bool = False,
    ) -> None:
        self._profile = profile
        self._resize = resize
        self._rng = rng
        self._extrapolate = extrapolate
        first, largest = self._physics(width), self._physics(max_width)
        slots = max(p.ranks * p.slots_per_rank for p in (first, largest))
        self.engine = Engine(load, first, max_ranks=largest.ranks, max_slots=slots)
        self.serving = self.desired = width
        self.metrics_up = True
        self.restarts = 0
        self._origin: npt.NDArray[np.int64] | None = None
        self._restart_step = -1
        self.tally = Tally()
        self.bill = Bill([(0.0, profile.gpus(width))])
        self.widths: list[tuple[float, int]] = [(0.0, width)]
        self._generation = 1
        self._course: Iterator[float] | None = None
        self._next_s = _NEVER_S
        self._proven: int | None = width
        self._phase = ""
        self._steady: WidthStatus | None = None
        self._refusal: str | None = None
        self._failure: str | None = None

    @property
    def resizing(self) -> bool:
        """Whether a resize is in flight."""
        return self._course is not None

    def advance(self, until_s: float) -> None:
        """Play until ``until_s``, resizes included."""
        while self._next_s <= until_s:
            self.engine.advance(self._next_s)
            self._resume()
        self.engine.advance(until_s)

    @property
    def done(self) -> bool:
        """Whether every request has ended."""
        state = self.engine.state
        return int(state["completed"]) + int(state["failed"]) == len(self.engine.arrival_s)

    def counters(self) -> npt.NDArray[np.int64]:
        """What the engine has counted since its last restart, in the order of ``Scrape``.

        Requests turned away or cut off appear in no counter, as in a real engine.
        """
        counts = self.engine.counts()
        return counts if self._origin is None else counts - self._origin

    @property
    def silent(self) -> bool:
        """Whether no step was made since the restart: a real engine's gauges say 0 meanwhile."""
        return int(self.engine.state["step"]) == self._restart_step

    def request(
        self, width: int, expected: int, now_s: float, resize: ResizeModel | None = None
    ) -> SetOutcome:
        """Ask for a width; answers as an operator's API would.

        ``resize``: the course from this one on; None: as before.
        """
        self.advance(now_s)
        self._resize = resize or self._resize
        if expected != self.desired:
            return SetOutcome(SetResult.CONFLICT, detail=f"width is {self.desired}")
        if self._course is not None:
            return SetOutcome(SetResult.CONFLICT, detail="a resize is in flight")
        down = width < self.serving
        if down and self._resize.scale_up_only:
            self.tally.refused += 1
            return SetOutcome(SetResult.REFUSED, detail="scale-down is not supported")
        if self._rng.random() < self._resize.refuse_probability:
            self.tally.refused += 1
            return SetOutcome(SetResult.REFUSED, detail="the operator refused the width")
        self._steady = None
        self._generation += 1
        self.desired = width
        self._failure = None
        self._count(-1 if down else 1)
        self._course = (self._shrink if down else self._grow)(width, now_s)
        self._resume()
        return SetOutcome(SetResult.APPLIED, generation=self._generation)

    def status(self) -> WidthStatus:
        """What an operator would say of the width now; unproven while a commit goes on."""
        if self._steady is not None:
            return self._steady
        held = self.serving if self._phase != "committing" else None
        layers: tuple[Layer, ...] = ()
        if self._course is not None:
            allocated = self.serving if self._phase == "waiting for capacity" else self.desired
            layers = (Layer("allocated", allocated, self._phase),)
        status = WidthStatus(
            self.desired,
            held,
            self._proven,
            self._generation,
            self._generation,
            "",
            layers,
            self._refusal,
            self._failure,
            self._course is not None,
            self._phase,
        )
        if self._course is None:
            self._steady = status  # until the next resize
        return status

    def _physics(self, width: int) -> Physics:
        return self._profile.physics(width, extrapolate=self._extrapolate)

    def _count(self, direction: int) -> None:
        tally = self.tally
        if direction > 0:
            tally.up += 1
        else:
            tally.down += 1
        tally.reversals += direction == -tally.last_direction
        tally.last_direction = direction

    def _resume(self) -> None:
        """Let the course of the resize go on to where it next waits."""
        if self._course is not None:
            self._next_s = next(self._course, _NEVER_S)
            if self._next_s == _NEVER_S and self._phase != "stuck":
                self._course = None

    def _charge(self, at_s: float, width: int) -> None:
        self.bill.steps.append((at_s, self._profile.gpus(width)))

    def _serve(self, at_s: float, width: int) -> None:
        self.serving = self._proven = width
        self.metrics_up = True
        self._phase = ""
        self.widths.append((at_s, width))

    def _grow(self, width: int, at_s: float) -> Iterator[float]:
        """The course of a growth; yields the instant at which it wants to go on."""
        model, engine = self._resize, self.engine
        if model.gpus_billed_from == "request":
            self._charge(at_s, width)
        if model.capacity_wait_s > 0:
            self._phase = "waiting for capacity"
            at_s += model.capacity_wait_s
            yield at_s
        if model.gpus_billed_from == "capacity":
            self._charge(at_s, width)
        if self._rng.random() < model.stuck_probability:
            self._phase = "stuck"
            yield _NEVER_S
        self._phase = "preparing"
        at_s += model.prepare_s
        yield at_s
        if self._rng.random() < model.fail_probability:
            yield from self._fail(width, at_s)
            return
        self._commit(at_s)
        self._restart()
        if model.in_flight == "fail":
            engine.drop(0, at_s)
        yield from self._pause(at_s, width, up=True)

    def _shrink(self, width: int, at_s: float) -> Iterator[float]:
        """The course of a shrink; the GPUs are released at its end."""
        model, engine = self._resize, self.engine
        self._phase = "preparing"
        at_s += model.prepare_s
        yield at_s
        ranks = self._physics(width).ranks
        if model.in_flight != "fail" and model.leaving == "drain":
            engine.drain(ranks)
            while not engine.drained:
                at_s += _DRAIN_POLL_S
                yield at_s
        # Before anything is cut off: it takes in what has just come, also on ranks that go.
        self._commit(at_s)
        if model.in_flight == "fail":
            engine.drop(0, at_s)
        elif model.leaving != "drain":
            hang_s = model.client_timeout_s if model.leaving == "hang" else 0.0
            engine.drop(ranks, at_s + hang_s)
        yield from self._pause(at_s, width, up=False)
        self._charge(self.widths[-1][0], width)

    def _restart(self) -> None:
        """The engine builds its metrics anew, as it does for each growth, also a failed one."""
        if not self._resize.resets_counters:
            return
        self.engine.finish_step()
        self._origin = self.engine.counts()
        self._restart_step = int(self.engine.state["step"])
        self.restarts += 1

    def _commit(self, at_s: float) -> None:
        self._phase = "committing"
        self.metrics_up = False
        if self._resize.new == "reject":
            self.engine.close(at_s)

    def _pause(self, at_s: float, width: int, *, up: bool) -> Iterator[float]:
        """No token until the pause is over; then the new width serves."""
        model, engine = self._resize, self.engine
        pause_s, reject_s = model.pause_s(up), model.reject_s(up)
        engine.stall(at_s + pause_s)
        engine.change(self._physics(width))
        self.tally.paused_s += pause_s
        if model.new == "reject":
            # The door opens before the first token where accepted requests wait on, as measured
            # on a real engine: 67.1 s of 503, then 9.2 s of silence.
            yield at_s + reject_s
            engine.open(at_s + reject_s, reject=True)
            self.metrics_up = True
        if model.new == "queue" or reject_s < pause_s:
            yield at_s + pause_s
        self._serve(at_s + max(pause_s, reject_s), width)

    def _fail(self, width: int, at_s: float) -> Iterator[float]:
        """The commit fails: the old width goes on, after an outage where the engine restarts."""
        model, engine = self._resize, self.engine
        self.tally.failed += 1
        self._restart()
        old = self.serving
        if model.failure_outage_s > 0:
            self._commit(at_s)
            engine.close(at_s)
            engine.drop(0, at_s)
            engine.stall(at_s + model.failure_outage_s)
            self.tally.paused_s += model.failure_outage_s
            at_s += model.failure_outage_s
            yield at_s
            engine.open(at_s, reject=True)
        self._failure = f"the commit from {old} to {width} failed"
        self._serve(at_s, old)
        self._charge(at_s, old)
