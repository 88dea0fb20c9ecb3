"""Cells of a benchmark: so many clients, or so many requests a second, and what came of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import numpy as np

from autoscaler.capture.client import Sent, body, send
from autoscaler.errors import ObservationError
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import Clock
from autoscaler.targets._engine import require_url


@dataclass(frozen=True, slots=True)
class Load:
    """What every request of a capture looks like.

    Args:
        url: of the deployment; its completions are at ``/v1/completions``.
        model: served model name.
        prompt_tokens, output_tokens: of every request, >= 1.
        timeout_s: limit of a request, s, > 0.
        seed: of the prompts and of open-loop arrivals.
        api_key: of an ``Authorization: Bearer`` header; "": none.
    """

    url: str
    model: str
    prompt_tokens: int = 1024
    output_tokens: int = 256
    timeout_s: float = 600.0
    seed: int = 0
    api_key: str = ""

    def __post_init__(self) -> None:
        require_url("url", self.url)
        require_whole("prompt_tokens", self.prompt_tokens, 1)
        require_whole("output_tokens", self.output_tokens, 1)
        require_number("timeout_s", self.timeout_s, 0, above=True)
        require_whole("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell measured.

    Args:
        concurrency: clients; None: open loop.
        arrival_rps: requests/s; None: closed loop.
        requests: that were served.
        failed: that were not; they are in no other number.
        ttft_p50_ms, ttft_p95_ms, tpot_p50_ms, itl_p50_ms, itl_p99_ms: milliseconds; NaN without
            a single gap between tokens.
        output_tok_per_s: of all clients, from the first request to the last token.
        output_tokens_mean: a request.
    """

    concurrency: int | None
    arrival_rps: float | None
    requests: int
    failed: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    output_tok_per_s: float
    output_tokens_mean: float


def usual_requests(concurrency: int) -> int:
    """Requests of a closed-loop cell, as in the published tables: 32 for 1 client, 128 for 64."""
    return max(32, min(4 * concurrency, 128), concurrency)


async def closed_loop(
    load: Load,
    concurrency: int,
    requests: int,
    clock: Clock,
    on_done: Callable[[], None] = lambda: None,
) -> Cell:
    """So many clients, each sending again as soon as it was served.

    Raises:
        ObservationError: not one request was served.
    """
    rng = np.random.default_rng([load.seed, concurrency])
    bodies = [
        body(load.model, load.prompt_tokens, load.output_tokens, rng) for _ in range(requests)
    ]
    waiting = iter(bodies)
    sent: list[Sent] = []
    async with _session(load) as session:

        async def client() -> None:
            for request in waiting:
                sent.append(await send(session, _endpoint(load), request, clock))
                on_done()

        await asyncio.gather(*(client() for _ in range(min(concurrency, requests))))
    return _cell(sent, f"concurrency {concurrency}", concurrency, None)


async def open_loop(
    load: Load,
    arrival_rps: float,
    requests: int,
    clock: Clock,
    on_done: Callable[[], None] = lambda: None,
) -> Cell:
    """Poisson arrivals that wait for nobody.

    Raises:
        ObservationError: not one request was served.
    """
    rng = np.random.default_rng([load.seed, 1])
    arrival_s = np.cumsum(rng.exponential(1 / arrival_rps, requests)).tolist()
    bodies = [
        body(load.model, load.prompt_tokens, load.output_tokens, rng) for _ in range(requests)
    ]
    async with _session(load) as session:
        start_s = clock.now_s()

        async def one(at_s: float, index: int) -> Sent:
            await asyncio.sleep(max(start_s + at_s - clock.now_s(), 0))
            sent = await send(session, _endpoint(load), bodies[index], clock)
            on_done()
            return sent

        sent = await asyncio.gather(*(one(at_s, i) for i, at_s in enumerate(arrival_s)))
    return _cell(list(sent), f"{arrival_rps:g} requests/s", None, arrival_rps)


async def warm_up(load: Load, clock: Clock) -> None:
    """One request before the first cell, which nobody measures.

    Raises:
        ObservationError: it was not served; the message says why.
    """
    rng = np.random.default_rng([load.seed, 0])
    async with _session(load) as session:
        request = body(load.model, load.prompt_tokens, load.output_tokens, rng)
        sent = await send(session, _endpoint(load), request, clock)
    if sent.error:
        raise ObservationError(f"{_endpoint(load)}: the first request failed: {sent.error}")


def _endpoint(load: Load) -> str:
    return load.url.rstrip("/") + "/v1/completions"


def _session(load: Load) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {load.api_key}"} if load.api_key else {}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=load.timeout_s),
        headers=headers,
        trust_env=False,
    )


def _cell(sent: list[Sent], where: str, concurrency: int | None, arrival_rps: float | None) -> Cell:
    served = [s for s in sent if not s.error]
    if not served:
        reasons = ", ".join(
            f"{count} x {why}" for why, count in Counter(s.error for s in sent).items()
        )
        raise ObservationError(f"{where}: no request was served: {reasons}")
    ttft_ms = np.array([s.ttft_s for s in served]) * 1e3
    gaps_ms = np.concatenate([np.diff(s.token_s) for s in served]) * 1e3
    tpot_ms = np.array([s.tpot_s for s in served if s.tokens > 1]) * 1e3
    tokens = sum(s.tokens for s in served)
    span_s = max(s.token_s[-1] for s in served) - min(s.sent_s for s in sent)
    return Cell(
        concurrency=concurrency,
        arrival_rps=arrival_rps,
        requests=len(served),
        failed=len(sent) - len(served),
        ttft_p50_ms=_percentile(ttft_ms, 50),
        ttft_p95_ms=_percentile(ttft_ms, 95),
        tpot_p50_ms=_percentile(tpot_ms, 50),
        itl_p50_ms=_percentile(gaps_ms, 50),
        itl_p99_ms=_percentile(gaps_ms, 99),
        output_tok_per_s=tokens / span_s,
        output_tokens_mean=tokens / len(served),
    )


def _percentile(values: "np.typing.NDArray[np.float64]", percentile: float) -> float:
    return float(np.percentile(values, percentile)) if len(values) else float("nan")
