"""Least widths by weekday and time of day, as a floor under any other policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.model import Observation, Proposal
from autoscaler.parameters import from_mapping, require_number
from autoscaler.ports import Policy, PolicyContext
from autoscaler.weekly import Weekly, local_instant, window, zone

_Scalar = bool | int | float | str
_Inner = Mapping[str, _Scalar | tuple[_Scalar | Mapping[str, _Scalar], ...] | None]


@dataclass(frozen=True, slots=True)
class Params:
    """The windows, and the policy that decides above them.

    Args:
        policy: a kind with its defaults (threshold, static:4), or a mapping of kind and
            parameters.
        timezone: IANA name that the times are in, e.g. Europe/Berlin. There is no default: the
            system's own zone is a surprise.
        windows: each a mapping of days (list of mon .. sun; absent: every day), from, to (local
            times in quotes; a "to" at or before "from" is on the next day) and min_width. Of
            open windows the largest min_width counts.
        lead_s: how long before its beginning a window opens, s, >= 0, <= 86400. Larger: the width
            is there in time, more GPU-hours.
        starts_at: local date and time of the first tick where there is no wall clock, as in a
            simulation; null: then there has to be one.
    """

    policy: str | _Inner
    timezone: str
    windows: tuple[Mapping[str, int | str | tuple[str, ...]], ...]
    lead_s: float = 0.0
    starts_at: str | None = "2026-01-05T07:45:00"

    def __post_init__(self) -> None:
        timezone = zone(self.timezone)
        self.weekly()
        require_number("lead_s", self.lead_s, 0, 86_400)
        if self.starts_at is not None:
            local_instant(self.starts_at, "starts_at", timezone)
        self.inner()

    def weekly(self) -> Weekly:
        """The windows.

        Raises:
            ConfigError: one of them is unusable.
        """
        windows = [window(one, f"windows[{i}]") for i, one in enumerate(self.windows)]
        return Weekly(windows, zone(self.timezone), self.lead_s)

    def inner(self) -> tuple[str, Any]:
        """The kind and the parameters of the policy that decides above the windows.

        Raises:
            ConfigError: unknown kind, key or value.
        """
        given = {"kind": self.policy} if isinstance(self.policy, str) else dict(self.policy)
        kind = given.pop("kind", None)
        if not isinstance(kind, str):
            known = ", ".join(plugins.names("policies"))
            raise ConfigError(f"policy.kind: must be one of {known}; got {kind!r}")
        kind, colon, argument = kind.partition(":")
        try:
            params = plugins.find("policies", kind).Params
        except ConfigError as error:
            raise ConfigError(f"policy: {error}") from error
        if not colon:
            return kind, from_mapping(params, given, "policy")
        if given or not hasattr(params, "from_argument"):
            raise ConfigError(f"policy: {kind} must be given without an argument or parameters")
        return kind, params.from_argument(argument)


class Schedule:
    """width = max(inner policy, least width of the windows that are open now).

    The time is ``context.epoch_s`` plus the loop's clock; where there is no wall clock, the first
    tick is at ``starts_at``. Both are fixed when the policy is built, so that equal observations
    give equal proposals; a wall clock that is set takes effect with the next build. Inside it is
    all UTC; what becomes of the skipped and of the repeated hour is in ``autoscaler.weekly``.

    Any load: what the inner policy says, but not less than the window. When a window closes,
    nothing happens by itself: whether to shrink is the inner policy's matter. Missing data: the
    inner policy's matter, too; a floor never makes anything smaller.
    """

    def __init__(self, params: Params, inner: Policy, epoch_s: float | None) -> None:
        self._inner = inner
        self._weekly = params.weekly()
        self._epoch_s = epoch_s
        self._starts_s = 0.0
        if epoch_s is None:
            if params.starts_at is None:
                rule = "must be given where there is no wall clock, as in a simulation"
                raise ConfigError(f"starts_at: {rule}; got nothing")
            timezone = zone(params.timezone)
            self._starts_s = local_instant(params.starts_at, "starts_at", timezone)
        self._floor = 0

    def propose(self, obs: Observation) -> Proposal:
        """The inner policy's wish, or the window's least width if that is more."""
        if self._epoch_s is None:
            self._epoch_s = self._starts_s - obs.now_s
        wish = self._inner.propose(obs)
        open_now = self._weekly.at(self._epoch_s + obs.now_s)
        self._floor = 0 if open_now is None else open_now.min_width
        if open_now is None or wish.width >= open_now.min_width:
            return wish
        return Proposal(open_now.min_width, "schedule", f"{open_now.label}; else: {wish.reason}")

    def state(self) -> dict[str, Any]:
        """The least width now, and the inner policy's state."""
        return {"floor": self._floor, "inner": self._inner.state()}


def build(params: Params, context: PolicyContext) -> Schedule:
    """The policy.

    Raises:
        ConfigError: no wall clock and no ``starts_at``, or the inner policy cannot be built.
    """
    kind, inner = params.inner()
    return Schedule(params, plugins.find("policies", kind).build(inner, context), context.epoch_s)
