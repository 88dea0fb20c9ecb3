"""The values that cross every boundary: frozen, slotted, without behaviour worth a test double.

Times are seconds on the loop's own monotonic clock (``now_s``, ``at_s``); foreign time
stamps become ages before they get here. ``None`` always means unknown, never zero.
"""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.memory import Memory

WRITER = "autoscaler"
"""The name under which this program writes: that of its field manager."""


class SignalStatus(StrEnum):
    """Whether a signal has a value, or the reason why it has none."""

    OK = "ok"
    NO_SERIES = "no_series"
    """the series does not exist (yet), or the query matched nothing"""
    NO_OBSERVATIONS = "no_observations"
    """the series exists, nothing was observed in the window"""
    FEW_SAMPLES = "few_samples"
    """observed, but too few for a quantile or too few scrapes for a rate"""
    NON_FINITE = "non_finite"
    """NaN or infinite"""
    AMBIGUOUS = "ambiguous"
    """more elements than one where one was meant"""
    STALE = "stale"
    """the newest sample is too old, or the last scrape failed"""
    TOP_BUCKET = "top_bucket"
    """beyond the highest finite bucket bound: only ``lower_bound`` is known"""
    RESET = "reset"
    """a counter went back inside the window"""
    QUARANTINED = "quarantined"
    """measured in, or too soon after, a resize"""


@dataclass(frozen=True, slots=True, init=False)
class Signal:
    """One measured quantity: a value, or the named reason why there is none.

    Args:
        value: finite number in the unit of the field that holds the signal; None unless OK.
        status: OK exactly when ``value`` is not None.
        lower_bound: what the quantity is at least, where only that is known (TOP_BUCKET).
        detail: for people: the query, the engine, the age; may be empty.
    """

    value: float | None
    status: SignalStatus = SignalStatus.OK
    lower_bound: float | None = None
    detail: str = ""

    def __init__(
        self,
        value: float | None,
        status: SignalStatus = SignalStatus.OK,
        lower_bound: float | None = None,
        detail: str = "",
    ) -> None:
        # What dataclasses generate for a frozen class looks each slot up by name: 0.79 us instead
        # of 0.43, and a tick makes thirteen signals.
        _set_value(self, value)
        _set_status(self, status)
        _set_lower_bound(self, lower_bound)
        _set_detail(self, detail)

    @property
    def at_least(self) -> float | None:
        """The value, or its lower bound, or None: what may be compared with an upper limit."""
        return self.value if self.value is not None else self.lower_bound


_set_value = Signal.__dict__["value"].__set__
_set_status = Signal.__dict__["status"].__set__
_set_lower_bound = Signal.__dict__["lower_bound"].__set__
_set_detail = Signal.__dict__["detail"].__set__

MISSING = Signal(None, SignalStatus.NO_SERIES)


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a source read in one tick. Every field is in the unit its name ends in.

    Rates and quantiles cover the source's rolling window of ``window_s`` seconds.
    """

    window_s: float
    ttft_p95_s: Signal = MISSING
    """rolling p95 time to first token, of requests that got one (censored: see queue_depth)"""
    ttft_p95_penalised_s: Signal = MISSING
    """the same with every failure entered at the SLO's penalty"""
    slo_attainment_ratio: Signal = MISSING
    """share of observations (failures count as misses) at or under the TTFT objective, 0..1"""
    ttft_observations: Signal = MISSING
    """number of first tokens in the window"""
    itl_p95_s: Signal = MISSING
    """rolling p95 inter-token latency"""
    queue_depth: Signal = MISSING
    """requests waiting now, over all live engines; running ones are not counted"""
    queue_wait_s: Signal = MISSING
    """waiting / completion rate (Little's law): what the queue will cost the newest arrival"""
    running: Signal = MISSING
    """requests in execution now"""
    arrival_rps: Signal = MISSING
    """arrivals a second: counted where a router counts them, else completions plus growth"""
    completion_rps: Signal = MISSING
    failure_rps: Signal = MISSING
    prompt_tokens_per_s: Signal = MISSING
    output_tokens_per_s: Signal = MISSING
    prompt_tokens_mean: Signal = MISSING
    """tokens a request in the window"""
    output_tokens_mean: Signal = MISSING
    kv_cache_usage_ratio: Signal = MISSING
    """highest over the live engines, 0..1"""
    age_s: Signal = MISSING
    """how old the newest sample of all these is: what has happened since is not in them"""


