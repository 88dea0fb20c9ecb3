"""``autoscaler run``: the live loops, their signals, their configuration and their log.

SIGTERM and SIGINT end the program within a second, or two if a lease has to be given back to an API
server that does not answer; a loop that waits for an answer is not waited for. A changed
configuration is taken up, or refused loudly and the old one kept.
"""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Annotated

import typer

from autoscaler import __version__, journal
from autoscaler.clock import SystemClock
from autoscaler.errors import ConfigError, TargetError
from autoscaler.journal import Logger
from autoscaler.settings import Settings, SettingsError
from autoscaler.wiring.declared import Declared
from autoscaler.wiring.live import LiveRun
from autoscaler.wiring.reload import Reloader

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END_S = 0.7
"""How long loops may take to end; the rest of the second is the interpreter's."""


def run(
    config: Annotated[
        Path, typer.Option(help="YAML file; AUTOSCALER_... in the environment has precedence.")
    ],
    once: Annotated[bool, typer.Option("--once", help="One tick a target, then exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Decide, record and export; never write.")
    ] = False,
) -> int:
    """Steer real deployments until told to stop.

    Example: autoscaler run --config autoscaler.yaml --dry-run
    """
    return _run(config, once=once, dry_run=dry_run)


def _run(config: Path, *, once: bool, dry_run: bool) -> int:
    """Run the command.

    Args:
        config: the configuration file.
        once: one tick a target, then the end.
        dry_run: decide, record and export, never write.

    Returns:
        The exit code: 0 ended by a signal, or a good ``once``; 1 otherwise.

    Raises:
        ConfigError: unusable configuration.
    """
    source: Reloader | Declared
    source = reloader = Reloader(config, os.environ)
    settings = reloader.settings
    form, level = settings.log.format, settings.log.level
    logger = journal.configure(form, level, lambda: source.settings.redaction)
    for warning in settings.warnings:
        logger.warning("config_warning", problem=warning)
    clock = SystemClock()
    if settings.objects.enabled:
        source = Declared(reloader, logger, clock, writes=not dry_run)
        if once and not _listed(source, logger):
            return 1
        live = LiveRun(source.settings, logger, clock, dry_run=dry_run, objects=source)
    else:
        live = LiveRun(settings, logger, clock, dry_run=dry_run)
    if once:
        try:
            return 0 if live.once() else 1
        except Exception as error:  # noqa: BLE001  # told without secrets, and then the end
            return _defect(logger, error)
    # Blocked here and in every thread that is started from now on, and waited for below: a handler
    # could find the main thread holding the very lock that it needs.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # Threads from before, such as those of numpy's linear algebra, do not block them: a signal that
    # one of those takes would end the program on the spot, were it not noted here.
    noted: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda taken, _: noted.append(taken))
    live.start()
    _say_started(logger, live, dry_run)
    main = threading.current_thread()
    code = _supervise(live, source, logger, noted)
    ended = live.stop(_END_S)
    if not ended or any(not t.daemon for t in threading.enumerate() if t is not main):
        # Somebody's answer is still waited for, and the interpreter joins such threads at exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _listed(source: Declared, logger: Logger) -> bool:
    """Have the objects' targets in the settings; whether they could be read."""
    try:
        source.look()
    except TargetError as error:
        logger.error("objects_out_of_sight", problem=str(error))  # noqa: TRY400  # it says all
        return False
    source.poll()
    return True


def _say_started(logger: Logger, live: LiveRun, dry_run: bool) -> None:
    settings, endpoint = live.settings, live.endpoint
    logger.info(
        "started",
        version=__version__,
        targets=list(live.workers),
        dry_run=dry_run,
        telemetry=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        config=settings.effective,
    )


def _supervise(live: LiveRun, source: Reloader | Declared, logger: Logger, noted: list[int]) -> int:
    """Look after the loops until a signal, waited for or noted, a loss or a defect; the code."""
    while True:
        received = signal.sigtimedwait(_SIGNALS, live.poll_s)
        # A stop and its end interrupt the wait too, and what Python gives then is no signal at all.
        if received is not None and received.si_signo in _SIGNALS:
            noted.append(received.si_signo)
        if noted:
            logger.info("stopping", signal=signal.Signals(noted[0]).name)
            return 0
        failure = live.failure
        if failure is not None:
            return _defect(logger, failure)
        lost = live.follow()
        if lost:
            # Somebody else may lead by now, or will: starting anew as a standby is the one way of
            # knowing that nothing of this leadership is left.
            logger.error("leadership_lost", reason=lost)
            return 1
        _reload(live, source, logger)


def _defect(logger: Logger, error: BaseException) -> int:
    """Tell of a bug; the exit code."""
    lines = traceback.format_exception(error)  # without locals, which may be secrets
    logger.critical("defect", traceback="".join(lines))
    return 1


def _reload(live: LiveRun, source: Reloader | Declared, logger: Logger) -> None:
    before = live.settings
    try:
        settings = source.poll()
        if settings is None:
            return
        live.take_up(settings)
    except ConfigError as error:
        problems = error.problems if isinstance(error, SettingsError) else [str(error)]
        logger.error("config_refused", problems=problems, kept="the one before")  # noqa: TRY400  # the problems say it all
        live.telemetry.count_error("", "config", type(error).__name__)
        live.telemetry.set_config_current(False)
        return
    live.telemetry.set_config_current(True)
    for warning in settings.warnings:
        logger.warning("config_warning", problem=warning)
    logger.info("config_taken_up", changed=_changed(before, settings), config=settings.effective)


def _changed(before: Settings, after: Settings) -> list[str]:
    """Names of the targets whose settings are new, other or gone."""
    old = {target.name: target for target in before.targets}
    new = {target.name: target for target in after.targets}
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
