"""The engine that the operator's stand-in steers, over HTTP: commands it, and has it prove itself.

As the operator does it: a command is answered when the resize is over and waited for that long; a
width is the front end's rank bound with a token served on every rank.
"""

from autoscaler.emulator.operator import Answer
from autoscaler.errors import TargetError
from autoscaler.parameters import require_number
from autoscaler.targets._engine import EngineApi
from autoscaler.targets._rank_probe import Look, RankProbe

_DRAIN_S = 120


class HttpEngine:
    """An emulated engine behind its HTTP API; an ``operator.Engine``.

    Args:
        url: of the engine.
        answer_timeout_s: how long the answer to a command is waited for, real s, > 0; 150 in the
            operator. Later answers are lost.
        timeout_s: limit of every other call, real s, > 0.
    """

    def __init__(self, url: str, answer_timeout_s: float = 150.0, timeout_s: float = 5.0) -> None:
        require_number("answer_timeout_s", answer_timeout_s, 0, above=True)
        require_number("timeout_s", timeout_s, 0, above=True)
        self._api = EngineApi(url, None, None)
        self._probe = RankProbe(self._api, None)
        self._answer_timeout_s, self._timeout_s = answer_timeout_s, timeout_s

    def scale(self, width: int) -> Answer:
        """Ask for a width and wait until the resize is over."""
        body = {"new_data_parallel_size": width, "drain_timeout": _DRAIN_S}
        try:
            reply = self._api.call("POST", "/scale_elastic_ep", self._answer_timeout_s, body)
        except TargetError as error:
            return Answer(None, str(error))
        return Answer(reply.status, reply.said)

    def width(self) -> int | None:
        """The width proven by a token on every rank; None: not proven now."""
        try:
            seen = self._probe.look(self._timeout_s)
            if seen.look is not Look.BOUND:
                return None
            return self._probe.prove(seen.bound, self._timeout_s)
        except TargetError:
            return None

    def scaling(self) -> bool:
        """Whether it says that a resize is going on, or answers 503, which is the same."""
        try:
            reply = self._api.call("POST", "/is_scaling_elastic_ep", self._timeout_s)
        except TargetError:
            return False
        return reply.status == 503 or reply.json().get("is_scaling_elastic_ep") is True

    def boot(self, width: int) -> None:
        """Restart the emulator at this width.

        Raises:
            TargetError: it cannot be reached.
        """
        self._api.call("POST", "/_emulator/restart", self._timeout_s, {"width": width})
