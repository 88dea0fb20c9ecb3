"""One target's live loop in a thread of its own, so that a slow target never delays another.

Builds source, target and controllers from settings, takes changed settings up between two ticks,
and ends at once when told to.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autoscaler.clock import wall_s
from autoscaler.controller import Controller
from autoscaler.journal import Journal, Logger
from autoscaler.keeping import Keeper
from autoscaler.leadership.fence import Permission, fenced
from autoscaler.loop import ControlLoop
from autoscaler.model import Decision, Observation, SetOutcome
from autoscaler.ports import Clock, DecisionLog, MetricsSource, SourceContext, Target
from autoscaler.redaction import Redaction
from autoscaler.settings import TargetSettings
from autoscaler.targets.dry_run import DryRun
from autoscaler.telemetry import Telemetry
from autoscaler.wiring.decision_file import DecisionFile, FileLog
from autoscaler.wiring.memories import Memories
from autoscaler.wiring.oddities import STALLED_TICKS, Oddities

if TYPE_CHECKING:
    from autoscaler.wiring.event_log import EventLog


class _Wakeable:
    """A clock whose sleepers can be woken again and again; its time is the one it is given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wake = threading.Event()

    def now_s(self) -> float:
        return self._clock.now_s()

    def sleep(self, duration_s: float) -> None:
        if duration_s > 0:
            self.wake.wait(duration_s)


class _Several:
    """Records each tick in several places."""

    def __init__(self, logs: list[DecisionLog]) -> None:
        self._logs = logs

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, object],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        for log in self._logs:
            log.record(decision, obs, outcome, policy_state, shadows)


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where ticks are shown.

    Args:
        telemetry: the series.
        logger: the run's log.
        file: the decision log; None: none is written.
        events: whether Kubernetes Events tell of it, where the target is an object.
        on_tick: called after each tick with the target's name and its loop; None: nobody asks.
        memories: where memories are kept; None: they end with the process.
    """

    telemetry: Telemetry
    logger: Logger
    file: DecisionFile | None = None
    events: bool = False
    on_tick: Callable[[str, ControlLoop], None] | None = None
    memories: Memories | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What a worker is to go by from its next tick on; source and target None: as before."""

    settings: TargetSettings
    redaction: Redaction
    source: MetricsSource | None
    target: Target | None


