"""The single limits that ``guards`` applies: one small function each, and what they remember.

Each takes the history, a wished width and the observation, and answers with the width after it,
a stable short code and a reason for people; or None, where it has nothing to object. "Present"
is ``obs.width.present``; answering with it means: no change.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from autoscaler.errors import ConfigError
from autoscaler.model import Capabilities, Observation, Tristate
from autoscaler.parameters import require_number, require_whole
from autoscaler.window import RollingMax, elapsed

_HOUR_S = 3600.0
_REQUIRED = ("auto", "always", "never")

Verdict = tuple[int, str, str] | None


@dataclass(frozen=True, slots=True)
class Params:
    """Limits; each shortens or delays a change, none causes one.

    Args:
        min_width: lowest width ever asked for, >= 0. Larger: more idle capacity, less to catch up.
        max_width: highest width ever asked for, >= min_width; None: the target's own limit.
        max_gpus: GPUs that may be occupied, width x GPUs per width, >= 1; None: no budget.
        max_step_up: units of width that one resize may add, >= 1; None: no limit. One place on
            the lattice is always allowed. Larger: fewer resizes, more overshoot.
        max_step_down: the same for removing; None: no limit.
        cooldown_up_s: time from the end of a resize until growth, s, >= 0. Larger: slower to
            follow a climb, fewer resizes.
        cooldown_down_s: time from the end of a resize until a shrink, s, >= 0. Larger: more
            GPU-hours, fewer reversals.
        scale_down_window_s: a shrink goes no lower than the highest wish of the last so many
            seconds, and none happens before the first full window after the start, >= 0.
            Larger: rides out longer lulls, costs GPU-hours.
        max_reversals_per_hour: changes of direction in a rolling hour, >= 1, after which the
            next one is held; None: no limit. Larger: follows faster cycles, wears the engine more.
        allow_shrink_attempt: whether to try a shrink on a target that has not said whether it
            can. True: may cost one refused write, or an outage where the engine is not up to it.
        settle_s: time after the end of a resize in which metrics still speak of the old width or
            of the resize itself, s, >= 0: no shrink. At least the metrics' window.
        settle_holds_growth: whether growth waits for settle_s too. False: reacts sooner, and to
            the time to first token that the resize itself has caused.
        override_hold_s: how long a width that somebody else has set is left alone, s, >= 0.
            Larger: a person is respected longer, and an overload served worse meanwhile.
        fight_after: writes of somebody else, each after one of ours, within fight_window_s, after
            which it is a fight and we stop, >= 1; None: never. Larger: more resizes until then.
        fight_window_s: the window of fight_after, s, > 0; time spent in override_hold_s is not
            counted. A fight is over when the other has been quiet for the longer of the two.
        require_capacity: whether growth that the cluster is known to have no GPUs for is held:
            auto (where it could not be undone), always, or never. Where nodes are added only for
            Pods that wait for one, never is the choice: such GPUs are not seen before.
    """

    min_width: int = 1
    max_width: int | None = None
    max_gpus: int | None = None
    max_step_up: int | None = None
    max_step_down: int | None = None
    cooldown_up_s: float = 0.0
    cooldown_down_s: float = 30.0
    scale_down_window_s: float = 60.0
    max_reversals_per_hour: int | None = 4
    allow_shrink_attempt: bool = False
    settle_s: float = 30.0
    settle_holds_growth: bool = True
    override_hold_s: float = 1800.0
    fight_after: int | None = 3
    fight_window_s: float = 1800.0
    require_capacity: str = "auto"

    def __post_init__(self) -> None:
        require_whole("guards.min_width", self.min_width, 0)
        require_whole("guards.max_width", self.max_width, self.min_width)
        require_whole("guards.max_gpus", self.max_gpus, 1)
        require_whole("guards.max_step_up", self.max_step_up, 1)
        require_whole("guards.max_step_down", self.max_step_down, 1)
        require_number("guards.cooldown_up_s", self.cooldown_up_s, 0)
        require_number("guards.cooldown_down_s", self.cooldown_down_s, 0)
        require_number("guards.scale_down_window_s", self.scale_down_window_s, 0)
        require_whole("guards.max_reversals_per_hour", self.max_reversals_per_hour, 1)
        require_number("guards.settle_s", self.settle_s, 0)
        require_number("guards.override_hold_s", self.override_hold_s, 0)
        require_whole("guards.fight_after", self.fight_after, 1)
        require_number("guards.fight_window_s", self.fight_window_s, 0, above=True)
        if self.require_capacity not in _REQUIRED:
            rule = f"must be one of {', '.join(_REQUIRED)}"
            raise ConfigError(f"guards.require_capacity: {rule}; got {self.require_capacity!r}")


@dataclass(slots=True)
class History:
    """What the limits have to remember of the past.

    Args:
        params: the limits' own parameters.
        wishes: permitted widths that were wished for, for the scale-down window.
        started_at_s: instant of the first observation; None: none yet.
        over_at_s: when the last real resize was over, or began where it is not; None: none yet.
        direction: of the last real resize: 1 up, -1 down, 0 none yet.
        reversals: instants of real changes of direction, oldest first.
    """

    params: Params
    wishes: RollingMax
    started_at_s: float | None = None
    over_at_s: float | None = None
    direction: int = 0
    reversals: deque[float] = field(default_factory=deque)


def whole(wish: float, obs: Observation, reach: Capabilities) -> tuple[int, Verdict]:
    """A whole and finite width, before anything else converts it: no NaN becomes a number."""
    if wish != wish:  # NaN, whatever its type
        present = obs.width.present
        return present, (present, "non_finite", "the wish is not a number")
    if math.isinf(wish):
        width = reach.max_width if wish > 0 else reach.min_width
        return width, (width, "saturated", f"the wish is {wish}")
    return math.ceil(wish - 1e-9), None  # never below the wish


def bounds(history: History, width: int, obs: Observation, reach: Capabilities) -> Verdict:
    """Into the bounds: the target's, the configured ones, and the GPU budget."""
    low, high = reach.min_width, reach.max_width
    if low <= width <= high:
        return None
    if low > high:
        present = obs.width.present
        return present, "nothing_permitted", "bounds, lattice and GPU budget leave no width"
    asked = str(width) if abs(width) < 10**9 else "a wish beyond all reason"
    if width < low:
        return low, "min_width", f"{asked} is below the lowest permitted width {low}"
    params, capabilities = history.params, obs.capabilities
    unbudgeted = ceiling(params, capabilities, budgeted=False)
    if params.max_gpus is not None and params.max_gpus < unbudgeted * capabilities.gpus_per_width:
        per_width = capabilities.gpus_per_width
        return high, "gpu_budget", f"{asked} x {per_width} exceeds {params.max_gpus} GPUs"
    return high, "max_width", f"{asked} is above the highest permitted width {high}"


