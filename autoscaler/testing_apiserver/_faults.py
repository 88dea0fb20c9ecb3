"""What can be made to go wrong between a client and the API server."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Fault:
    """One kind of trouble for the next requests that match.

    Args:
        kind: ``hang`` never answers, ``close`` hangs up, ``answer`` gives ``status`` instead,
            ``slow`` answers properly after ``delay_s``, ``drip`` sends the answer byte by byte,
            ``delay_s`` apart, ``stall`` begins a watch that then says nothing.
        method: of the requests; "": any.
        path: that the request's path and query contain; "": any.
        times: how many requests; None: all.
        applied: ``hang``, ``close`` and ``answer`` do the work before they withhold its answer.
        status: HTTP status of ``answer``.
        headers: of ``answer``.
        body: of ``answer``, as it is.
        delay_s: real seconds, >= 0.
        seen: how many requests met it.
    """

    kind: Literal["hang", "close", "answer", "slow", "drip", "stall"]
    method: str = ""
    path: str = ""
    times: int | None = 1
    applied: bool = False
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    delay_s: float = 0.0
    seen: int = 0

    def matches(self, method: str, path: str) -> bool:
        """Whether this request is met."""
        if self.times is not None and self.seen >= self.times:
            return False
        return self.method in ("", method) and self.path in path
