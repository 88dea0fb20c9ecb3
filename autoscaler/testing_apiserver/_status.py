"""Failures as the ``Status`` objects that a Kubernetes API server answers with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``details.causes``."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """An answer that is no success.

    Args:
        code: HTTP status.
        reason: word for machines, e.g. ``NotFound``.
        message: for people.
        details: ``details`` of the Status; None: it has none.
        headers: besides the usual ones.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.headers = headers or {}
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details is not None:
            self.status["details"] = details


def details(name: str, group: str, kind: str) -> Json:
    """Which object; the core group has no name."""
    return {"name": name, **({"group": group} if group else {}), "kind": kind}


def qualified(plural: str, group: str) -> str:
    """``deployments.apps``, ``configmaps``."""
    return f"{plural}.{group}" if group else plural


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 for an object that breaks the rules of its schema."""
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    entries = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {text}',
        {**details(name, group, kind), "causes": entries},
    )


def unpatchable() -> ApiError:
    """422 for a JSON patch whose ``test`` fails or whose path is not there: without causes."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, {})


def unsupported(accepted: Sequence[str]) -> ApiError:
    """415."""
    said = ", ".join(accepted)
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {said}"
    )
    return ApiError(415, "UnsupportedMediaType", message)
