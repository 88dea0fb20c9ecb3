"""The expert-parallel width of a bare vLLM, through ``/scale_elastic_ep``.

The engine has no getter of its width. What counts is what it proves: a refused rank of -1 names
the front end's bound, and a token served on every rank makes it a width. Neither a 200 to the
resize nor the number of ``engine`` labels does: after a measured growth the 200 came 9.2 s before
the first token, and a refused one left series of an engine that did not exist.

A resize blocks its call for minutes. The call waits in a thread of its own, and its answer is
taken into account by the reading after it. A call whose answer is lost is never sent again: the
readings after it show what became of it.
"""

from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from autoscaler.clock import SystemClock
from autoscaler.cluster.answers import NotSent, Unclear
from autoscaler.errors import ConfigError, TargetError
from autoscaler.model import Capabilities, Layer, SetOutcome, SetResult, Tristate, WidthStatus
from autoscaler.parameters import require_number, require_whole
from autoscaler.ports import Clock
from autoscaler.targets._engine import EngineApi, Reply, begin, require_url
from autoscaler.targets._rank_probe import Look, RankProbe, Seen

_FLOOR = 2
"""Least width of a stock engine: below it elastic mode refuses, or the engine dies (A22)."""


@dataclass(frozen=True, slots=True)
class Params:
    """Which engine, and what it permits.

    Args:
        url: of its HTTP API, http(s)://host[:port].
        max_width: largest width to ask for; ``--elastic-ep-max-dp-size``, or what the cluster has.
        gpus_per_width: GPUs of one rank (tensor parallel size), >= 1. Never guessed.
        min_width: least width to ask for; below 2 only with ``width_one_works``.
        width_one_works: this engine is patched to serve with a single rank.
        model: served model name; None: the first that ``/v1/models`` lists.
        timeout_s: deadline of one reading or of sending one resize, s, > 0 and below the tick.
        can_shrink: whether a smaller width may be asked for. Requests that run on the ranks that
            go are cut off, or hang until their client gives up.
        drain_timeout_s: how long a shrinking engine may wait for running requests, s, >= 1. It
            waits only where it was started with VLLM_ELASTIC_EP_DRAIN_REQUESTS=1.
        answer_timeout_s: how long the answer to a resize is waited for, s, > 0. Measured: 28 to
            67 s; a growth that loads weights takes minutes.
        lost_after_s: how long the old width has to be proven after a lost answer before the resize
            counts as failed, s, > 0.
        proof_timeout_s: limit of the one token that each rank has to serve, s, > 0. Under
            overload it waits in the queue like any other.
        forget_failure_s: how long a failed resize stays the desired width, s, > 0, before the
            width that serves takes its place and the same growth may be tried again; each try
            resets the engine's metrics.
        pause_s: interruption of service by one resize, s; None: unknown.
        api_key_file: holds the engine's API key; None: none.
        ca_file: certificate authorities to trust, PEM; None: the usual public ones.
    """

    url: str
    max_width: int
    gpus_per_width: int
    min_width: int = _FLOOR
    width_one_works: bool = False
    model: str | None = None
    timeout_s: float = 2.0
    can_shrink: bool = False
    drain_timeout_s: int = 120
    answer_timeout_s: float = 900.0
    lost_after_s: float = 60.0
    proof_timeout_s: float = 120.0
    forget_failure_s: float = 900.0
    pause_s: float | None = None
    api_key_file: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        require_url("url", self.url)
        require_whole("min_width", self.min_width, 1)
        if self.min_width < _FLOOR and not self.width_one_works:
            raise ConfigError(
                f"min_width: must be >= {_FLOOR}, below which a stock engine dies, unless "
                f"width_one_works is set; got {self.min_width}"
            )
        require_whole("max_width", self.max_width, self.min_width)
        require_whole("gpus_per_width", self.gpus_per_width, 1)
        require_whole("drain_timeout_s", self.drain_timeout_s, 1)
        for key in ("timeout_s", "answer_timeout_s", "lost_after_s", "proof_timeout_s"):
            require_number(key, getattr(self, key), 0, above=True)
        require_number("forget_failure_s", self.forget_failure_s, 0, above=True)
        require_number("pause_s", self.pause_s, 0)


