"""The control loop: observe, step, act, record, sleep to the next deadline.

The very same object runs live and in simulation; only clock, source, target and log differ. One
thread, no asyncio. It alone catches ``AutoscalerError``; anything else is a defect and ends it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields

from autoscaler.controller import Controller
from autoscaler.errors import (
    AutoscalerError,
    TargetConflict,
    TargetForbidden,
    TargetRefused,
)
from autoscaler.keeping import Keeper
from autoscaler.model import (
    Decision,
    Metrics,
    Observation,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
    Slo,
    Stage,
)
from autoscaler.parameters import require_number
from autoscaler.ports import Clock, DecisionLog, MetricsSource, Target

_RESULTS: tuple[tuple[type[AutoscalerError], SetResult], ...] = (
    (TargetConflict, SetResult.CONFLICT),
    (TargetRefused, SetResult.REFUSED),
    (TargetForbidden, SetResult.FORBIDDEN),
)


class ControlLoop:
    """Steers one target.

    Args:
        source: what the engine shows of itself.
        target: the deployment.
        controller: decides; one of its own for each loop.
        clock: real or simulated.
        log: where each tick is recorded, once.
        slo: the objective.
        tick_s: seconds between two ticks, > 0.
        shadows: controllers by name that decide on the same observations and are never written.
        keeper: keeps what the controller remembers; None: that ends with the process.

    Attributes:
        ticks: ticks done.
        missed_ticks: deadlines that had passed before their tick could start; they are skipped.
        lateness_s: how late the last tick started.
        errors: number of errors by (port, class of error); ports are source, target, write,
            memory, and fight for fights with another writer that have begun.
        readable: whether the last tick could read source and target.
        last_tick_at_s: when the last tick began, loop's clock; None: none yet.
        observation, decision, outcome: of the last tick; None: none (yet), see ``DecisionLog``.
        shadow_decisions: what each shadow decided in the last tick; empty if it could not observe.
    """

    def __init__(
        self,
        source: MetricsSource,
        target: Target,
        controller: Controller,
        clock: Clock,
        log: DecisionLog,
        slo: Slo,
        tick_s: float = 5.0,
        shadows: Mapping[str, Controller] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        require_number("tick_s", tick_s, 0, above=True)
        self.source = source
        self.target = target
        self.controller = controller
        self.clock = clock
        self.log = log
        self.slo = slo
        self.tick_s = tick_s
        self.shadows: Mapping[str, Controller] = shadows or {}
        self.keeper = keeper
        self.ticks = 0
        self.missed_ticks = 0
        self.lateness_s = 0.0
        self.errors: Counter[tuple[str, str]] = Counter()
        self.readable = False
        self.last_tick_at_s: float | None = None
        self.observation: Observation | None = None
        self.decision: Decision | None = None
        self.outcome: SetOutcome | None = None
        self.shadow_decisions: Mapping[str, Decision] = {}
        self._stopped = False
        self._unread = "", ""

    @property
    def ready(self) -> bool:
        """Whether the loop can read, sees the engine, and can write as far as it has tried."""
        return self.readable and not self.sees_nothing and self.controller.ready

    @property
    def sees_nothing(self) -> bool:
        """Whether the source answers, and not for this engine: no such series, ever yet.

        A model name or a label that selects nothing would otherwise hold for ever and look well.
        """
        if self.observation is None:
            return False
        metrics = self.observation.metrics
        needed = metrics.queue_depth.status, metrics.ttft_p95_s.status
        return set(needed) == {SignalStatus.NO_SERIES}

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped

    def stop(self) -> None:
        """End ``run`` after the present tick. Safe in a signal handler.

        A sleeping SystemClock has to be stopped as well, to wake it.
        """
        self._stopped = True

    def run(
        self, until_s: float | None = None, after_tick: Callable[[], None] | None = None
    ) -> None:
        """Tick at a fixed rate until stopped.

        Deadlines are multiples of ``tick_s`` from the start, so that a slow tick shifts no later
        one; those that a slow tick ran over are skipped and counted.

        Args:
            until_s: instant on the loop's clock at and after which no tick starts; None: never.
            after_tick: called after each tick, e.g. to export telemetry or check a leadership.
        """
        clock, tick_s = self.clock, self.tick_s
        start_s = clock.now_s()
        deadline = 0  # number of the next deadline
        while not self._stopped:
            due_s = start_s + deadline * tick_s
            if until_s is not None and due_s >= until_s:
                return
            now_s = clock.now_s()
            if now_s < due_s:
                clock.sleep(due_s - now_s)
                now_s = clock.now_s()
                # Waking early means that the clock was stopped: sleeping on would never return.
                if self.stopped or now_s < due_s - 0.1 * tick_s:
                    return
            self.lateness_s = max(now_s - due_s, 0.0)
            self.tick()
            if after_tick is not None:
                after_tick()
            deadline += 1
            behind = int((clock.now_s() - start_s) / tick_s + 1e-9)
            if behind > deadline:
                self.missed_ticks += behind - deadline
                deadline = behind

    def tick(self) -> Decision:
        """One tick; returns what was decided."""
        number = self.ticks
        now_s = self.clock.now_s()
        obs = self._observe(number, now_s)
        outcome = None
        shadowed: dict[str, Decision] = {}
        if obs is None:
            decision = self._unreadable(number, now_s)
        else:
            decision = self.controller.step(obs)
            if decision.width is not None and decision.expected is not None:
                outcome = self._write(decision, decision.width, decision.expected)
                self.controller.on_outcome(decision, outcome, obs)
            if self.shadows:  # after the write, which they are not to delay
                shadowed = {name: shadow.step(obs) for name, shadow in self.shadows.items()}
            resize = self.controller.resize
            if resize is not None:
                can, memory = obs.capabilities, obs.memory
                obs = Observation(
                    number, now_s, obs.metrics, obs.width, can, obs.slo, resize, memory
                )
            if self.keeper is not None:
                self.keeper.keep(self.controller, now_s)
        self._count_others()
        state = self.controller.policy.state()
        if shadowed:
            self.log.record(decision, obs, outcome, state, shadowed)
        else:
            self.log.record(decision, obs, outcome, state)
        self.observation, self.decision, self.outcome = obs, decision, outcome
        self.shadow_decisions = shadowed
        self.ticks = number + 1
        self.last_tick_at_s = now_s
        return decision

    def _observe(self, number: int, now_s: float) -> Observation | None:
        """What can be read; None: not even the width."""
        readable = True
        try:
            metrics = self.source.read()
        except AutoscalerError as error:
            readable = False
            self._count("source", error)
            metrics = unavailable(self.slo.window_s, str(error))
        try:
            width = self.target.read()
            capabilities = self.target.capabilities()
        except AutoscalerError as error:
            self._count("target", error)
            self._unread = "target_unreadable", str(error)
            return None
        memory = None
        if self.keeper is not None and not self.keeper.recalled:
            try:
                memory = self.keeper.recall(now_s)
            except AutoscalerError as error:
                # A resize that an earlier process asked for must not be asked for again.
                self._count("memory", error)
                self._unread = "memory_unreadable", str(error)
                return None
        self.readable = readable  # not before: a slow read after a failed one is no success yet
        slo = self.slo
        return Observation(number, now_s, metrics, width, capabilities, slo, memory=memory)

    def _unreadable(self, number: int, now_s: float) -> Decision:
        code, reason = self._unread
        return Decision(
            number, now_s, None, None, code, reason, (Stage("loop", None, code, reason),)
        )

    def _write(self, decision: Decision, width: int, expected: int) -> SetOutcome:
        """Ask for a width; whatever is not plainly answered may have happened."""
        try:
            if self.keeper is None:
                outcome = self.target.set_width(width, expected)
            else:
                outcome = self.keeper.set_width(
                    self.target, decision, width, expected, self.controller
                )
        except AutoscalerError as error:
            self._count("write", error)
            for kind, result in _RESULTS:
                if isinstance(error, kind):
                    return SetOutcome(result, detail=str(error))
            return SetOutcome(SetResult.AMBIGUOUS, detail=str(error))
        if outcome.result not in (SetResult.APPLIED, SetResult.SKIPPED):
            self.errors["write", outcome.result.value] += 1
        return outcome

    def _count_others(self) -> None:
        """Errors that others count are shown here too."""
        if self.controller.fights:
            self.errors["fight", "ForeignWriter"] = self.controller.fights
        if self.keeper is not None:
            for kind, count in self.keeper.errors.items():
                self.errors["memory", kind] += count
            self.keeper.errors.clear()

    def _count(self, port: str, error: AutoscalerError) -> None:
        self.readable = False
        self.errors[port, type(error).__name__] += 1


def unavailable(window_s: float, detail: str) -> Metrics:
    """Metrics of a tick in which the source gave no answer: every signal stale, none a number."""
    signal = Signal(None, SignalStatus.STALE, detail=detail)
    return Metrics(window_s, **dict.fromkeys(_SIGNALS, signal))


_SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")
