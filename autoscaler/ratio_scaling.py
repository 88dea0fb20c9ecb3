"""The arithmetic of the Kubernetes HPA: ratio to a target, tolerance, windows, rates.

As its documentation and its tests describe it (autoscaling/v2 with a ``behavior``). Two policies
use it: ``hpa`` on any signal, ``queue_threshold`` as KEDA's users do. Knows no bounds: guards do.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.evidence import grounded
from autoscaler.model import Metrics, Observation, Proposal
from autoscaler.parameters import require_number
from autoscaler.window import RollingMax, RollingMin, elapsed

SIGNALS = tuple(f.name for f in fields(Metrics) if f.name != "window_s")
SELECTS = ("max", "min", "disabled")

_LARGEST = 10**9
"""What is beyond counts as this: the guards make the highest permitted width of it."""
_ROUNDING = 1e-9
"""Products that are whole but for a rounding error are whole."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One signal and what it is to be held at.

    Args:
        signal: a field of ``Metrics``.
        target: > 0, in the signal's own unit.
        per_width: whether the target is for one unit of width (the signal is a total, as a queue
            depth is), or for the signal itself (a ratio or a latency).
    """

    signal: str
    target: float
    per_width: bool

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise ConfigError(f"signal: must be one of {', '.join(SIGNALS)}; got {self.signal!r}")
        require_number("target", self.target, 0, above=True)


@dataclass(frozen=True, slots=True)
class Rate:
    """How much may change within ``period_s`` seconds: a share in percent, or units of width."""

    amount: float
    percent: bool
    period_s: float


@dataclass(frozen=True, slots=True)
class Direction:
    """The limits in one direction.

    Args:
        window_s: how long a wish has to last before it counts, >= 0.
        rates: limits of speed; none: no limit.
        select: ``max``: the rate that allows the larger change decides; ``min``: the smaller;
            ``disabled``: no change in this direction.
    """

    window_s: float
    rates: tuple[Rate, ...]
    select: str = "max"


def rates(key: str, given: Sequence[Mapping[str, float]]) -> tuple[Rate, ...]:
    """Rates from ``{percent: 100, period_s: 15}`` or ``{width: 4, period_s: 15}``.

    Raises:
        ConfigError: other keys, or values not > 0.
    """
    made = []
    for i, one in enumerate(given):
        where = f"{key}[{i}]"
        kinds = [kind for kind in ("percent", "width") if kind in one]
        if len(kinds) != 1 or set(one) != {kinds[0], "period_s"}:
            rule = "must have period_s and either percent or width"
            raise ConfigError(f"{where}: {rule}; got {dict(one)!r}")
        for name, value in one.items():
            require_number(f"{where}.{name}", value, 0, above=True)
        made.append(Rate(one[kinds[0]], kinds[0] == "percent", one["period_s"]))
    return tuple(made)


def require_select(key: str, value: str) -> None:
    """Refuse all but max, min and disabled.

    Raises:
        ConfigError: another word.
    """
    if value not in SELECTS:
        raise ConfigError(f"{key}: must be one of {', '.join(SELECTS)}; got {value!r}")


def wanted(metric: Metric, value: float, width: int, tolerance: float) -> int:
    """The width at which the signal would be at its target, load and width being proportional.

    Args:
        metric: what is held where.
        value: of the signal, in its unit.
        width: that the value was measured at; 0 counts as 1, so that nothing is multiplied by 0.
        tolerance: ratios from 1 - tolerance to 1 + tolerance, both included, change nothing.
    """
    units = max(value, 0.0) / metric.target
    ratio = units / max(width, 1) if metric.per_width else units
    if width > 0 and 1.0 - tolerance <= ratio <= 1.0 + tolerance:
        return width
    needed = ratio * max(width, 1)
    return math.ceil(needed - _ROUNDING) if needed < _LARGEST else _LARGEST


class Behaviour:
    """Stabilisation windows and rates; remembers wishes and real changes.

    A wish moves the width up no further than the lowest wish of the up window, and down no
    further than the highest of the down window. Rates count from the width at the start of their
    period: the present one without the changes since; percentages of growth from no more than
    what serves, or members that are still starting would be multiplied as if they helped already.
    """

    def __init__(self, up: Direction, down: Direction) -> None:
        self.up, self.down = up, down
        self._lowest, self._highest = RollingMin(up.window_s), RollingMax(down.window_s)
        self._changes: deque[tuple[float, int]] = deque()
        self._longest_s = max((r.period_s for r in (*up.rates, *down.rates)), default=0.0)
        self._latest_s = float("-inf")

    def began(self, width: int, at_s: float) -> None:
        """Enter what is there at the start as a wish, where a window holds the past at all."""
        if self.up.window_s > 0:
            self._lowest.add(at_s, width)
        if self.down.window_s > 0:
            self._highest.add(at_s, width)

    def remember(self, wish: int, at_s: float) -> None:
        """Enter a wish into both windows; a clock that went back begins them anew."""
        if at_s < self._latest_s:
            self._lowest.clear()
            self._highest.clear()
            self._changes.clear()
        self._latest_s = at_s
        self._lowest.add(at_s, wish)
        self._highest.add(at_s, wish)

    def changed(self, by: int, at_s: float) -> None:
        """Enter a real change of the width."""
        self._changes.append((at_s, by))

    def stabilised(self, width: int, now_s: float) -> int:
        """The width between the windows' bounds that is nearest to the present one."""
        low, high = self._lowest.value(now_s), self._highest.value(now_s)
        if low is not None and width < low:
            width = int(low)
        if high is not None and width > high:
            width = int(high)
        return width

    def limited(self, wish: int, width: int, now_s: float, serving: int | None = None) -> int:
        """As much of the way from ``width`` to ``wish`` as the rates allow.

        ``serving``: how much of ``width`` serves; None: all of it.
        """
        changes = self._changes
        while changes and elapsed(changes[0][0], now_s, self._longest_s):
            changes.popleft()
        if wish > width:
            if self.up.select == "disabled":
                return width
            ready = width if serving is None else serving
            limits = [self._highest_allowed(rate, width, now_s, ready) for rate in self.up.rates]
            if limits:
                limit = max(limits) if self.up.select == "max" else min(limits)
                wish = min(wish, max(limit, width))
        elif wish < width:
            if self.down.select == "disabled":
                return width
            limits = [self._lowest_allowed(rate, width, now_s) for rate in self.down.rates]
            if limits:
                limit = min(limits) if self.down.select == "max" else max(limits)
                wish = max(wish, min(limit, width))
        return wish

    def _start(self, rate: Rate, width: int, now_s: float) -> int:
        recent = (by for at_s, by in self._changes if not elapsed(at_s, now_s, rate.period_s))
        return width - sum(recent)

    def _highest_allowed(self, rate: Rate, width: int, now_s: float, ready: int) -> int:
        start = self._start(rate, width, now_s)
        if rate.percent:
            return math.ceil(min(start, ready) * (1.0 + rate.amount / 100.0) - _ROUNDING)
        return math.ceil(start + rate.amount - _ROUNDING)

    def _lowest_allowed(self, rate: Rate, width: int, now_s: float) -> int:
        start = self._start(rate, width, now_s)
        limit = start * (1.0 - rate.amount / 100.0) if rate.percent else start - rate.amount
        return max(math.floor(limit + _ROUNDING), 0)


