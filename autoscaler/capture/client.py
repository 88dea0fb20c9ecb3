"""One streaming completion, timed as its client sees it."""

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

from autoscaler.ports import Clock

_FIRST_ID, _LAST_ID = 100, 20_000
"""Token ids that every vocabulary of note has, beyond its special ones."""


@dataclass(slots=True)
class Sent:
    """One request.

    Args:
        sent_s: clock's instant of sending.
        token_s: instants at which output came; several tokens in one event count as one.
        tokens: output tokens, as the server counted them, else as they came.
        error: why it failed; "": it was served.
    """

    sent_s: float
    token_s: list[float] = field(default_factory=list)
    tokens: int = 0
    error: str = ""

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.token_s[0] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Mean time a token after the first; 0 with a single one."""
        gaps = self.tokens - 1
        return (self.token_s[-1] - self.token_s[0]) / gaps if gaps > 0 else 0.0


def body(
    model: str, prompt_tokens: int, output_tokens: int, rng: np.random.Generator
) -> dict[str, Any]:
    """A request whose prompt nobody has cached, and whose output does not stop early."""
    return {
        "model": model,
        "prompt": rng.integers(_FIRST_ID, _LAST_ID, prompt_tokens).tolist(),
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def send(
    session: aiohttp.ClientSession, url: str, request: dict[str, Any], clock: Clock
) -> Sent:
    """Send one request and follow its stream to the end; failures are told in the result."""
    content = json.dumps(request).encode()
    sent = Sent(clock.now_s())
    try:
        async with session.post(
            url, data=content, headers={"Content-Type": "application/json"}, allow_redirects=False
        ) as response:
            if response.status != 200:
                sent.error = f"HTTP {response.status}"
                return sent
            await _follow(response, sent, clock)
    except TimeoutError:
        sent.error = "timed out"
    except (aiohttp.ClientError, OSError) as error:
        sent.error = type(error).__name__
    except ValueError:
        sent.error = "not a stream of JSON events"
    if not sent.error and not sent.token_s:
        sent.error = "no token"
    return sent


async def _follow(response: aiohttp.ClientResponse, sent: Sent, clock: Clock) -> None:
    ended = False
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        now_s = clock.now_s()
        event = line[5:].strip()
        if event == b"[DONE]":
            ended = True
            continue
        content = json.loads(event)
        usage = content.get("usage")
        if usage:
            sent.tokens = int(usage["completion_tokens"])
        if any(choice.get("text") for choice in content.get("choices", ())):
            sent.token_s.append(now_s)
            if not usage:
                sent.tokens = max(sent.tokens, len(sent.token_s))
        if "error" in content:
            sent.error = "error in the stream"
    if not ended and not sent.error:
        sent.error = "the stream broke off"
