"""The decision log of a run: appended to a file that is rotated, here or by other programs.

A full disk loses lines, never the loop: it goes on, counts, and says so once. Opened for each
line, so that a renamed or removed file is followed by a new one.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscaler.clock import wall_time
from autoscaler.decisions import Entry, decode, encode
from autoscaler.errors import TraceError
from autoscaler.model import Decision, Observation, SetOutcome
from autoscaler.redaction import Redaction

_TORN = '{"schema":"autoscaler.decision/'
"""How every line begins: what does so and is not JSON was cut off, by a crash or a full disk."""


class DecisionFile:
    """The file itself, shared by all loops.

    Args:
        path: file, made when the first line comes; its folder has to exist.
        on_state: called when writing begins to fail, with what went wrong, and with None when
            it works again.
        max_bytes: a file that would get longer becomes ``PATH.1``, in the place of the one before,
            so that a volume of twice as much never fills up; None: somebody else rotates.

    Attributes:
        max_bytes: may be changed at any time.
    """

    def __init__(
        self, path: Path, on_state: Callable[[str | None], None], max_bytes: int | None = None
    ) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._on_state = on_state
        self._failing = False
        self._lock = threading.Lock()

    def append(self, line: str) -> bool:
        """Write one line at once; whether it is there."""
        problem = None
        with self._lock:
            try:
                self._rotate(len(line.encode()))
                self._write(line.encode())
            except OSError as error:
                problem = f"{self.path}: {error.strerror or error}"
            changed, self._failing = (problem is not None) != self._failing, problem is not None
        if changed:
            self._on_state(problem)
        return problem is None

    def _rotate(self, coming_bytes: int) -> None:
        if self.max_bytes is None or not self.path.exists():
            return
        size = self.path.stat().st_size
        if size and size + coming_bytes >= self.max_bytes:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))

    def _write(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o640)
        try:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            # A line that was cut off must not swallow this one.
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            written = os.write(descriptor, line + b"\n")
            if written < len(line) + 1:
                raise OSError(0, f"only {written} of {len(line) + 1} bytes could be written")
        finally:
            os.close(descriptor)


class FileLog:
    """Writes the ticks of one target; a ``DecisionLog``.

    Args:
        file: where to.
        controller: what a replay needs, see ``Steering.describe``.
        redaction: keeps secrets out of reasons and details.
        on_error: called for each line that is lost.
    """

    def __init__(
        self,
        file: DecisionFile,
        controller: Mapping[str, Any],
        redaction: Redaction,
        on_error: Callable[[], None],
    ) -> None:
        self._file = file
        self._controller = controller
        self._redaction = redaction
        self._on_error = on_error

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],
        shadows: Mapping[str, Decision] | None = None,
    ) -> None:
        """Write one line, or lose it."""
        entry = Entry(decision, obs, outcome, policy_state, self._controller, shadows or {})
        content = self._redaction.value(encode(entry))
        content["time"] = wall_time()
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        if not self._file.append(text):
            self._on_error()


def read(path: Path, on_notice: Callable[[str], None]) -> Iterator[tuple[int, Entry]]:
    """The recorded ticks of a log with their line numbers; lines that were cut off are left out.

    Args:
        path: a decision log, of a run or of a simulation.
        on_notice: told of each line that was cut off.

    Raises:
        TraceError: unreadable, or a line is no decision; names file and line.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if not _cut_off(line):
                        raise TraceError(f"{where}: must be a JSON object; {error}") from error
                    on_notice(f"{where}: cut off, left out")
                    continue
                try:
                    yield number, decode(content)
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                    raise TraceError(f"{where}: must be a decision; {error!r}") from error
    except OSError as error:
        raise TraceError(f"{path}: must be a readable decision log; {error}") from error


def _cut_off(line: str) -> bool:
    begun = line.rstrip("\n").replace(" ", "")
    return begun.startswith(_TORN) or _TORN.startswith(begun)