def lattice(_history: History, width: int, obs: Observation, reach: Capabilities) -> Verdict:
    """Up to the next permitted width in either direction: never less than was wished for."""
    valid_widths = reach.valid_widths
    if not valid_widths or width in valid_widths or width == obs.width.present:
        return None
    for valid in valid_widths:
        if valid > width:
            return valid, "lattice", f"{width} is not a valid width, the next one is {valid}"
    return valid_widths[-1], "lattice", f"{width} is above the last one, {valid_widths[-1]}"


def window(history: History, width: int, obs: Observation, reach: Capabilities) -> Verdict:
    """No lower than the highest wish within the scale-down window."""
    highest = history.wishes.value(obs.now_s)
    if highest is None or highest <= width or width >= obs.width.present:
        return None
    # What was permitted when it was wished for need not be permitted any more.
    kept = min(int(highest), obs.width.present, max(reach.max_width, width))
    if kept != obs.width.present and reach.valid_widths is not None:
        kept = min((w for w in reach.valid_widths if w >= kept), default=width)
        kept = min(kept, obs.width.present)
    if kept == width:
        return None
    window_s = history.params.scale_down_window_s
    return kept, "scale_down_window", f"{kept} was wished for within the last {window_s:g} s"


def step(history: History, width: int, obs: Observation, reach: Capabilities) -> Verdict:
    """At most the step, at least one place on the lattice: a step between places would stall."""
    present = obs.width.present
    up = width > present
    limit = history.params.max_step_up if up else history.params.max_step_down
    if limit is None or abs(width - present) <= limit:
        return None
    places = reach.valid_widths
    if places is None:
        # Back into the bounds at once, however far that is.
        limited = (
            max(present + limit, reach.min_width) if up else min(present - limit, reach.max_width)
        )
    elif up:
        within = [w for w in places if present < w <= present + limit]
        limited = within[-1] if within else min(reach.neighbour(present, 1), width)
    else:
        within = [w for w in places if present - limit <= w < present]
        limited = within[0] if within else max(reach.neighbour(present, -1), width)
    if limited == width:
        return None
    return limited, "step_limit", f"{width} is more than {limit} away from {present}"


def shrink_unsupported(
    history: History, _width: int, obs: Observation, _reach: Capabilities
) -> Verdict:
    """No decrease on a target that cannot, or has not said that it can."""
    can = obs.capabilities.can_shrink
    if can is Tristate.YES or (can is Tristate.UNKNOWN and history.params.allow_shrink_attempt):
        return None
    reason = (
        "the target cannot shrink"
        if can is Tristate.NO
        else "whether the target can shrink is unknown, and no attempt is allowed"
    )
    return obs.width.present, "shrink_unsupported", reason