class RatioScaler:
    """The HPA's loop over one or several metrics; the largest wish wins.

    Args:
        metrics: what is held where, >= 1.
        tolerance: share of the target by which a signal may be off, >= 0.
        behaviour: windows and rates; one of its own for each scaler.
        period_s: time between two evaluations, s, >= 0; between them the last wish stands.
    """

    def __init__(
        self, metrics: Sequence[Metric], tolerance: float, behaviour: Behaviour, period_s: float
    ) -> None:
        self._metrics = tuple(metrics)
        self._tolerance = tolerance
        self._behaviour = behaviour
        self._period_s = period_s
        self._evaluated_at_s: float | None = None
        self._desired: int | None = None
        self._said: Proposal | None = None

    def propose(self, obs: Observation) -> Proposal:
        """The width wanted now; never a smaller one on missing data."""
        now_s, desired = obs.now_s, obs.width.desired
        if self._desired is None:
            # As the HPA does: a restart is no reason to give up what is there.
            self._behaviour.began(desired, now_s)
        elif desired != self._desired:
            self._behaviour.changed(desired - self._desired, now_s)
        self._desired = desired
        last_s = self._evaluated_at_s
        if (
            self._said is None
            or last_s is None
            or last_s > now_s
            or elapsed(last_s, now_s, self._period_s)
        ):
            self._evaluated_at_s = now_s
            self._said = self._evaluate(obs)
        elif self._said.width < obs.width.present and self._unknown(obs):
            return Proposal(obs.width.present, "unknown", "no shrink on what has become unknown")
        return grounded(self._said, obs)

    def state(self) -> dict[str, Any]:
        """When it was evaluated last, and what came of it."""
        said = self._said
        return {
            "evaluated_at_s": self._evaluated_at_s,
            "wish": None if said is None else said.width,
        }

    def _unknown(self, obs: Observation) -> bool:
        return any(getattr(obs.metrics, m.signal).value is None for m in self._metrics)

    def _evaluate(self, obs: Observation) -> Proposal:
        now_s, desired, behaviour = obs.now_s, obs.width.desired, self._behaviour
        wish, seen, unknown = self._wish(obs)
        if wish is None:
            return Proposal(desired, "unknown", f"no metric: {unknown}")
        if unknown and wish < obs.width.present:
            return Proposal(desired, "unknown", f"no shrink while {unknown}; {seen}")
        behaviour.remember(wish, now_s)
        stable = behaviour.stabilised(desired, now_s)
        width = behaviour.limited(stable, desired, now_s, obs.width.present)
        if width != stable:
            return Proposal(width, "rate_limited", f"{seen}: {wish}; the rates allow {width} now")
        if stable != wish:
            return Proposal(width, "stabilised", f"{seen}: {wish}; the window holds {width}")
        if width == obs.width.present:
            return Proposal(width, "within_tolerance", seen)
        return Proposal(width, "ratio", seen)

    def _wish(self, obs: Observation) -> tuple[int | None, str, str]:
        """The largest wish (None: no metric is known), where it is from, and what is unknown."""
        best: int | None = None
        seen, unknown = "", []
        for metric in self._metrics:
            signal = getattr(obs.metrics, metric.signal)
            value = signal.at_least
            if value is None:
                unknown.append(f"{metric.signal} is unknown ({signal.status})")
                continue
            wish = wanted(metric, value, obs.width.present, self._tolerance)
            if signal.value is None and wish <= obs.width.present:
                unknown.append(f"{metric.signal} is only known to be at least {value:g}")
                continue
            if best is None or wish > best:
                best, seen = wish, _seen(metric, value, obs.width.present)
        return best, seen, ", ".join(unknown)


def _seen(metric: Metric, value: float, width: int) -> str:
    """For people: the value as read, what that is a width where the target is for one, the target.

    Both, because a total that is taken for a mean, or the other way round, shows in nothing else.
    """
    if not metric.per_width:
        return f"{metric.signal} {value:.5g}, target {metric.target:g}"
    each = value / max(width, 1)
    return f"{metric.signal} {value:.5g}, {each:.4g} a width, target {metric.target:g} a width"
