"""What an API server's refusals mean. No I/O: statuses and bodies in, exceptions and outcomes out.

The answers are those of a recorded kube-apiserver 1.36: a failed JSON Patch ``test`` is 422
without ``causes``, a refused value is 422 with them, a stale resourceVersion is 409.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from autoscaler.errors import TargetConflict, TargetError, TargetForbidden, TargetRefused
from autoscaler.model import SetOutcome, SetResult

_MAX_MESSAGE = 300  # a message is for a log line; a login page in one is 100 kB
_USERINFO = re.compile(r"//[^/@\s]*@")
_DENIED = re.compile(r"admission webhook .* denied|denied request|exceeded quota", re.DOTALL)


class Gone(TargetError):
    """404: the object is not there (any more)."""


class Unauthenticated(TargetError):
    """401: the server does not know who we are; nothing was done."""


class Unclear(TargetError):
    """No definite answer: a write may have happened."""


class GaveUp(Unclear):
    """The answer was too slow or too long."""


class NotSent(TargetError):
    """Nothing was sent, so that nothing can have happened."""


def redacted(text: str) -> str:
    """The text without the user and password of the URLs in it."""
    return _USERINFO.sub("//***@", text)


def error_of(
    where: str, status: int, content_type: str, content: bytes, clean: Callable[[str], str] = str
) -> TargetError:
    """The exception for an answer that is none of success.

    Args:
        where: method and path, for the message.
        status: HTTP status.
        content_type: of the answer.
        content: the body; only a ``Status`` object's message gets into ours, cut to 300
            characters: anything else may hold what no log should.
        clean: takes secrets out of that message, before it is cut; some gateways repeat the token
            that they refuse.
    """
    body = _status_object(content)
    said = clean(redacted(str(body.get("message", ""))))[:_MAX_MESSAGE]
    kind = clean(content_type)[:80] or "no type"
    said = said or f"no Status object ({kind}, {len(content)} bytes)"
    text = f"{where}: {status}: {said}"
    if status in (408, 429) or status >= 500:
        return Unclear(text)
    if status == 401:
        return Unauthenticated(text)
    if status == 404:
        return Gone(f"{text} (gone)")
    if status == 409:
        return TargetConflict(text)
    causes = _causes(body)
    if status == 403 and not causes and not _DENIED.search(said):
        return TargetForbidden(text)
    if status == 422 and not causes and body.get("reason") == "Invalid":
        # Quota and webhooks that deny with 422 and no causes name their reason in the message.
        return TargetRefused(text) if _DENIED.search(said) else TargetConflict(text)
    if 400 <= status < 500:
        return TargetRefused(text)  # resending the same would get the same
    return TargetError(f"{text}: must be an answer of an API server")


_RESULTS: tuple[tuple[type[TargetError], SetResult], ...] = (
    (TargetConflict, SetResult.CONFLICT),
    (Gone, SetResult.CONFLICT),
    (TargetRefused, SetResult.REFUSED),
    (TargetForbidden, SetResult.FORBIDDEN),
    (Unauthenticated, SetResult.FORBIDDEN),
    (NotSent, SetResult.SKIPPED),
)


def outcome(write: Callable[[], Mapping[str, Any]]) -> SetOutcome:
    """Do one write and say how it went; never resends, never raises a TargetError."""
    try:
        written = write()
    except TargetError as error:
        return SetOutcome(_result(error), detail=str(error))
    metadata = written.get("metadata")
    generation = metadata.get("generation") if isinstance(metadata, dict) else None
    return SetOutcome(SetResult.APPLIED, generation if type(generation) is int else None)


def became(written: Mapping[str, Any], wanted: int, *field: str) -> Mapping[str, Any]:
    """The answer to a write, if it shows what was asked for.

    A success that changed nothing is none.

    Args:
        written: the object, as answered.
        wanted: the number asked for.
        field: where it has to be; 0 may be left out.

    Raises:
        Unclear: it shows something else; the next reading tells.
    """
    found: Any = written
    for key in field:
        found = found.get(key) if isinstance(found, dict) else None
    if (found or 0) != wanted:
        raise Unclear(f"asked for {'.'.join(field)} {wanted}, answered with {found!r:.80}")
    return written


def unwritten(error: TargetError) -> SetOutcome:
    """The outcome of a write that did not come about because the look before it failed."""
    result = _result(error)
    result = SetResult.SKIPPED if result is SetResult.AMBIGUOUS else result
    return SetOutcome(result, detail=f"nothing was written: {error}")


def _result(error: TargetError) -> SetResult:
    for kind, result in _RESULTS:
        if isinstance(error, kind):
            return result
    return SetResult.AMBIGUOUS


def _status_object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}


def _causes(body: Mapping[str, Any]) -> list[Any]:
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return causes if isinstance(causes, list) else []
