"""Whether one of several processes is made the one that writes, and by which Lease."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from autoscaler.errors import ConfigError
from autoscaler.leadership.timing import Timing
from autoscaler.settings.target import Section, TargetSettings
from autoscaler.settings.where import Where

_DNS_NAME = Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
_TIMING = Timing()


class LeaderElection(Section):
    """Whether only one of several processes may write, and by which Lease; see ``Timing``.

    ``namespace`` and ``identity`` None: the Pod's. ``kubeconfig`` and ``context`` as in targets.
    """

    enabled: bool = False
    namespace: Annotated[str, _DNS_NAME] | None = None
    name: Annotated[str, _DNS_NAME] = "autoscaler"
    identity: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    lease_duration_s: int = _TIMING.lease_duration_s
    renew_deadline_s: float = _TIMING.renew_deadline_s
    retry_period_s: float = _TIMING.retry_period_s
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def timing(self) -> Timing:
        """The lease's times.

        Raises:
            ConfigError: they break a rule.
        """
        return Timing(self.lease_duration_s, self.renew_deadline_s, self.retry_period_s)


def lease_problems(
    section: LeaderElection,
    tick_s: float,
    targets: Sequence[TargetSettings | None],
    where: Where,
) -> list[str]:
    """Times of the lease that break a rule of their own, or leave no time for a write.

    Args:
        section: of the file.
        tick_s: seconds between two ticks.
        targets: None: one that has problems itself.
        where: names key paths.
    """
    if not section.enabled:
        return []
    try:
        timing = section.timing
    except ConfigError as error:
        key, _, rule = str(error).partition(": ")
        return [f"{where(('leader_election', key))}: {rule}"]
    # A write comes after a call that confirms the lease, and has to be over before the lease is.
    beside_s = timing.lease_duration_s - timing.end_s + timing.call_timeout_s
    longest_s = max((target.write_s(tick_s) for target in targets if target is not None), default=0)
    least_s = longest_s + beside_s
    if timing.lease_duration_s > least_s:
        return []
    rule = f"must be more than {least_s:g}, for a write of {longest_s:g} s to be over in time"
    here = where(("leader_election", "lease_duration_s"))
    return [f"{here}: {rule}; got {timing.lease_duration_s}"]
