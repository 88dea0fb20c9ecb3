"""Every live loop of one configuration: built, started, changed and ended together.

Handles no signal and reads no file: that is the command's part.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from autoscaler.endpoint import Endpoint
from autoscaler.errors import ConfigError
from autoscaler.journal import Logger
from autoscaler.loop import ControlLoop
from autoscaler.ports import Clock
from autoscaler.settings import Settings, TargetSettings
from autoscaler.telemetry import Telemetry
from autoscaler.wiring.decision_file import DecisionFile
from autoscaler.wiring.memories import Memories
from autoscaler.wiring.oddities import STALLED_TICKS
from autoscaler.wiring.worker import Change, Outlets, Worker

if TYPE_CHECKING:
    from autoscaler.wiring.leading import Leadership

_LAST_WORDS_S = 2.0
"""How long a single tick's Events may take to be sent."""

_SHARED = "telemetry", "decisions", "events", "memory", "leader_election", "log", "objects"
"""What loops that go on have in common, and what therefore stays until a restart."""


class Objects(Protocol):
    """What declares targets beside the configuration file."""

    def start(self) -> None:
        """Watch, and tell what goes on, from now on."""
        ...

    def took_up(self, unbuilt: Mapping[str, str]) -> list[tuple[str, str]]:
        """The settings are gone by, but for those targets; which refusals are new, and why."""
        ...

    def on_tick(self, target: str, loop: ControlLoop) -> None:
        """A tick is over; called in the loop's thread, returns at once, never raises."""
        ...

    def unready(self) -> list[str]:
        """What was never seen yet, one line each."""
        ...

    def flush(self) -> None:
        """Write down what there is to tell, now."""
        ...

    def stop(self) -> None:
        """End; calls under way are not waited for."""
        ...


