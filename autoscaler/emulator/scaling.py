"""``/scale_elastic_ep`` as the engine's versions play it: phases, 503s, answers.

Up to 0.28 (as recorded on 0.25.0) the whole call is a 503 on every path. From 0.29 on only the
commit is, preparation goes on beside the traffic. From 0.33 on ``/health`` and
``/is_scaling_elastic_ep`` answer meanwhile.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autoscaler.emulator.faults import Faults
from autoscaler.emulator.world import World
from autoscaler.model import SetResult
from autoscaler.sim.resize import ResizeModel

_LOOK_S = 0.005
"""Real seconds between two looks at the course of a resize."""

_COMMIT_ONLY = (0, 29)
_PROBES_EXEMPT = (0, 33)
_LIMITS_CHECKED = (0, 29)


class ScaleError(Exception):
    """A call that is answered with an error: status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AnswerLost(Exception):  # named for what happened, as the errors of the package
    """The call is over, and its answer gets lost on the way."""


class Scaling:
    """The width as the engine's front end has it.

    Args:
        world: what is resized.
        version: (major, minor) of the engine.
        min_width, max_width: what the deployment permits.
        faults: gives the faults of the moment; ``spend`` is called when a resize takes one.

    Attributes:
        width: the front end's rank bound.
        flag: whether "scaling" is answered to everybody.
        phase: idle | preparing | committing | failed | completed.
    """

    def __init__(
        self,
        world: World,
        version: tuple[int, int],
        min_width: int,
        max_width: int,
        faults: Callable[[], Faults],
        spend: Callable[[], None],
    ) -> None:
        self.world = world
        self.version = version
        self.width = world.width
        self.flag = False
        self.phase = "idle"
        self._min_width = min_width
        self._max_width = max_width
        self._faults = faults
        self._spend = spend
        self._epoch = 0
        self._error: str | None = None
        self._requested: int | None = None
        self._turn = asyncio.Lock()

    def refuses(self, path: str) -> bool:
        """Whether ``path`` is answered with a 503 now."""
        if not self.flag:
            return False
        if self.version >= _PROBES_EXEMPT and path in ("/health", "/is_scaling_elastic_ep"):
            return False
        queues = self.world.resize.new == "queue" and self.phase == "committing"
        return not (queues and path == "/v1/completions")

    def state(self) -> dict[str, Any]:
        """The body of ``/is_scaling_elastic_ep``."""
        body: dict[str, Any] = {"is_scaling_elastic_ep": self.flag}
        if self.version >= _PROBES_EXEMPT:
            # The internal balancer's front end knows no more than these two phases.
            body |= {
                "phase": "committing" if self.flag else "idle",
                "epoch": self._epoch,
                "error": self._error,
                "requested_data_parallel_size": self._requested,
            }
        return body

    async def scale(self, width: int) -> None:
        """Resize and return when the answer would be 200.

        Raises:
            ScaleError: the answer is an error.
            AnswerLost: there is to be no answer.
        """
        async with self._turn:
            if width == self.width:
                return
            fault = self._faults().resize
            if fault:
                self._spend()
            fault = self._check(width) or fault
            self._epoch += 1
            self._requested = width
            whole_call = self.version < _COMMIT_ONLY
            growth = width > self.width
            self._raise_flag(whole_call, "preparing")
            if growth and whole_call:
                self.world.rebuild_metrics(width)
            if fault == "refuse":
                # As recorded: 500, healthy, counters reset, series of an engine that is not there.
                self._over("failed")
                raise ScaleError(500, "Scale failed")
            await self._follow(width, fault)
            if fault == "lose_answer":
                raise AnswerLost

    async def _follow(self, width: int, fault: str) -> None:
        world = self.world
        await self._first_token()
        restarts = world.fleet.restarts
        outcome = world.ask(width, _with_fault(world.resize, fault))
        if outcome.result is not SetResult.APPLIED:
            self._over("failed")
            raise ScaleError(500, "Scale failed")
        committed = False
        while world.fleet.resizing:
            world.play()
            if world.fleet.restarts != restarts:
                restarts = world.fleet.restarts
                if self.version >= _COMMIT_ONLY:
                    world.rebuild_metrics(width)
            if not world.fleet.metrics_up:
                if not committed:
                    self._raise_flag(True, "committing")
                committed = True
            elif committed:
                break  # the door is open again, though the first token may take a while
            await asyncio.sleep(_LOOK_S)
        if world.status().failure is not None:
            self._error = "Scale failed"
            self._over("failed")
            if fault == "wedge":
                self._raise_flag(True, "failed")
            raise ScaleError(500, "Scale failed")
        self.width = width
        self._over("completed")

    async def _first_token(self) -> None:
        """Wait until the last resize is over altogether."""
        while self.world.fleet.resizing:
            await asyncio.sleep(_LOOK_S)
            self.world.play()

    def _check(self, width: int) -> str:
        """What becomes of a width that is out of bounds; "": it is not."""
        if self._min_width <= width <= self._max_width:
            return ""
        if self.version < _LIMITS_CHECKED:
            return "refuse"  # found out by trying
        if width > self._max_width:
            limit = f"elastic_ep_max_dp_size {self._max_width}"
            raise ScaleError(400, f"new_data_parallel_size {width} exceeds {limit}")
        raise ScaleError(
            400, f"new_data_parallel_size {width} is below the minimum of {self._min_width}"
        )

    def _raise_flag(self, whether: bool, phase: str) -> None:
        self.phase = phase
        if whether:
            self.flag = True
            self.world.open = self.world.resize.new == "queue" and phase == "committing"

    def _over(self, phase: str) -> None:
        self.phase = phase
        self.flag = False
        self.world.open = True


def _with_fault(model: ResizeModel, fault: str) -> ResizeModel:
    none = replace(model, refuse_probability=0.0)
    if fault in ("fail_commit", "wedge"):
        return replace(none, fail_probability=1.0, stuck_probability=0.0)
    if fault == "hang":
        return replace(none, stuck_probability=1.0)
    if fault == "lose_answer":
        return replace(none, fail_probability=0.0, stuck_probability=0.0)
    return none
