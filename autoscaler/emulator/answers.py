"""The engine's JSON answers and errors, as recorded."""

import json
from http import HTTPStatus
from typing import Any

from aiohttp import web

SCALING = {"error": "The model is currently scaling. Please try again later."}
"""Body of every 503 while the engine scales."""


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer, without spaces, as the engine writes it."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return web.Response(
        body=text.encode(), status=status, content_type="application/json", headers=headers
    )


def error(status: int, message: str, kind: str | None = None) -> web.Response:
    """An error answer; ``kind`` None: the phrase of the status."""
    content = {
        "message": message,
        "type": kind or HTTPStatus(status).phrase,
        "param": None,
        "code": status,
    }
    return answer({"error": content}, status)


def bad_request(message: str) -> web.Response:
    """What the completions API says of a request that it can't serve."""
    return error(400, message, "BadRequestError")