class LiveRun:
    """Every loop of one configuration, and the page that shows them.

    Args:
        settings: what to go by.
        logger: the run's log.
        clock: shared by all loops.
        dry_run: read targets and never write them.
        objects: declare some of the targets, and are told what became of them; None: there are
            none.

    Attributes:
        refused: of the last settings, the lenient targets that could not be built, and why.

    Raises:
        ConfigError: something cannot be built.
    """

    def __init__(
        self,
        settings: Settings,
        logger: Logger,
        clock: Clock,
        *,
        dry_run: bool = False,
        objects: Objects | None = None,
    ) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self.endpoint: Endpoint | None = None
        self._clock, self._dry_run = clock, dry_run
        self._logger = logger
        path = settings.decisions
        file = None
        if path is not None:
            file = DecisionFile(path, self._on_file_state, settings.decisions_max_bytes)
        self._objects = objects
        on_tick = None if objects is None else objects.on_tick
        memories = Memories(settings.memory, settings.tick_s)
        events = settings.events.enabled
        self._outlets = Outlets(self.telemetry, logger, file, events, on_tick, memories)
        self._ticking = False
        self.leadership = self._leadership(settings)
        self.refused: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.workers = self._new_workers(settings)
        self._tell_objects()

    def once(self) -> bool:
        """One tick a target, in this thread; whether all could be read and nothing failed.

        Nothing ticks while another process leads.
        """
        if self.leadership is not None and not self.leadership.attempt():
            return False
        try:
            for worker in self.workers.values():
                worker.tick()
            for worker in self.workers.values():
                worker.join(_LAST_WORDS_S)
            if self._objects is not None:
                self._objects.flush()
        finally:
            if self.leadership is not None:
                self.leadership.release()
        return all(w.loop.ready and not w.loop.errors for w in self.workers.values())

    def start(self) -> None:
        """Show everything, and begin to tick: at once, or as soon as this process leads.

        Raises:
            ConfigError: the telemetry address cannot be listened on.
        """
        where = self.settings.telemetry
        self.endpoint = Endpoint(
            self.telemetry, self.unhealthy, self.unready, where.host, where.port
        )
        self.endpoint.start()
        if self.leadership is None:
            self._begin()
        else:
            self.leadership.elector.start()

    def follow(self) -> str:
        """Begin to tick once this process leads; to be called every ``poll_s``.

        Returns:
            Why leadership was lost, upon which the process has to end; "": it was not.
        """
        if self.leadership is None:
            return ""
        lost = self.leadership.elector.lost
        self.leadership.tell()
        if not lost and not self._ticking and self.leadership.elector.leads:
            self._begin()
        return lost

    @property
    def poll_s(self) -> float:
        """How often to look after the loops, s."""
        poll_s = min(0.5, self.settings.tick_s / 4)
        if self.leadership is not None:
            timing = self.leadership.timing
            poll_s = min(poll_s, timing.look_period_s, timing.stop_s)
        return poll_s

    def take_up(self, settings: Settings) -> None:
        """Go by changed settings from each loop's next tick on.

        Loops whose settings are the same go on untouched.

        Raises:
            ConfigError: something cannot be built, or cannot change in a running program; then
                everything stays as it was.
        """
        for key in _SHARED:
            if getattr(settings, key) != getattr(self.settings, key):
                raise ConfigError(f"{settings.files[0]}: {key}: must stay as it is until a restart")
        if self._outlets.file is not None:
            self._outlets.file.max_bytes = settings.decisions_max_bytes
        self.refused = {}
        new = self._new_workers(settings)
        changes = self._changes(settings)
        for worker, change in changes:  # all of them, or, with an error above, none
            worker.take_up(change)
        kept = {target.name for target in settings.targets}
        for name in [name for name in self.workers if name not in kept]:
            worker = self.workers.pop(name)
            worker.stop()
            self.telemetry.forget(name)
        self.workers |= new
        if self._ticking:
            for worker in new.values():
                worker.start()
        self.settings = settings
        self._tell_objects()

    def stop(self, timeout_s: float) -> bool:
        """End all loops; whether all had ended within ``timeout_s``.

        A loop that waits for an answer is not waited for: what it has asked for is either done or
        not, and the next start reads which. The lease is freed after them, unless a write is still
        under way. If it was lost, loops have less time: to be gone before it has run out.
        """
        if self.leadership is not None and self.leadership.elector.lost:
            timeout_s = min(timeout_s, self.leadership.timing.stop_s)
        until_s = self._clock.now_s() + timeout_s
        for worker in self.workers.values():
            worker.stop()
        if self._objects is not None:
            self._objects.stop()
        ended = [w.join(until_s - self._clock.now_s()) for w in self.workers.values()]
        if self.leadership is not None:
            self.leadership.release()
        if self.endpoint is not None:
            self.endpoint.stop()
        return all(ended)

    @property
    def failure(self) -> BaseException | None:
        """The defect that ended a loop or the elector; None: none did."""
        if self.leadership is not None and self.leadership.elector.failure is not None:
            return self.leadership.elector.failure
        return next((w.failure for w in self.workers.values() if w.failure is not None), None)

    def unhealthy(self) -> list[str]:
        """Loops that make no progress; those of a standby make none and are well."""
        if not self._ticking:
            return []
        stalled = [name for name, worker in self.workers.copy().items() if worker.stalled]
        return [f"{name}: no tick for more than {STALLED_TICKS} ticks" for name in stalled]

    def unready(self) -> list[str]:
        """Loops that cannot read, see no engine, or may not write as far as they have tried."""
        problems = [] if self.leadership is None else self.leadership.unready()
        if not self._ticking:
            return problems
        problems += [] if self._objects is None else self._objects.unready()
        for name, worker in self.workers.copy().items():
            if worker.stalled or not worker.loop.readable:
                problems.append(f"{name}: cannot read")
            elif worker.loop.sees_nothing:
                problems.append(f"{name}: its source selects no series")
            elif not worker.loop.ready:
                problems.append(f"{name}: may not write")
        return problems

    def _tell_objects(self) -> None:
        if self._objects is not None:
            for key, reason in self._objects.took_up(self.refused):
                self.telemetry.count_error(key, "objects", reason)

    def _new_workers(self, settings: Settings) -> dict[str, Worker]:
        new = {}
        for target in settings.targets:
            if target.name not in self.workers:
                with self._lenient(target, settings):
                    new[target.name] = self._worker(target, settings)
        return new

    def _changes(self, settings: Settings) -> list[tuple[Worker, Change]]:
        changes = []
        for target in settings.targets:
            worker = self.workers.get(target.name)
            if worker is not None and worker.settings != target:
                with self._lenient(target, settings):
                    changes.append((worker, self._change(target, settings)))
        return changes

    @contextmanager
    def _lenient(self, target: TargetSettings, settings: Settings) -> Iterator[None]:
        """Note what cannot be built, and go on, where the settings say so."""
        try:
            yield
        except ConfigError as error:
            if target.name not in settings.lenient:
                raise
            self.refused[target.name] = str(error)

    def _leadership(self, settings: Settings) -> "Leadership | None":
        if not settings.leader_election.enabled:
            return None
        self.telemetry.set_leader(False)
        if self._dry_run:  # never writes, and must not keep the lease from who does
            return None
        # The Kubernetes client behind it takes longer to load than all the rest.
        from autoscaler.wiring.leading import Leadership

        return Leadership(settings.leader_election, self._clock, self._logger, self.telemetry)

    def _begin(self) -> None:
        self._ticking = True
        for worker in self.workers.values():
            worker.start()
        if self._objects is not None:
            self._objects.start()

    def _worker(self, target: TargetSettings, settings: Settings) -> Worker:
        permission = None if self.leadership is None else self.leadership.elector.writing
        try:
            return Worker(
                target,
                settings.redaction,
                self._clock,
                self._outlets,
                dry_run=self._dry_run,
                permission=permission,
            )
        except ConfigError as error:
            raise _named(settings, target, error) from error

    def _change(self, target: TargetSettings, settings: Settings) -> Change:
        try:
            return self.workers[target.name].prepare(target, settings.redaction)
        except ConfigError as error:
            raise _named(settings, target, error) from error

    def _on_file_state(self, problem: str | None) -> None:
        if problem is None:
            self._logger.warning("decisions_written_again")
        else:
            self._logger.error("decisions_lost", problem=problem)


def _named(settings: Settings, target: TargetSettings, error: ConfigError) -> ConfigError:
    text = settings.redaction.text(str(error))
    return ConfigError(f"{settings.files[0]}: target {target.name}: {text}")
