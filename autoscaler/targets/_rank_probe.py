"""What a bare engine proves of its width: the front end's rank bound, and a token on every rank."""

from dataclasses import dataclass
from enum import Enum
from functools import partial

from autoscaler.errors import TargetError, TargetForbidden
from autoscaler.targets._engine import RANK_HEADER, EngineApi, Reply, begin

_PROMPT = "Hello"


class Look(Enum):
    """What one look at the engine showed."""

    BOUND = "bound"
    """at rest, and the rank bound is known"""
    SCALING = "scaling"
    """it says so, or answers 503, which is the same"""
    ODD = "odd"
    """it answers, but not this question"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: ``bound`` where it is BOUND, ``detail`` for people where it is not."""

    look: Look
    bound: int = 0
    detail: str = ""


class RankProbe:
    """Asks one engine. Slow: to be called where nobody waits.

    Args:
        api: the engine.
        model: served model name; None: the first that it lists.
    """

    def __init__(self, api: EngineApi, model: str | None) -> None:
        self._api = api
        self._model = model

    def look(self, timeout_s: float) -> Seen:
        """Health, scaling and rank bound: three calls of ``timeout_s`` at most, all rejected early.

        Raises:
            TargetForbidden: the engine refuses the key.
            TargetError: no answer.
        """
        health = self._api.call("GET", "/health", timeout_s)
        if health.status != 200:
            look = Look.SCALING if health.status == 503 else Look.ODD
            return Seen(look, detail=f"GET /health: {health.said}")
        scaling = self._api.call("POST", "/is_scaling_elastic_ep", timeout_s)
        if scaling.status == 503 or scaling.json().get("is_scaling_elastic_ep") is True:
            return Seen(Look.SCALING, detail=f"POST /is_scaling_elastic_ep: {scaling.said}")
        probe = self._complete(-1, timeout_s)
        if isinstance(probe, str):
            return Seen(Look.ODD, detail=probe)
        if probe.status == 503:
            return Seen(Look.SCALING, detail=f"rank bound: {probe.said}")
        bound = probe.rank_bound()
        if bound is None:
            return Seen(Look.ODD, detail=f"rank bound: must be told in a 400; got {probe.said}")
        return Seen(Look.BOUND, bound)

    def prove(self, width: int, timeout_s: float) -> int:
        """Have every rank serve one token, each within ``timeout_s``; returns the width.

        All at once: right after a resize each waits behind the backlog (15 s for three ranks one
        after the other, in a run that the simulation saw converge in 5).

        Raises:
            TargetError: names the rank that did not.
        """
        asked = [
            begin(f"prove rank {rank}", partial(self._complete, rank, timeout_s))
            for rank in range(width)
        ]
        for rank, answer in enumerate(asked):
            reply = answer.result()
            said = reply if isinstance(reply, str) else reply.said
            if isinstance(reply, str) or reply.status != 200:
                raise TargetError(f"rank {rank} served no token: {said}")
        return width

    def _complete(self, rank: int, timeout_s: float) -> Reply | str:
        """One token on one rank; text: why it can't be asked for."""
        if self._model is None:
            listed = self._api.call("GET", "/v1/models", timeout_s)
            cards = listed.json().get("data")
            first = cards[0] if isinstance(cards, list) and cards else None
            name = first.get("id") if isinstance(first, dict) else None
            if not isinstance(name, str):
                return f"GET /v1/models: must list a model; got {listed.said}"
            self._model = name
        body = {"model": self._model, "prompt": _PROMPT, "max_tokens": 1, "temperature": 0}
        headers = {RANK_HEADER: str(rank)}
        reply = self._api.call("POST", "/v1/completions", timeout_s, body, headers)
        if reply.status in (401, 403):
            raise TargetForbidden(f"POST /v1/completions: {reply.said}")
        return reply