class Worker:
    """One target's loop in a thread of its own.

    Args:
        settings: the target's.
        redaction: of the whole configuration.
        clock: shared by all loops.
        outlets: where ticks are shown.
        dry_run: read the target and never write it, whatever the settings say.
        permission: asked before each write; None: none is needed.

    Raises:
        ConfigError: source, target or policy cannot be built.
    """

    def __init__(
        self,
        settings: TargetSettings,
        redaction: Redaction,
        clock: Clock,
        outlets: Outlets,
        *,
        dry_run: bool = False,
        permission: Permission | None = None,
    ) -> None:
        self._epoch_s = wall_s() - clock.now_s()
        self._dry_run = dry_run
        settings = self._dated(settings)
        self.settings = settings
        self.failure: BaseException | None = None
        self._outlets = outlets
        self._permission = permission
        self._clock = _Wakeable(clock)
        self._lock = threading.Lock()
        self._change: Change | None = None
        self._stopping = False
        self._effective: int | None = None
        self._applied = settings
        self._started_at_s = clock.now_s()
        self._events: EventLog | None = None
        logger = outlets.logger.bind(target=settings.name)
        self._journal = Journal(logger, lambda: self.loop.errors)
        self._oddities = Oddities(settings.name, logger, outlets.telemetry, self._epoch_s)
        self.loop = self._new_loop(
            settings, redaction, self._source(settings), self._target(settings)
        )
        self._thread = threading.Thread(target=self._work, name=settings.name, daemon=True)

    def start(self) -> None:
        """Tick from now on."""
        self._started_at_s = self._clock.now_s()
        self._outlets.telemetry.begin(self.settings.name, self.loop.tick_s)
        self._thread.start()

    def tick(self) -> None:
        """One tick, in the caller's thread; for a worker that was not started."""
        self.loop.tick()
        self._after_tick()

    def prepare(self, settings: TargetSettings, redaction: Redaction) -> Change:
        """Build what other settings need, and change nothing yet.

        Whatever has not changed stays: with the same target what was learnt of it (cool-downs,
        the resize in flight), with the same source its window.

        Raises:
            ConfigError: source or target cannot be built.
        """
        settings = self._dated(settings)
        before = self.settings
        moved = (settings.target, settings.dry_run) != (before.target, before.dry_run)
        resourced = settings.source != before.source or settings.steering.slo != before.steering.slo
        return Change(
            settings,
            redaction,
            self._source(settings) if moved or resourced else None,
            self._target(settings) if moved else None,
        )

    def _dated(self, settings: TargetSettings) -> TargetSettings:
        """The same settings with the wall clock that policies with a calendar need.

        And with what only a worker knows: whose widths are never written.
        """
        epoch_s, watches = self._epoch_s, self._writes_nothing(settings)
        shadows = (replace(s, epoch_s=epoch_s, watches=True) for s in settings.shadows)
        return replace(
            settings,
            steering=replace(settings.steering, epoch_s=epoch_s, watches=watches),
            shadows=tuple(shadows),
        )

    def _writes_nothing(self, settings: TargetSettings) -> bool:
        return settings.dry_run or self._dry_run

    def take_up(self, change: Change) -> None:
        """Go by a change, made by ``prepare``, from the next tick on."""
        with self._lock:
            earlier = self._change  # one that was not taken up yet
            if earlier is not None:
                source, target = change.source or earlier.source, change.target or earlier.target
                change = Change(change.settings, change.redaction, source, target)
            self.settings, self._change = change.settings, change
            self._clock.wake.set()

    def stop(self) -> None:
        """End after the present tick, and a sleep at once."""
        with self._lock:
            self._stopping = True
            self.loop.stop()
            self._clock.wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it came."""
        until_s = self._clock.now_s() + timeout_s
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0.0))
        if self._events is not None:
            self._events.close(until_s - self._clock.now_s())
        return not self._thread.is_alive()

    @property
    def stalled(self) -> bool:
        """Whether the last tick is so long ago that the loop has to be taken for stuck."""
        last_s = self.loop.last_tick_at_s
        since_s = self._clock.now_s() - (self._started_at_s if last_s is None else last_s)
        return since_s > STALLED_TICKS * self.loop.tick_s

    def _work(self) -> None:
        try:
            while not self._stopping:
                self._apply_change()
                last_s = self.loop.last_tick_at_s
                if last_s is not None:  # not sooner than the tick that was due anyway
                    self._clock.sleep(last_s + self.loop.tick_s - self._clock.now_s())
                if not self._interrupted():
                    self.loop.run(after_tick=self._after_tick)
        except BaseException as error:  # noqa: BLE001  # the main thread raises it
            self.failure = error

    def _interrupted(self) -> bool:
        return self._stopping or self._change is not None

    def _after_tick(self) -> None:
        obs = self.loop.observation
        self._effective = None if obs is None else obs.width.effective
        self._oddities.look(self.loop)
        if not self._stopping:
            self._outlets.telemetry.observe(self.settings.name, self.loop)
            if self._outlets.on_tick is not None:
                self._outlets.on_tick(self.settings.name, self.loop)

    def _apply_change(self) -> None:
        with self._lock:
            change, self._change = self._change, None
            if not self._stopping:
                self._clock.wake.clear()
        if change is None:
            return
        loop, settings = self.loop, change.settings
        if change.target is not None and change.source is not None:
            # Another deployment: whatever was learnt is of the old one.
            self.loop = self._new_loop(settings, change.redaction, change.source, change.target)
            self._outlets.telemetry.restart(settings.name)
            return
        before = self._applied
        settings.steering.retune(loop.controller, before.steering)
        loop.shadows = _shadows(settings, before, loop.shadows)
        loop.source = change.source or loop.source
        loop.slo, loop.tick_s = settings.steering.slo, settings.steering.tick_s
        loop.log = self._log(settings, change.redaction)
        self._applied = settings

    def _new_loop(
        self,
        settings: TargetSettings,
        redaction: Redaction,
        source: MetricsSource,
        target: Target,
    ) -> ControlLoop:
        self._applied = settings
        if self._events is not None:  # of another deployment
            self._events.close(0.0)
        self._events = self._event_log(settings, redaction, target)
        steering = settings.steering
        writable = target
        if self._permission is not None:
            writable = fenced(target, settings.write_s(steering.tick_s), self._permission)
        return ControlLoop(
            source,
            writable,
            steering.build(),
            self._clock,
            self._log(settings, redaction),
            steering.slo,
            steering.tick_s,
            {shadow.policy.name: shadow.build() for shadow in settings.shadows},
            self._keeper(settings, writable),
        )

    def _keeper(self, settings: TargetSettings, target: Target) -> Keeper | None:
        """What keeps the controller's memory; None: nothing is written, or there is no place."""
        memories = self._outlets.memories
        if self._writes_nothing(settings) or memories is None:
            return None
        keeper = memories.keeper(settings.name, target, self._clock)
        if keeper is None:
            logger = self._outlets.logger.bind(target=settings.name)
            logger.warning("memory_ends_with_the_process", cure="set memory.path")
        return keeper

    def _log(self, settings: TargetSettings, redaction: Redaction) -> DecisionLog:
        logs: list[DecisionLog] = [self._journal]
        file, name = self._outlets.file, settings.name
        if file is not None:
            count = self._outlets.telemetry.count_error
            described = settings.steering.describe(name)
            lost = lambda: count(name, "decisions", "OSError")  # noqa: E731  # one line, one use
            logs.append(FileLog(file, described, redaction, lost))
        if self._events is not None:
            self._events.redaction = redaction
            logs.append(self._events)
        return _Several(logs)

    def _event_log(
        self, settings: TargetSettings, redaction: Redaction, target: Target
    ) -> "EventLog | None":
        """Where Events of the target go; None: it is no object, or nobody wants any."""
        if not self._outlets.events or getattr(target, "reference", None) is None:
            return None
        from autoscaler.wiring.event_log import EventLog  # half a second

        outlets, name = self._outlets, settings.name
        logger = outlets.logger.bind(target=name)
        return EventLog(name, target, redaction, outlets.telemetry, logger)

    def _source(self, settings: TargetSettings) -> MetricsSource:
        context = SourceContext(settings.steering.slo, self._clock, self._engines)
        source: MetricsSource = settings.source.module.build(settings.source.params, context)
        return source

    def _target(self, settings: TargetSettings) -> Target:
        target: Target = settings.target.module.build(settings.target.params)
        return DryRun(target) if self._writes_nothing(settings) else target

    def _engines(self) -> int | None:
        """The effective width as the last tick read it."""
        return self._effective


def _shadows(
    settings: TargetSettings, before: TargetSettings, running: Mapping[str, Controller]
) -> dict[str, Controller]:
    """The shadows that are wanted now; those that ran already keep what they have learnt."""
    known = {shadow.policy.name: shadow for shadow in before.shadows}
    shadows = {}
    for shadow in settings.shadows:
        name = shadow.policy.name
        if name in known:
            shadow.retune(running[name], known[name])
            shadows[name] = running[name]
        else:
            shadows[name] = shadow.build()
    return shadows
