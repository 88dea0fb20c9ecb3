"""Emulators that several tests start, and plain HTTP calls to them."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from autoscaler.emulator.faults import Faults
from autoscaler.emulator.server import Options, serving
from autoscaler.profile import Profile
from autoscaler.sim.resize import ResizeModel
from autoscaler.steps import Steps

MEASURED = ResizeModel(
    mode="as measured on vLLM 0.25.0",
    prepare_s=0.0,
    pause_up_s=76.3,
    pause_down_s=27.8,
    reject_up_s=67.1,
    reject_down_s=27.8,
    new="reject",
    leaving="hang",
)
PREPARED = ResizeModel(
    mode="prepares beside the traffic", prepare_s=40.0, pause_up_s=20.0, pause_down_s=20.0,
    new="reject", leaving="abort",
)  # fmt: skip

SCALING = '{"error":"The model is currently scaling. Please try again later."}'


def profile(prefill_s: float = 0.1, decode_ms: float = 20.0, widths: tuple[int, ...] = (1, 2, 4)):
    """Every width alike: a prompt takes ``prefill_s``, a token ``decode_ms``; 4 slots a rank."""
    steps = Steps(decode_ms=((1, decode_ms), (4, decode_ms)), prefill_flat_s=prefill_s)
    return Profile(
        name="even",
        kind="assumed",
        layout="elastic_ep",
        provenance="made for tests",
        slots_per_rank=4,
        widths=dict.fromkeys(widths, steps),
    )


@contextmanager
def emulated(
    width: int = 2,
    *,
    resize: ResizeModel = MEASURED,
    version: str = "0.25",
    time_scale: float = 50.0,
    faults: Faults | None = None,
    **options: Any,
) -> Iterator["Caller"]:
    options.setdefault("profile", profile())
    with serving(
        Options(
            resize=resize,
            width=width,
            version=version,
            time_scale=time_scale,
            faults=faults or Faults(),
            **options,
        )
    ) as url:
        yield Caller(url)


class Caller:
    """Calls one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = urlsplit(url).netloc

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection(self._address, timeout=timeout_s)
        given = dict(headers or {})
        content = body
        if body is not None and not isinstance(body, str):
            content = json.dumps(body)
        if content is not None:
            given.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), dict(answer.getheaders())
        finally:
            connection.close()

    def scale(self, width: int) -> tuple[int, str]:
        return self("POST", "/scale_elastic_ep", {"new_data_parallel_size": width})[:2]

    def complete(self, prompt: Any = "a b c", max_tokens: int = 1, **more: Any) -> tuple[int, str]:
        body = {"prompt": prompt, "max_tokens": max_tokens, **more}
        return self("POST", "/v1/completions", body)[:2]

    def state(self) -> dict[str, Any]:
        return json.loads(self("GET", "/_emulator/state")[1])

    def faults(self, **given: Any) -> int:
        return self("POST", "/_emulator/faults", given)[0]

    def series(self) -> dict[str, float]:
        """Every sample of the page by its name and labels."""
        status, text, _ = self("GET", "/metrics")
        assert status == 200
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do ``work`` in a thread; its result is in the list when the block is over."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    try:
        yield results
    finally:
        thread.join(30)


def until(true: Callable[[], bool], limit_s: float = 10.0) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + limit_s  # noqa: TID251  # tests with real processes wait in real time
    while not true():
        assert time.monotonic() < give_up, "it never came true"  # noqa: TID251  # the same
        time.sleep(0.01)  # noqa: TID251  # the same