class Vllm:
    """Steers one engine.

    Args:
        params: which one.
        api: its HTTP API.
        clock: for patience only.
    """

    def __init__(self, params: Params, api: EngineApi, clock: Clock) -> None:
        self.params = params
        self._api = api
        self._clock = clock
        self._probe = RankProbe(api, params.model)
        self._desired: int | None = None
        self._serving: int | None = None  # bound at which every rank has served a token
        self._stable: int | None = None
        self._looking: Future[Seen] | None = None
        self._resize: Future[Reply] | None = None
        self._proof: Future[int] | None = None
        self._doubted = ""  # why the last proof did not come off
        self._lost_at_s: float | None = None
        self._failure: str | None = None
        self._failed_at_s = 0.0
        self._failed_from: int | None = None

    def read(self) -> WidthStatus:
        """The width as the engine proves it.

        ``desired`` is what was asked for last, by this object; else what the engine has.

        Raises:
            TargetForbidden: the engine refuses the key.
            TargetError: no answer, or the engine scales and was never seen at rest.
        """
        self._take_answer()
        try:
            seen = self._look_once()
        except TargetError as error:
            if self._resize is None:
                if isinstance(error, NotSent):
                    self._serving = None  # it may be another process by the time it is back
                raise
            return self._status(None, resizing=True, detail=str(error))
        if seen.look is Look.SCALING:
            self._doubt()
            return self._status(None, resizing=True, detail=seen.detail)
        if seen.look is Look.ODD:
            return self._status(None, resizing=self._in_flight, detail=seen.detail)
        self._settle(seen.bound)
        return self._proven(seen.bound)

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Send the resize; APPLIED means that the engine is at it, not that it is over.

        What the engine answers within ``timeout_s`` counts at once: a 4xx is a refusal. A 5xx is
        ambiguous, and the reading after it names the failure.
        """
        params, desired = self.params, self._desired
        if desired is None:
            return SetOutcome(SetResult.CONFLICT, detail="the width was not read yet")
        if expected != desired:
            return SetOutcome(SetResult.CONFLICT, detail=f"the width is {desired}")
        if self._in_flight:
            return SetOutcome(SetResult.CONFLICT, detail="a resize is in flight")
        if not params.min_width <= width <= params.max_width:
            limits = f"{params.min_width} to {params.max_width}"
            return SetOutcome(SetResult.REFUSED, detail=f"width must be {limits}; got {width}")
        if width < self._present(desired) and not params.can_shrink:
            return SetOutcome(SetResult.REFUSED, detail="can_shrink is not set")
        body = {"new_data_parallel_size": width, "drain_timeout": params.drain_timeout_s}
        self._resize = begin(f"resize to {width}", lambda: self._post("/scale_elastic_ep", body))
        wait([self._resize], params.timeout_s)
        if not self._resize.done():
            return self._sent(width, SetOutcome(SetResult.APPLIED, detail="in progress"))
        resize, self._resize = self._resize, None
        return self._answered(width, resize)

    def capabilities(self) -> Capabilities:
        """What the configuration says; an engine tells nothing of it."""
        params = self.params
        return Capabilities(
            params.min_width,
            params.max_width,
            can_shrink=Tristate.YES if params.can_shrink else Tristate.NO,
            gpus_per_width=params.gpus_per_width,
            pause_s=params.pause_s,
        )

    @property
    def _in_flight(self) -> bool:
        return self._resize is not None or self._lost_at_s is not None

    def _present(self, desired: int) -> int:
        return desired if self._stable is None else self._stable

    def _post(self, path: str, body: dict[str, Any]) -> Reply:
        return self._api.call("POST", path, self.params.answer_timeout_s, body)

    # The answer to a resize.

    def _sent(self, width: int, outcome: SetOutcome) -> SetOutcome:
        """The engine got it, whatever it makes of it."""
        self._failed_from = self._stable
        self._desired, self._failure = width, None
        self._doubt()
        return outcome

    def _answered(self, width: int, resize: Future[Reply]) -> SetOutcome:
        """An answer that came at once."""
        try:
            reply = resize.result()
        except NotSent as error:
            return SetOutcome(SetResult.SKIPPED, detail=str(error))
        except TargetError as error:
            self._lost_at_s = self._clock.now_s()
            return self._sent(width, SetOutcome(SetResult.AMBIGUOUS, detail=str(error)))
        said = f"POST /scale_elastic_ep: {reply.said}"
        if reply.status == 200:
            return self._sent(width, SetOutcome(SetResult.APPLIED, detail=said))
        if reply.status in (401, 403):
            return SetOutcome(SetResult.FORBIDDEN, detail=said)
        if reply.status == 503:
            return SetOutcome(SetResult.CONFLICT, detail=f"{said} (another resize is in flight)")
        if 400 <= reply.status < 500 and reply.status != 408:
            return SetOutcome(SetResult.REFUSED, detail=said)
        outcome = self._sent(width, SetOutcome(SetResult.AMBIGUOUS, detail=said))
        self._fail(said)
        return outcome

    def _take_answer(self) -> None:
        """Take the answer that has come since the last reading into account."""
        if self._resize is None or not self._resize.done():
            return
        resize, self._resize = self._resize, None
        self._doubt()
        try:
            reply = resize.result()
        except TargetError as error:
            self._lost_at_s = self._clock.now_s()
            self._doubted = str(error)
            return
        if reply.status != 200:
            self._fail(f"POST /scale_elastic_ep: {reply.said}")

    def _fail(self, why: str) -> None:
        self._failure = f"{why}; asked for {self._desired}"
        self._failed_at_s = self._clock.now_s()
        self._lost_at_s = None

    def _settle(self, bound: int) -> None:
        """What the bound says of the desired width, once the engine is at rest."""
        now_s = self._clock.now_s()
        if self._resize is not None:
            return
        if self._lost_at_s is not None:
            if bound == self._desired:
                self._lost_at_s = None  # it has worked, nobody told us
            elif now_s - self._lost_at_s >= self.params.lost_after_s:
                waited = f"and the width is still {bound} after {self.params.lost_after_s:g} s"
                self._fail(f"the answer to the resize was lost {waited} ({self._doubted})")
            return
        if bound == self._desired:
            return
        unmoved = self._failure is not None and bound == (self._failed_from or bound)
        if unmoved and now_s - self._failed_at_s < self.params.forget_failure_s:
            return
        self._desired, self._failure = bound, None  # somebody else's, or forgotten

    # What the engine proves.

    def _look_once(self) -> Seen:
        if self._looking is None or self._looking.done():
            timeout_s = self.params.timeout_s
            self._looking = begin("look at the engine", lambda: self._probe.look(timeout_s))
        wait([self._looking], self.params.timeout_s)
        if not self._looking.done():
            # It keeps its thread: an engine that hangs costs one, not one a tick.
            raise Unclear(f"no whole answer in {self.params.timeout_s:g} s")
        looking, self._looking = self._looking, None
        return looking.result()

    def _proven(self, bound: int) -> WidthStatus:
        """Have every rank serve a token, once after each change; then the bound is enough."""
        proof = self._proof
        if proof is not None and proof.done():
            self._proof = None
            try:
                served = proof.result()
            except TargetError as error:
                self._doubted = str(error)
            else:
                self._serving = self._stable = served
        if self._serving == bound:
            return self._status(bound, resizing=self._in_flight)
        if self._proof is None:
            self._proof = begin(
                f"prove {bound} ranks",
                lambda: self._probe.prove(bound, self.params.proof_timeout_s),
            )
        detail = f"{bound} ranks have to serve a token each"
        detail += f"; {self._doubted}" if self._doubted else ""
        return self._status(None, resizing=self._in_flight, bound=bound, detail=detail)

    def _doubt(self) -> None:
        """What was proven before is proven no more; a proof under way is not waited for."""
        self._serving = self._proof = None

    def _status(
        self, effective: int | None, *, resizing: bool, bound: int | None = None, detail: str = ""
    ) -> WidthStatus:
        desired = self._desired
        if desired is None and bound is not None:
            desired = bound
        if desired is None and effective is None:
            raise TargetError(f"the width is not known yet: {detail}")
        if desired is None:
            desired = effective or 0
        layers: tuple[Layer, ...] = ()
        if bound is not None and effective is None:
            layers = (Layer("rank_bound", bound, detail),)
        return WidthStatus(
            desired,
            effective,
            self._stable,
            layers=layers,
            failure=self._failure,
            resizing=resizing,
            detail=detail,
        )


def build(params: Params) -> Vllm:
    """The target."""
    api = EngineApi(params.url, params.api_key_file, params.ca_file)
    return Vllm(params, api, SystemClock())
