"""``/v1/completions``: read, served by the world, streamed token by token.

A token is a word of the prompt (what lies between white space; at least one), or one id of a
prompt given as ids. Every generated token is the word "tok". There is no early stop:
``max_tokens`` are made, whatever ``ignore_eos`` says.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from autoscaler.emulator.answers import answer, bad_request, error
from autoscaler.emulator.world import End, Ticket, World

RANK_HEADER = "X-data-parallel-rank"
MAX_MODEL_LEN = 8192
"""Tokens of prompt and output together, as on the recorded server."""

_WORD = " tok"
_DEFAULT_MAX_TOKENS = 16


class BadCompletion(Exception):  # named by who must act: the client
    """A request that is answered with an error: status and message."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Completion:
    """A request as read.

    Args:
        prompts: prompt tokens of each prompt.
        max_tokens: >= 1.
        stream: whether tokens are sent as they come.
        usage: whether a stream ends with the usage.
    """

    prompts: tuple[int, ...]
    max_tokens: int
    stream: bool
    usage: bool


def read(body: Any, model: str) -> Completion:
    """The request in a JSON body.

    Raises:
        BadCompletion: what the engine would not serve.
    """
    if not isinstance(body, dict):
        raise BadCompletion("the body must be a JSON object")
    asked = body.get("model", model)
    if asked != model:
        raise BadCompletion(f"The model `{asked}` does not exist.", 404)
    max_tokens = body.get("max_tokens", _DEFAULT_MAX_TOKENS)
    if type(max_tokens) is not int or max_tokens < 1:
        raise BadCompletion(f"max_tokens must be at least 1, got {max_tokens!r}.")
    if body.get("n", 1) != 1:
        raise BadCompletion("n must be 1: the emulator makes one choice a prompt.")
    prompts = _prompts(body.get("prompt"))
    longest = max(prompts)
    if longest + max_tokens > MAX_MODEL_LEN:
        raise BadCompletion(
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your "
            f"request has {longest} input tokens and {max_tokens} output tokens."
        )
    options = body.get("stream_options") or {}
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Completion(prompts, max_tokens, bool(body.get("stream")), usage)


def _prompts(prompt: Any) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return (max(len(prompt.split()), 1),)
    if isinstance(prompt, list) and prompt:
        if all(type(p) is int for p in prompt):
            return (len(prompt),)
        return tuple(count for p in prompt for count in _prompts(p))
    raise BadCompletion("prompt must be a string, token ids, or a list of these, not empty.")


async def serve(
    request: web.Request,
    world: World,
    model: str,
    width: int,
    number: int,
    created_s: int,
    on_change: Callable[[], None],
) -> web.StreamResponse:
    """Answer one request.

    Args:
        request: to ``/v1/completions``.
        world: serves it.
        model: served model name.
        width: the front end's rank bound.
        number: of the request, for its id.
        created_s: Unix seconds.
        on_change: called when the world has something new to play.
    """
    try:
        completion = read(await request.json(), model)
        rank = _rank(request.headers.get(RANK_HEADER), width)
    except json.JSONDecodeError:
        return error(400, "Invalid JSON format")
    except BadCompletion as bad:
        if bad.status == 404:
            return error(404, str(bad), "NotFoundError")
        return bad_request(str(bad))
    changed = asyncio.Event()
    max_tokens = completion.max_tokens
    tickets = [world.submit(p, max_tokens, rank, changed.set) for p in completion.prompts]
    on_change()
    head = {
        "id": f"cmpl-{number:016x}",
        "object": "text_completion",
        "created": created_s,
        "model": model,
    }
    try:
        if completion.stream:
            return await _stream(request, completion, tickets, changed, head)
        return await _whole(request, tickets, changed, head)
    except ConnectionError:
        return web.Response()  # which nobody will read
    finally:
        for ticket in tickets:
            world.cancel(ticket)  # its client is gone, or it is over, when this does nothing


def _rank(header: str | None, width: int) -> int | None:
    if header is None:
        return None
    try:
        rank = int(header)
    except ValueError:
        return None
    if not 0 <= rank < width:
        raise BadCompletion(f"data_parallel_rank {rank} is out of range [0, {width}).")
    return rank


def _usage(tickets: list[Ticket]) -> dict[str, Any]:
    prompt = sum(t.prompt_tokens for t in tickets)
    made = sum(t.tokens for t in tickets)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + made,
        "completion_tokens": made,
        "prompt_tokens_details": None,
    }


async def _whole(
    request: web.Request, tickets: list[Ticket], changed: asyncio.Event, head: dict[str, Any]
) -> web.Response:
    while any(t.end in (None, End.HANG) for t in tickets):
        await changed.wait()
        changed.clear()
    if any(t.end is End.LOST for t in tickets):
        return cut(request)
    choices = [
        {
            "index": index,
            "text": _WORD * ticket.tokens,
            "logprobs": None,
            "finish_reason": str(ticket.end),
            "stop_reason": None,
        }
        for index, ticket in enumerate(tickets)
    ]
    return answer({**head, "choices": choices, "usage": _usage(tickets)})


async def _stream(
    request: web.Request,
    completion: Completion,
    tickets: list[Ticket],
    changed: asyncio.Event,
    head: dict[str, Any],
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    tokens = [_event(head, index, None) for index in range(len(tickets))]
    sent = [0] * len(tickets)
    going = set(range(len(tickets)))
    while going:
        await changed.wait()
        changed.clear()
        parts: list[bytes] = []
        for index in sorted(going):
            ticket = tickets[index]
            due = ticket.tokens - sent[index]
            sent[index] = ticket.tokens
            over = ticket.end is not None and ticket.end is not End.HANG
            if ticket.end is End.LOST:
                return cut(request)
            if over:
                going.discard(index)
                parts.append(tokens[index] * max(due - 1, 0))
                parts.append(_event(head, index, str(ticket.end), _WORD if due else ""))
            else:
                parts.append(tokens[index] * due)
        await response.write(b"".join(parts))
    if completion.usage:
        closing = {**head, "choices": [], "usage": _usage(tickets)}
        await response.write(f"data: {json.dumps(closing, separators=(',', ':'))}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def _event(head: dict[str, Any], index: int, reason: str | None, text: str = _WORD) -> bytes:
    choice = {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": reason,
        "stop_reason": None,
    }
    content = json.dumps({**head, "choices": [choice]}, separators=(",", ":"))
    return f"data: {content}\n\n".encode()


def cut(request: web.Request) -> web.Response:
    """End the connection as a dying server does, without a word; the answer reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
