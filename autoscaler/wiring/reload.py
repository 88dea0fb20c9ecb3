"""Notices that the configuration, or a file it refers to, has changed, and reads it again.

A file counts as changed by its content: a touched one is not. A change that is unusable is told
once, and the next change is looked out for.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from autoscaler.settings import Settings, SettingsError, load

_Stamp = tuple[int, int, int] | None
"""Modification time, size and inode; None: the file cannot be looked at."""


class Reloader:
    """Reads the settings, and again whenever they have changed.

    Args:
        path: the configuration file.
        environ: the environment; has precedence over the file, also after a change.

    Raises:
        SettingsError: the settings are unusable to begin with.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path, self._environ = path, environ
        self._stamps: dict[Path, _Stamp] = {}
        self._digests: dict[Path, str | None] = {}
        self._others: tuple[Path, ...] = ()
        self._watch((path,))
        self.settings = load(path, environ)
        self._watch(self.settings.files)

    def poll(self) -> Settings | None:
        """The new settings; None: nothing has changed.

        Raises:
            SettingsError: something has changed and is unusable; raised once for each change.
        """
        stamps = {path: _stamp(path) for path in self._stamps}
        if stamps == self._stamps:
            return None
        digests = {path: _digest(path) for path in stamps}
        changed = digests != self._digests
        self._stamps, self._digests = stamps, digests
        if not changed:
            return None
        try:
            settings = load(self._path, self._environ)
        except SettingsError as error:
            self._watch(error.files)  # the fault may be in a file that was not looked at before
            raise
        self.settings = settings
        self._watch_only()
        return settings

    def watch_also(self, files: tuple[Path, ...]) -> None:
        """Look at these besides those of the settings: a change of one counts as a change."""
        self._others = files
        self._watch_only()

    def _watch_only(self) -> None:
        files = self.settings.files + self._others
        for path in set(self._stamps) - set(files):
            del self._stamps[path], self._digests[path]
        self._watch(files)

    def _watch(self, files: tuple[Path, ...]) -> None:
        """Look at these too; what was looked at before it was read keeps its stamp."""
        for path in files:
            if path not in self._stamps:
                self._stamps[path] = _stamp(path)
                self._digests[path] = _digest(path)


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