class Tristate(StrEnum):
    """Yes, no, or unknown until tried."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a target can do with its width.

    Args:
        min_width, max_width: inclusive bounds the target itself imposes.
        valid_widths: ascending lattice of permitted widths; None: every integer in bounds.
        can_shrink: UNKNOWN until a decrease was tried or the operator said.
        gpus_per_width: GPUs that one unit of width occupies (tensor parallel size), >= 1.
        pause_s: expected interruption of service by one resize, s; None: unknown.
        free_gpus: GPUs that it could get besides those it has, in whole units of width, as seen
            some ticks ago at most; None: unknown.
        capacity: for people: what sets ``free_gpus`` (a quota, the nodes), or why it is unknown;
            "": the target does not look.
    """

    min_width: int
    max_width: int
    valid_widths: tuple[int, ...] | None = None
    can_shrink: Tristate = Tristate.UNKNOWN
    gpus_per_width: int = 1
    pause_s: float | None = None
    free_gpus: int | None = None
    capacity: str = ""

    def permits(self, width: int) -> bool:
        """Whether the width lies in bounds and on the lattice."""
        in_bounds = self.min_width <= width <= self.max_width
        return in_bounds and (self.valid_widths is None or width in self.valid_widths)

    def neighbour(self, width: int, steps: int) -> int:
        """The permitted width ``steps`` places above (negative: below) ``width``.

        Counts places on the lattice, not units of width, and stops at the last one there is.
        ``width`` itself where nothing is permitted in that direction, or ``steps`` is 0.
        """
        if self.valid_widths is None:
            if steps > 0:
                return max(width, min(max(width, self.min_width - 1) + steps, self.max_width))
            if steps < 0:
                return min(width, max(min(width, self.max_width + 1) + steps, self.min_width))
            return width
        low, high = self.min_width, self.max_width
        if steps > 0:
            above = [w for w in self.valid_widths if low <= w <= high and w > width]
            return above[min(steps, len(above)) - 1] if above else width
        below = [w for w in self.valid_widths if low <= w <= high and w < width]
        return below[max(steps, -len(below))] if below and steps else width


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of convergence as the operator sees it (admitted, allocated, ray, ...).

    ``value`` None means that the layer is unread: never zero capacity.
    """

    name: str
    value: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The Kubernetes object that a target is, as Events name what they are about.

    ``namespace`` "": the object has none. ``uid`` "": not read yet.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class WidthStatus:
    """The width of a deployment as read from its target in one tick.

    Args:
        desired: width in the spec that the operator is to reach.
        effective: width proven to serve in this read; None: not proven now.
        stable: last proven width, may be older than ``effective``; None: never proven.
        generation: generation of the spec read; None where the target has none.
        observed_generation: generation that the status speaks of; None: unknown or has none.
        incarnation: changes when the serving instance was replaced (uid); "" where unknown.
        layers: what lies between desired and effective, outermost first.
        refusal: the operator's definite refusal of the desired width; None: no refusal.
        failure: a resize that failed for good; None: none.
        resizing: the target says that a resize is going on; None: it cannot say.
        detail: for people.
        writer: who set the desired width last, by name; "" where nobody says.
        pause: what the object's own pause switch says, as it is there; None: it has none.
    """

    desired: int
    effective: int | None
    stable: int | None = None
    generation: int | None = None
    observed_generation: int | None = None
    incarnation: str = ""
    layers: tuple[Layer, ...] = ()
    refusal: str | None = None
    failure: str | None = None
    resizing: bool | None = None
    detail: str = ""
    writer: str = ""
    pause: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the desired width is kept in an object: one that moves was moved by somebody.

        Where it is not, it is what an engine happens to have, also after a crash.
        """
        return self.generation is not None or self.incarnation != ""

    @property
    def current(self) -> bool:
        """Whether the status speaks of the spec that was read."""
        return self.generation is None or self.generation == self.observed_generation

    @property
    def present(self) -> int:
        """The width that decisions start from: proven now, else proven last, else desired."""
        if self.effective is not None:
            return self.effective
        return self.desired if self.stable is None else self.stable


