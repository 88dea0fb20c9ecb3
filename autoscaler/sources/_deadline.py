"""Calls that end in time, whatever the other side does.

A socket's time-out bounds one read, not a reply that trickles, and no name look-up at all. So
each call runs in a daemon thread of its own and is given up on, not waited for.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from autoscaler.errors import ObservationError

T = TypeVar("T")


class Callers(Generic[T]):
    """Runs the calls of one source, each under a name.

    A call that was given up on keeps its name occupied until it has really ended: a server that
    hangs costs one thread, not one a tick.
    """

    def __init__(self) -> None:
        self._stuck: dict[str, Future[T]] = {}

    def run(
        self, calls: Mapping[str, Callable[[threading.Event], T]], timeout_s: float
    ) -> dict[str, T | ObservationError]:
        """Make all calls at once.

        Args:
            calls: each is handed an event that is set once nobody waits for it any longer.
            timeout_s: when to give up on those that have not returned, s, > 0.

        Returns:
            By name: what the call returned, or the ObservationError that it raised or deserves.
            Any other exception is a defect and raised here.
        """
        self._stuck = {name: future for name, future in self._stuck.items() if not future.done()}
        given_up = threading.Event()
        running: dict[str, Future[T]] = {}
        answers: dict[str, T | ObservationError] = {}
        for name, call in calls.items():
            if name in self._stuck:
                answers[name] = ObservationError(f"{name}: the call before has not returned yet")
            else:
                running[name] = _start(name, call, given_up)
        wait(running.values(), timeout_s)
        given_up.set()
        for name, future in running.items():
            if not future.done():
                self._stuck[name] = future
                answers[name] = ObservationError(f"{name}: no whole answer in {timeout_s:g} s")
                continue
            error = future.exception()
            if error is None:
                answers[name] = future.result()
            elif isinstance(error, ObservationError):
                answers[name] = error
            else:
                raise error
        return answers


def _start(name: str, call: Callable[[threading.Event], T], given_up: threading.Event) -> Any:
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call(given_up))
        except BaseException as error:  # noqa: BLE001  # carried over to the thread that waits
            future.set_exception(error)

    threading.Thread(target=work, name=f"read {name}", daemon=True).start()
    return future