def missing_data(_history: History, width: int, obs: Observation, _reach: Capabilities) -> Verdict:
    """No decrease on what is not known.

    A p95 TTFT missing for want of requests is fine where it is known that there is nothing to
    do: that is idleness, not blindness. A width below that of a growth which has failed, and above
    the one that serves, takes nothing away: where none serves, no first token would ever come.
    """
    metrics = obs.metrics
    if obs.width.effective is not None and width > obs.width.effective:
        return None
    if metrics.queue_depth.value is None:
        missing = f"queue depth unknown ({metrics.queue_depth.status})"
    elif obs.width.effective is None:
        missing = "effective width unknown"
    elif metrics.ttft_p95_s.value is None and not obs.idle:
        missing = f"p95 TTFT unknown ({metrics.ttft_p95_s.status})"
    else:
        return None
    return obs.width.present, "missing_data", f"no shrink: {missing}"


def warm_up(history: History, _width: int, obs: Observation, _reach: Capabilities) -> Verdict:
    """No decrease before one full window of history of one's own."""
    history_s = max(history.params.scale_down_window_s, obs.metrics.window_s)
    started_at_s = history.started_at_s
    if started_at_s is not None and elapsed(started_at_s, obs.now_s, history_s):
        return None
    return obs.width.present, "warming_up", f"no full window of {history_s:g} s since the start"


def settling(history: History, width: int, obs: Observation, _reach: Capabilities) -> Verdict:
    """Nothing on metrics that still speak of the last resize, or of the width before it."""
    present, over_at_s, settle_s = obs.width.present, history.over_at_s, history.params.settle_s
    if over_at_s is None or elapsed(over_at_s, obs.now_s, settle_s):
        return None
    if width > present and not history.params.settle_holds_growth:
        return None
    return present, "settling", f"the metrics settle for {settle_s:g} s after a resize"


def cooldown(history: History, width: int, obs: Observation, _reach: Capabilities) -> Verdict:
    """Nothing too soon after the last real resize."""
    params, present, over_at_s = history.params, obs.width.present, history.over_at_s
    up = width > present
    cooldown_s = params.cooldown_up_s if up else params.cooldown_down_s
    if over_at_s is None or elapsed(over_at_s, obs.now_s, cooldown_s):
        return None
    code = "cooldown_up" if up else "cooldown_down"
    return present, code, f"less than {cooldown_s:g} s since the last resize was over"


def flap_budget(history: History, width: int, obs: Observation, _reach: Capabilities) -> Verdict:
    """No further change of direction once the hour's budget is spent."""
    budget, present = history.params.max_reversals_per_hour, obs.width.present
    direction = 1 if width > present else -1
    if budget is None or direction * history.direction >= 0:
        return None
    reversals = history.reversals
    while reversals and elapsed(reversals[0], obs.now_s, _HOUR_S):
        reversals.popleft()
    if len(reversals) < budget:
        return None
    return present, "flap_budget", f"{len(reversals)} changes of direction within the hour"


def capacity(history: History, width: int, obs: Observation, reach: Capabilities) -> Verdict:
    """No wider than there are GPUs for, where that is known and growth could not be undone.

    A growth without GPUs on a target that cannot shrink never ends and is never taken back
    (GPUStack: the operator has no deadline, and admission refuses the way back).
    """
    can, present = obs.capabilities, obs.width.present
    required = history.params.require_capacity
    undoable = required == "auto" and can.can_shrink is Tristate.YES
    if can.free_gpus is None or required == "never" or undoable:
        return None
    # What the deployment holds is not free and needs not be: also of a growth that came to nothing.
    held = max([present, *(x.value or 0 for x in obs.width.layers if x.name == "allocated")])
    fits = held + can.free_gpus // can.gpus_per_width
    if width <= fits:
        return None
    needed, free = (width - held) * can.gpus_per_width, can.free_gpus
    reason = f"{needed} more GPUs are needed for width {width}, there are {free}: {can.capacity}"
    if reach.valid_widths is not None:
        fits = max((w for w in reach.valid_widths if w <= fits), default=present)
    growing = fits > present and fits >= obs.width.desired
    return (fits if growing else present), "no_capacity", reason


def ceiling(params: Params, capabilities: Capabilities, *, budgeted: bool = True) -> int:
    """The highest width that target, configuration and (if ``budgeted``) GPU budget allow."""
    high = capabilities.max_width
    if params.max_width is not None:
        high = min(high, params.max_width)
    if budgeted and params.max_gpus is not None:
        high = min(high, params.max_gpus // capabilities.gpus_per_width)
    return high