@dataclass(frozen=True, slots=True)
class Slo:
    """The objective. ``ttft_p95_s`` and ``window_s`` > 0; ``itl_p95_s`` None: no such objective.

    ``failure_penalty_s``: the TTFT at which a failed request enters the distribution
    (30 s in the near-zero-downtime Elastic EP study).
    """

    ttft_p95_s: float = 5.0
    itl_p95_s: float | None = None
    window_s: float = 30.0
    failure_penalty_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Resize:
    """A resize that this controller asked for (or adopted) and that is not over yet."""

    from_width: int
    to_width: int
    requested_at_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one decision may depend on.

    ``resize`` is filled in by the controller: the resize in flight, None when there is none.
    ``memory`` is what an earlier process left behind, in the one tick that begins with it.
    """

    tick: int
    now_s: float
    metrics: Metrics
    width: WidthStatus
    capabilities: Capabilities
    slo: Slo
    resize: Resize | None = None
    memory: Memory | None = None

    @property
    def idle(self) -> bool:
        """Whether it is *known* that there is nothing to do: empty queue, no arrival, none runs.

        Where arrivals are not counted, a window without a single first token stands for them.
        """
        metrics = self.metrics
        if metrics.queue_depth.value != 0 or (metrics.running.value or 0) > 0:
            return False
        if metrics.arrival_rps.value is not None:
            return metrics.arrival_rps.value == 0
        nothing = metrics.ttft_p95_s.status is SignalStatus.NO_OBSERVATIONS
        return nothing and metrics.ttft_observations.value in (0, None)

    @property
    def window_met(self) -> bool | None:
        """Whether the window is within the TTFT objective, as the score counts windows.

        Failures enter at their penalty. Without a single first token a window is met while nobody
        waits, and missed while somebody does. None: unknown.
        """
        p95, queue = self.metrics.ttft_p95_penalised_s, self.metrics.queue_depth.at_least
        if p95.status is SignalStatus.NO_SERIES:
            p95 = self.metrics.ttft_p95_s
        if p95.status is SignalStatus.NO_OBSERVATIONS:
            return None if queue is None else queue == 0
        if p95.value is None:
            beyond = p95.lower_bound is not None and p95.lower_bound >= self.slo.ttft_p95_s
            return False if beyond else None
        return p95.value <= self.slo.ttft_p95_s


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy or a guard wants. ``code`` is a short stable word, ``reason`` for people."""

    width: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of the controller said: its name, the width after it, code and reason."""

    name: str
    width: int | None
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """One tick's outcome. ``width`` None: hold; otherwise the absolute width to write.

    ``expected`` is the desired width that the write is conditional on; None: it could not be
    read, which is always a hold.
    """

    tick: int
    at_s: float
    width: int | None
    expected: int | None
    code: str
    reason: str
    trail: tuple[Stage, ...] = ()


class SetResult(StrEnum):
    """The answer to a write."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    """the width was not the expected one: read again, decide again"""
    REFUSED = "refused"
    """the operator said no, for good"""
    AMBIGUOUS = "ambiguous"
    """time-out, 408, 5xx, lost connection: may have happened; never resent, read back"""
    FORBIDDEN = "forbidden"
    """the credentials do not permit it"""
    SKIPPED = "skipped"
    """nothing was sent, on purpose: a dry run, or the server had asked to be left alone"""


@dataclass(frozen=True, slots=True)
class SetOutcome:
    """The answer to ``set_width``; ``generation`` is the one to wait for, None: unknown."""

    result: SetResult
    generation: int | None = None
    detail: str = ""
