"""The HTTP front end of the emulated engine: routes, the 503s, the page of metrics."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from autoscaler.clock import SystemClock, wall_s
from autoscaler.emulator import completions, exposition
from autoscaler.emulator.answers import SCALING, answer, bad_request, error
from autoscaler.emulator.faults import Faults
from autoscaler.emulator.http_series import HttpSeries
from autoscaler.emulator.scaling import AnswerLost, ScaleError, Scaling
from autoscaler.emulator.world import World
from autoscaler.errors import ConfigError

CONTROL = "/_emulator"
"""Prefix of what no engine has: faults, truth, restart."""

_MEDIA_TYPE = (
    "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed "
    "[\"Unsupported Media Type: Only 'application/json' is allowed\"]"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Front:
    """Answers for one world.

    Args:
        world: serves the completions.
        version: of the engine, e.g. 0.25.0.
        model: served model name.
        min_width, max_width: what the deployment permits.
        faults: to begin with.
        on_change: called when the world has something new to play.
        restart: replaces the world, at the width given.
        registry: series of the process, which outlive a world.
    """

    def __init__(
        self,
        world: World,
        version: str,
        model: str,
        min_width: int,
        max_width: int,
        faults: Faults,
        on_change: Callable[[], None],
        restart: Callable[[int], None],
        registry: CollectorRegistry,
        http: HttpSeries,
    ) -> None:
        self.world = world
        self.faults = faults
        self._version = version
        self._model = model
        self._max_width = max_width
        self._on_change = on_change
        self._restart = restart
        self._registry = registry
        self._http = http
        self._clock = SystemClock()
        self._created_s = int(wall_s())
        self._requests = 0
        self._odd = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._min_width = min_width
        major, minor = version.split(".")[:2]
        self._generation = (int(major), int(minor))
        self.scaling = self._new_scaling()

    def renew(self, world: World) -> None:
        """Answer for another world from now on, as after a restart of the server."""
        self.world = world
        self.scaling = self._new_scaling()

    def _new_scaling(self) -> Scaling:
        return Scaling(
            self.world,
            self._generation,
            self._min_width,
            self._max_width,
            lambda: self.faults,
            self._spend_fault,
        )

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._around], client_max_size=64 * 1024**2)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/ping", self._ping)
        app.router.add_get("/version", self._get_version)
        app.router.add_get("/load", self._load)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/scale_elastic_ep", self._scale)
        app.router.add_post("/is_scaling_elastic_ep", self._is_scaling)
        app.router.add_get(f"{CONTROL}/state", self._state)
        app.router.add_get(f"{CONTROL}/faults", self._get_faults)
        app.router.add_post(f"{CONTROL}/faults", self._set_faults)
        app.router.add_delete(f"{CONTROL}/faults", self._clear_faults)
        app.router.add_post(f"{CONTROL}/restart", self._restarting)
        return app

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The engine's middleware: 503 while it scales, its kind of 404 and 405, HTTP series."""
        if not request.path.startswith(CONTROL) and self.scaling.refuses(request.path):
            return answer(SCALING, 503)
        started_s = self._clock.now_s()
        try:
            response = await handler(request)
        except web.HTTPMethodNotAllowed as refused:
            allowed = ", ".join(sorted(refused.allowed_methods - {"HEAD"}))
            response = answer({"detail": "Method Not Allowed"}, 405, {"Allow": allowed})
        except web.HTTPNotFound:
            response = answer({"detail": "Not Found"}, 404)
        duration_s = self._clock.now_s() - started_s
        self._http.note(request, response, duration_s)
        return response

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.faults.health_status or 200)

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(status=200)

    async def _get_version(self, _request: web.Request) -> web.Response:
        return answer({"version": self._version})

    async def _load(self, _request: web.Request) -> web.Response:
        # 0 unless the server was started with load tracking, as the recorded one was not.
        return answer({"server_load": 0})

    async def _models(self, _request: web.Request) -> web.Response:
        permission = {
            "id": "modelperm-0000000000000000",
            "object": "model_permission",
            "created": self._created_s,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": self._model,
            "object": "model",
            "created": self._created_s,
            "owned_by": "vllm",
            "root": self._model,
            "parent": None,
            "max_model_len": completions.MAX_MODEL_LEN,
            "permission": [permission],
        }
        return answer({"object": "list", "data": [card]})

    async def _metrics(self, _request: web.Request) -> web.Response:
        if self.faults.metrics_delay_s:
            await asyncio.sleep(self.faults.metrics_delay_s)
        if self.faults.metrics_status:
            return web.Response(status=self.faults.metrics_status)
        self.world.play()
        process, http = self._http.pages(generate_latest(self._registry))
        text = process + exposition.page(self.world.accounts, self._model) + http
        return web.Response(body=text.encode(), headers={"Content-Type": exposition.CONTENT_TYPE})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if completions.RANK_HEADER in request.headers and self._probe_fails():
            return error(500, "the emulator was told to fail this probe")
        self._requests += 1
        return await completions.serve(
            request,
            self.world,
            self._model,
            self.scaling.width,
            self._requests,
            int(wall_s()),
            self._on_change,
        )

    def _probe_fails(self) -> bool:
        """In turn rather than by chance: a ratio of 0.5 fails every second one."""
        self._odd += self.faults.probe_failure_ratio
        if self._odd >= 1.0:
            self._odd -= 1.0
            return True
        return False

    async def _scale(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return error(400, _MEDIA_TYPE)
        try:
            body = await request.json()
        except json.JSONDecodeError:
            return error(400, "Invalid JSON format")
        size = body.get("new_data_parallel_size") if isinstance(body, dict) else None
        if size is None:
            return error(400, "new_data_parallel_size is required")
        # isinstance, not type: the engine takes true for 1, as recorded.
        if not isinstance(size, int) or size <= 0:
            return error(400, "new_data_parallel_size must be a positive integer")
        drain_s = body.get("drain_timeout", 120)
        if not isinstance(drain_s, int) or drain_s <= 0:
            return error(400, "drain_timeout must be a positive integer")
        # The engine goes on when the client hangs up; so must the task.
        task = asyncio.create_task(self.scaling.scale(int(size)))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        self._on_change()
        try:
            await asyncio.shield(task)
        except ScaleError as failed:
            return error(failed.status, str(failed))
        except AnswerLost:
            return completions.cut(request)
        return answer({"message": f"Scaled to {size} data parallel engines"})

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # told to the client, if there still is one

    async def _is_scaling(self, _request: web.Request) -> web.Response:
        return answer(self.scaling.state())

    async def _state(self, _request: web.Request) -> web.Response:
        world = self.world
        return answer(
            {
                "now_s": world.now_s(),
                "time_scale": world.time_scale,
                "width": world.width,
                "rank_bound": self.scaling.width,
                "phase": self.scaling.phase,
                "scaling": self.scaling.flag,
                "resizing": world.fleet.resizing,
                "requests": world.requests,
                "active": world.active,
                "ended": {end.value: count for end, count in world.ended.items()},
                "turned_away": world.turned_away,
            }
        )

    async def _get_faults(self, _request: web.Request) -> web.Response:
        return answer(asdict(self.faults))

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            given: Any = await request.json()
            if not isinstance(given, dict):
                return bad_request("faults: must be a JSON object")
            self.faults = self.faults.changed(given)
        except json.JSONDecodeError:
            return bad_request("faults: must be a JSON object")
        except ConfigError as wrong:
            return bad_request(str(wrong))
        return answer(asdict(self.faults))

    async def _clear_faults(self, _request: web.Request) -> web.Response:
        self.faults = Faults()
        return answer(asdict(self.faults))

    async def _restarting(self, request: web.Request) -> web.Response:
        given = await request.json() if request.can_read_body else {}
        width = given.get("width", self.scaling.width)
        if type(width) is not int or not 1 <= width <= self._max_width:
            return bad_request(f"width: must be a whole number 1 to {self._max_width}")
        self._restart(width)
        return answer({"width": width})

    def _spend_fault(self) -> None:
        self.faults = self.faults.without_one_resize()

    def close(self) -> None:
        """Give up the resizes in flight."""
        for task in self._tasks:
            task.cancel()
