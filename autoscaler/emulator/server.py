"""Starts and stops the emulator: the event loop's part, and one in a thread for other programs."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from aiohttp import web
from prometheus_client import CollectorRegistry

from autoscaler.clock import SystemClock
from autoscaler.emulator.alarm import Alarm
from autoscaler.emulator.faults import Faults
from autoscaler.emulator.front import Front
from autoscaler.emulator.http_series import HttpSeries
from autoscaler.emulator.world import World
from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.live import LiveLoad, room
from autoscaler.errors import AutoscalerError, ConfigError
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import Clock
from autoscaler.profile import Profile
from autoscaler.sim.resize import ResizeModel

VERSIONS = {"0.25": "0.25.0", "0.30": "0.30.0", "0.33": "0.33.0"}
"""Engine versions that are emulated: short name, what ``/version`` says."""

_MIN_GAP_S = 0.001
"""Least real time between two plays: a step of a fast profile at a high time scale is shorter."""

_SHUTDOWN_S = 1.0
_ACCEPTED_S = 0.01
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """What is emulated.

    Args:
        profile: step times by width.
        resize: the course of resizes.
        width: the first width.
        min_width, max_width: what the deployment permits; None: the profile's, but never below 2
            (an expert-parallel width of 1 kills a stock engine) unless ``width`` is.
        version: a key of VERSIONS.
        model: served model name.
        time_scale: simulated seconds a real second, > 0.
        trace: built-in load; None: none.
        seed: of the draws of the resize model.
        extrapolate: permit widths that the profile does not know.
        faults: to begin with.
    """

    profile: Profile
    resize: ResizeModel
    width: int
    min_width: int | None = None
    max_width: int | None = None
    version: str = "0.25"
    model: str = "emulated"
    time_scale: float = 1.0
    trace: Load | None = None
    seed: int = 0
    extrapolate: bool = False
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        """Refuse what can't be emulated.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        require_number("time_scale", self.time_scale, 0, above=True)
        require_whole("width", self.width, 1)
        if self.version not in VERSIONS:
            allowed = ", ".join(VERSIONS)
            raise ConfigError(f"version: must be one of {allowed}; got {self.version!r}")
        if not self.bounds[0] <= self.width <= self.bounds[1]:
            low, high = self.bounds
            raise ConfigError(f"width: must be within {low} to {high}; got {self.width}")
        for width in (self.width, self.bounds[1]):
            self.profile.physics(width, extrapolate=self.extrapolate)

    @property
    def bounds(self) -> tuple[int, int]:
        """Least and largest width."""
        known = self.profile.known_widths
        low = min(max(known[0], 2), self.width) if self.min_width is None else self.min_width
        return low, known[-1] if self.max_width is None else self.max_width


class Emulator:
    """One emulated engine behind HTTP. Made and used in one event loop.

    Args:
        options: what is emulated.
        clock: real time.
    """

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._registry = CollectorRegistry()
        self._http = HttpSeries(self._registry)
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None
        self._alarm: Alarm | None = None
        self._played_s = 0.0
        self._busy_s = 0.0
        self.world = self._new_world(options.width)
        low, high = options.bounds
        self.front = Front(
            self.world,
            VERSIONS[options.version],
            options.model,
            low,
            high,
            options.faults,
            self._rearm,
            self._restart,
            self._registry,
            self._http,
        )

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Begin to serve; returns the URL. Port 0: any that is free.

        Raises:
            AutoscalerError: the port can't be bound.
        """
        self._alarm = Alarm(asyncio.get_running_loop(), self._clock, self._ring)
        self._runner = web.AppRunner(
            self.front.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        try:
            self._socket = socket.create_server((host, port), backlog=_BACKLOG)
        except OSError as error:
            await self.stop()
            raise AutoscalerError(f"cannot serve on {host}:{port}: {error.strerror}") from error
        await web.SockSite(self._runner, self._socket, backlog=_BACKLOG).start()
        self._ring()
        bound = self._socket.getsockname()[1]
        return f"http://{host}:{bound}"

    async def stop(self) -> None:
        """End at once; streams are cut."""
        self.front.close()
        self.world.lose_everything()
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        if self._runner is not None:
            if self._socket is not None:
                # Accept no more, and let what was accepted arrive: asyncio leaks a connection
                # whose server is closed between the two.
                asyncio.get_running_loop().remove_reader(self._socket)
                await asyncio.sleep(_ACCEPTED_S)
            await self._runner.cleanup()
            self._runner = None

    def _new_world(self, width: int) -> World:
        options = self._options
        return World(
            options.profile,
            options.resize,
            width,
            max(options.bounds[1], width),
            self._clock,
            time_scale=options.time_scale,
            trace=options.trace,
            seed=options.seed,
            extrapolate=options.extrapolate,
        )

    def _restart(self, width: int) -> None:
        self.world.lose_everything()
        self.front.close()
        self.world = self._new_world(width)
        self.front.renew(self.world)
        self._ring()

    def _ring(self) -> None:
        started_s = self._clock.now_s()
        self.world.play()
        self._played_s = self._clock.now_s()
        self._busy_s = self._played_s - started_s
        self._rearm()

    def _rearm(self) -> None:
        if self._alarm is not None:
            # Under a load that is too heavy for this machine half the time stays for HTTP.
            soonest_s = self._played_s + max(_MIN_GAP_S, self._busy_s)
            self._alarm.set(max(self.world.next_wake_s(), soonest_s))


def warm_up() -> None:
    """Let the engine's machine code be made, or read, before the first client comes."""
    from autoscaler.engine.physics import Physics

    engine = Engine(room(4), Physics(1, 1, np.full(2, 0.01)))
    live = LiveLoad(engine)
    for at_s in (0.0, 0.0, 0.01):
        live.push(at_s, 1, 2)
    engine.advance(0.001)
    live.cancel(1)
    engine.run()
    engine.stall(1.0)
    engine.close(1.0)
    engine.open(1.0, reject=True)
    engine.drop(0, 1.0)


async def serve(
    options: Options, host: str, port: int, started: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve until ``stop`` is set; ``started`` is told the URL."""
    emulator = Emulator(options)
    url = await emulator.start(host, port)
    try:
        started(url)
        await stop.wait()
    finally:
        await emulator.stop()


@contextmanager
def serving(options: Options, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread of its own while the block runs; gives the URL.

    Raises:
        AutoscalerError: it could not begin to serve.
    """
    warm_up()
    ready = threading.Event()
    urls: list[str] = []
    failures: list[BaseException] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    def started(url: str) -> None:
        urls.append(url)
        ready.set()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve(options, host, port, started, stop))
        except AutoscalerError as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="emulator", daemon=True)
    thread.start()
    ready.wait()
    if failures or not urls:
        thread.join()
        raise failures[0] if failures else AutoscalerError("the emulator did not start")
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
