"""Every live loop of one configuration: built, started, changed and ended together.

Handles no signal and reads no file: that is the command's part.
"""

from autoscaler.endpoint import Endpoint
from autoscaler.errors import ConfigError
from autoscaler.journal import Logger
from autoscaler.ports import Clock
from autoscaler.settings import Settings, TargetSettings
from autoscaler.telemetry import Telemetry
from autoscaler.wiring.decision_file import DecisionFile
from autoscaler.wiring.worker import STALLED_TICKS, Change, Outlets, Worker

_LAST_WORDS_S = 2.0
"""How long a single tick's Events may take to be sent."""


class LiveRun:
    """Every loop of one configuration, and the page that shows them.

    Args:
        settings: what to go by.
        logger: the run's log.
        clock: shared by all loops.
        dry_run: read targets and never write them.

    Raises:
        ConfigError: something cannot be built.
    """

    def __init__(
        self, settings: Settings, logger: Logger, clock: Clock, *, dry_run: bool = False
    ) -> None:
        self.settings = settings
        self.telemetry = Telemetry()
        self.endpoint: Endpoint | None = None
        self._clock, self._dry_run = clock, dry_run
        self._logger = logger
        path = settings.decisions
        file = None if path is None else DecisionFile(path, self._on_file_state)
        self._outlets = Outlets(self.telemetry, logger, file, settings.events.enabled)
        self.workers = {target.name: self._worker(target, settings) for target in settings.targets}

    def once(self) -> bool:
        """One tick a target, in this thread; whether all could be read and nothing failed."""
        for worker in self.workers.values():
            worker.tick()
        for worker in self.workers.values():
            worker.join(_LAST_WORDS_S)
        return all(w.loop.ready and not w.loop.errors for w in self.workers.values())

    def start(self) -> None:
        """Begin to tick and to show it.

        Raises:
            ConfigError: the telemetry address cannot be listened on.
        """
        where = self.settings.telemetry
        self.endpoint = Endpoint(
            self.telemetry, self.unhealthy, self.unready, where.host, where.port
        )
        self.endpoint.start()
        for worker in self.workers.values():
            worker.start()

    def take_up(self, settings: Settings) -> None:
        """Go by changed settings from each loop's next tick on.

        Loops whose settings are the same go on untouched.

        Raises:
            ConfigError: something cannot be built, or cannot change in a running program; then
                everything stays as it was.
        """
        for key in ("telemetry", "decisions", "events", "log"):  # shared by the loops that go on
            if getattr(settings, key) != getattr(self.settings, key):
                raise ConfigError(f"{settings.files[0]}: {key}: must stay as it is until a restart")
        new = {
            target.name: self._worker(target, settings)
            for target in settings.targets
            if target.name not in self.workers
        }
        changes = [
            (self.workers[target.name], self._change(target, settings))
            for target in settings.targets
            if target.name in self.workers and self.workers[target.name].settings != target
        ]
        for worker, change in changes:  # all of them, or, with an error above, none
            worker.take_up(change)
        kept = {target.name for target in settings.targets}
        for name in [name for name in self.workers if name not in kept]:
            worker = self.workers.pop(name)
            worker.stop()
            self.telemetry.forget(name)
        self.workers |= new
        for worker in new.values():
            worker.start()
        self.settings = settings

    def stop(self, timeout_s: float) -> bool:
        """End all loops; whether all had ended within ``timeout_s``.

        A loop that waits for an answer is not waited for: what it has asked for is either done or
        not, and the next start reads which.
        """
        until_s = self._clock.now_s() + timeout_s
        for worker in self.workers.values():
            worker.stop()
        ended = [w.join(until_s - self._clock.now_s()) for w in self.workers.values()]
        if self.endpoint is not None:
            self.endpoint.stop()
        return all(ended)

    @property
    def failure(self) -> BaseException | None:
        """The defect that ended a loop; None: none did."""
        return next((w.failure for w in self.workers.values() if w.failure is not None), None)

    def unhealthy(self) -> list[str]:
        """Loops that make no progress."""
        stalled = [name for name, worker in self.workers.copy().items() if worker.stalled]
        return [f"{name}: no tick for more than {STALLED_TICKS} ticks" for name in stalled]

    def unready(self) -> list[str]:
        """Loops that cannot read, or write as far as they have tried."""
        problems = []
        for name, worker in self.workers.copy().items():
            if worker.stalled or not worker.loop.readable:
                problems.append(f"{name}: cannot read")
            elif not worker.loop.ready:
                problems.append(f"{name}: may not write")
        return problems

    def _worker(self, target: TargetSettings, settings: Settings) -> Worker:
        try:
            return Worker(
                target, settings.redaction, self._clock, self._outlets, dry_run=self._dry_run
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
