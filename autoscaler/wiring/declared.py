"""The targets of the configuration file and those of objects, as one configuration.

Asked as often as a reload is (``poll``); what it answers is taken up the same way. The objects are
watched and their status is written in threads of their own, with connections of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autoscaler.clock import wall_s
from autoscaler.cluster.connection import Access, Connection, home_namespace
from autoscaler.errors import TargetError
from autoscaler.journal import Logger
from autoscaler.loop import ControlLoop
from autoscaler.objects import conditions
from autoscaler.objects.admission import INVALID, Admission, Admitted, Refused, admit
from autoscaler.objects.conditions import Report
from autoscaler.objects.directory import Directory
from autoscaler.objects.reporter import Reporter
from autoscaler.objects.resource import WidthAutoscaler
from autoscaler.objects.spec import Terms
from autoscaler.objects.watching import Watcher
from autoscaler.ports import Clock
from autoscaler.settings import Settings
from autoscaler.settings.target import FileSet
from autoscaler.wiring.reload import Reloader


class Declared:
    """File and objects.

    Args:
        reloader: of the file; its settings say where the objects are.
        logger: told of refusals and outages, once each.
        clock: monotonic.
        writes: whether statuses are written; False: a dry run.

    Attributes:
        settings: of everything, as it was returned last.

    Raises:
        ConfigError: the kubeconfig is unusable.
    """

    def __init__(self, reloader: Reloader, logger: Logger, clock: Clock, *, writes: bool) -> None:
        self.settings = reloader.settings
        self._reloader, self._logger = reloader, logger
        section = reloader.settings.objects
        access = Access(section.kubeconfig, section.context, section.timeout_s)
        namespaces = section.namespaces or [home_namespace(access)]
        self._directory = Directory(namespaces)
        self._connections = [Connection(access) for _ in [*namespaces, ""]]
        self._watchers = [
            Watcher(namespace, api, self._directory, clock, self._on_watch)
            for namespace, api in zip(namespaces, self._connections, strict=False)
        ]
        self._reporter = (
            Reporter(self._connections[-1], self._directory, clock, wall_s, self._on_status)
            if writes
            else None
        )
        self._edition = 0
        self._admitted: dict[str, Admitted] = {}
        self._admission = Admission({}, {})
        self._seen: dict[str, WidthAutoscaler] = {}
        self._told: dict[str, Refused] = {}

    def look(self) -> None:
        """Look at every namespace once.

        Raises:
            TargetError: one of them cannot be listed.
        """
        for watcher in self._watchers:
            watcher.look()

    def start(self) -> None:
        """Watch, and write statuses, from now on."""
        for watcher in self._watchers:
            watcher.start()
        if self._reporter is not None:
            self._reporter.start()

    def stop(self) -> None:
        """End; calls under way are not waited for."""
        for watcher in self._watchers:
            watcher.stop()
        if self._reporter is not None:
            self._reporter.stop()

    def poll(self) -> Settings | None:
        """The settings, if the file, an object, or a file that one names has changed; else None.

        Raises:
            SettingsError: the file has changed and is unusable; raised once for each change.
        """
        changed = self._reloader.poll()
        edition = self._directory.edition
        if changed is None and edition == self._edition:
            return None
        self._edition = edition
        self._seen = self._directory.all()
        file = self._reloader.settings
        files = FileSet(file.files[0])
        credentials = file.objects.credentials
        terms = Terms(
            file.tick_s,
            files,
            file.objects.kubeconfig,
            file.objects.context,
            None if credentials is None else files.beside(credentials).absolute(),
        )
        self._admission = admit(file.targets, self._seen, self._admitted, terms)
        self._reloader.watch_also(_others(file, files))
        targets = tuple(one.settings for one in self._admission.admitted.values())
        self.settings = replace(
            file,
            targets=file.targets + targets,
            redaction=file.redaction.also({k: one.spec for k, one in self._seen.items()}),
            warnings=file.warnings + self._admission.warnings,
            lenient=frozenset(self._admission.admitted),
        )
        return self.settings

    def took_up(self, unbuilt: Mapping[str, str]) -> list[tuple[str, str]]:
        """The settings that ``poll`` returned are gone by.

        Args:
            unbuilt: of the objects' targets those that could not be built, and why.

        Returns:
            Object and code of every refusal that was not told of before.
        """
        admitted, refused = dict(self._admission.admitted), dict(self._admission.refused)
        for key, problem in unbuilt.items():
            refused[key] = Refused(admitted[key].generation, INVALID, problem)
            earlier = self._admitted.get(key)
            if earlier is None:
                del admitted[key]
            else:
                admitted[key] = earlier
        gone = self._admitted.keys() - admitted.keys()
        self._admitted = admitted
        self._report(refused, gone)
        new = [key for key, one in refused.items() if self._told.get(key) != one]
        for key in new:
            one = refused[key]
            kept = "the one before" if key in admitted else "nothing"
            self._logger.error(
                "object_refused", object=key, code=one.code, problem=one.message, kept=kept
            )
        self._told = refused
        return [(key, refused[key].code) for key in new]

    def on_tick(self, target: str, loop: ControlLoop) -> None:
        """A tick of any target is over; called in the loop's thread."""
        one = self._admitted.get(target)
        if self._reporter is None or one is None:
            return
        tick = conditions.after(loop)
        if tick is not None:
            self._reporter.ticked(target, self._clean(conditions.report(tick, one.generation)))

    def flush(self) -> None:
        """Write every status that is due, in the caller's thread."""
        if self._reporter is not None:
            self._reporter.write_due()

    def unready(self) -> list[str]:
        """Namespaces whose objects were never seen; one that was seen may be out of sight."""
        return [f"objects in {name}: not listed yet" for name in self._directory.unlisted]

    def _report(self, refused: dict[str, Refused], gone: set[str]) -> None:
        reporter = self._reporter
        if reporter is None:
            return
        for key in gone:
            reporter.forget(key)
        for key, one in refused.items():
            refusal = conditions.refusal(one.generation, one.code, one.message)
            reporter.refused(key, self._clean(refusal))
        for key in self._told.keys() - refused.keys():
            reporter.refused(key, None)

    def _clean(self, report: Report) -> Report:
        """Without secrets: more people may read an object than the log."""
        clean = self.settings.redaction.text
        said = tuple(replace(c, message=clean(c.message)) for c in report.conditions)
        return replace(report, conditions=said, reason=clean(report.reason))

    def _on_watch(self, namespace: str, error: TargetError | None) -> None:
        if error is None:
            self._logger.warning("objects_seen_again", namespace=namespace)
            return
        self._logger.error("objects_out_of_sight", namespace=namespace, problem=str(error))

    def _on_status(self, error: TargetError | None) -> None:
        if error is None:
            self._logger.warning("statuses_written_again")
            return
        self._logger.error("statuses_not_written", problem=str(error))


def _others(file: Settings, files: FileSet) -> tuple[Path, ...]:
    return tuple(path for path in files.read if path not in file.files)
