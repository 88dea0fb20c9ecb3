"""Many independent simulations: all cores or a cluster, in order, resumed where they stopped.

The results are those of one process, however many there are: every item carries its own seed.
"""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autoscaler.errors import ConfigError

SCHEMA = "autoscaler.sweep/v1"

Item = TypeVar("Item")

_REACH_S = 15.0
"""How long a cluster may take to answer, and to have a worker."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Who computes.

    Args:
        jobs: processes on this machine, >= 1; None: one a core.
        cluster: address of a Dask scheduler (``tcp://host:8786``), whose workers have this package
            installed; ``jobs`` then says nothing. None: this machine.
    """

    jobs: int | None = None
    cluster: str | None = None


class Journal:
    """What is computed already, so that an interrupted sweep goes on where it stopped.

    One JSON line a result, written as it comes; a line that was cut off is computed again.

    Args:
        path: the file.
        of: whatever the results depend on, JSON-ready: another sweep's file is refused.
        resume: go on with an existing file; False: one that exists is refused.

    Raises:
        ConfigError: the file exists and ``resume`` is False, belongs to another sweep, or cannot
            be written.
    """

    def __init__(self, path: Path, of: Any, *, resume: bool) -> None:
        self.path = path
        self._known: dict[str, Any] = {}
        header = json.dumps({"schema": SCHEMA, "of": of}, sort_keys=True)
        if path.exists() and not resume:
            raise ConfigError(f"{path}: is of an interrupted run: must be resumed or removed")
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            if lines and lines[0] != header:
                raise ConfigError(f"{path}: is of another run: must be of this one, or be removed")
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: must be a writable file; {error.strerror}") from error
        self._write(header)
        for line in lines[1:]:
            try:
                key, result = json.loads(line)
            except ValueError:  # cut off when it was interrupted
                continue
            self.add(key, result)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def add(self, key: str, result: Any) -> None:
        """Keep a result."""
        self._known[key] = result
        self._write(json.dumps([key, result], allow_nan=False))

    def close(self, *, remove: bool) -> None:
        """Done with it; ``remove``: there is nothing left to resume."""
        self._file.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()


def each(
    function: Callable[[Item], Any],
    items: Sequence[Item],
    workers: Workers,
    *,
    keys: Sequence[str] = (),
    journal: Journal | None = None,
) -> Iterator[Any]:
    """``function(item)`` of every item, in the items' order, as they come.

    Args:
        function: importable, its results JSON-ready where there is a journal.
        items: what it is called with; sent to the workers whole.
        workers: who computes.
        keys: the items' names in the journal, one each.
        journal: what is known is taken from it, what is new is added; None: nothing is kept.

    Raises:
        ConfigError: the cluster cannot be reached.
        AutoscalerError: as ``function`` raises it.
    """
    if journal is None:
        yield from _computed(function, items, workers)
        return
    new = {key: item for key, item in zip(keys, items, strict=True) if key not in journal}
    results = _computed(function, list(new.values()), workers)
    for key in keys:
        if key not in journal:
            journal.add(key, next(results))
        yield journal[key]


def _computed(
    function: Callable[[Item], Any], items: Sequence[Item], workers: Workers
) -> Iterator[Any]:
    if workers.cluster is None and (workers.jobs == 1 or len(items) < 2):
        for item in items:
            yield function(item)
        return
    from joblib import Parallel, delayed

    with _backend(workers):
        # Nothing is mapped into memory: it would come out read-only, which numba takes for another
        # type and compiles everything anew.
        parallel = Parallel(return_as="generator", batch_size=1, max_nbytes=None)
        yield from parallel(delayed(function)(item) for item in items)


@contextmanager
def _backend(workers: Workers) -> Iterator[None]:
    from joblib import parallel_config

    if workers.cluster is None:
        jobs = workers.jobs or -1
        with parallel_config("loky", n_jobs=jobs, initializer=_ignore_interrupts):
            yield
        return
    with _client(workers.cluster) as client, parallel_config("dask", client=client):
        yield


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "cluster: needs Dask; must be installed with: pip install 'autoscaler[cluster]'"
        ) from error
    try:
        client: Any = Client(address, timeout=_REACH_S)  # type: ignore[no-untyped-call]  # Dask has no types there
        client.wait_for_workers(1, timeout=_REACH_S)
    except (OSError, ValueError, TimeoutError) as error:
        rule = "must be the address of a Dask scheduler that has workers"
        raise ConfigError(f"cluster: {rule}; got {address!r}: {error}") from error
    return client


def _ignore_interrupts() -> None:
    """A Ctrl-C reaches all processes of a terminal; the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
