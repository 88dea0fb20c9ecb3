"""How long a lease lasts and how often it is renewed; what follows from that."""

from dataclasses import dataclass

from autoscaler.errors import ConfigError
from autoscaler.parameters import require_number, require_whole


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one lease, and the rules between them, which are client-go's.

    Args:
        lease_duration_s: how long the others wait after the last renewal that they saw, whole
            seconds, >= 1, since the API has no fractions of them.
        renew_deadline_s: how long after its last renewal a leader stops work, s; less than the
            lease.
        retry_period_s: between two renewals, s, > 0; less than renew_deadline_s / 1.2.
    """

    lease_duration_s: int = 15
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    def __post_init__(self) -> None:
        require_whole("lease_duration_s", self.lease_duration_s, 1)
        require_number("retry_period_s", self.retry_period_s, 0, above=True)
        require_number("renew_deadline_s", self.renew_deadline_s, 0, above=True)
        least_s = 1.2 * self.retry_period_s
        if self.renew_deadline_s <= least_s:
            rule = f"must be more than 1.2 x retry_period_s ({least_s:g})"
            raise ConfigError(f"renew_deadline_s: {rule}; got {self.renew_deadline_s:g}")
        if self.lease_duration_s <= self.renew_deadline_s:
            rule = f"must be more than renew_deadline_s ({self.renew_deadline_s:g})"
            raise ConfigError(f"lease_duration_s: {rule}; got {self.lease_duration_s:g}")

    @property
    def call_timeout_s(self) -> float:
        """Deadline of one call, s: a call that hangs leaves time for three others."""
        return self.renew_deadline_s / 4

    @property
    def look_period_s(self) -> float:
        """Between two looks of a standby, s.

        Closer than the renewals: a renewal counts from when it was seen, so that each second of
        not looking is one more without a leader.
        """
        return self.retry_period_s / 4

    @property
    def stop_s(self) -> float:
        """How long loops may take to end once work has to stop, s."""
        return (self.lease_duration_s - self.renew_deadline_s) / 4

    @property
    def end_s(self) -> float:
        """How long after its last renewal nothing of a leader may be left, s.

        Ends before the lease does by what clocks that run apart and answers on their way need.
        """
        return self.lease_duration_s - (self.lease_duration_s - self.renew_deadline_s) / 4
