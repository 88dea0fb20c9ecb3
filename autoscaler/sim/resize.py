"""What a resize costs: data, one preset a file in ``simulations/resizes``."""

from dataclasses import dataclass

from autoscaler.errors import ConfigError
from autoscaler.parameters import require_number

_CHOICES = {
    "in_flight": ("keep", "fail"),
    "new": ("queue", "reject"),
    "leaving": ("drain", "abort", "hang"),
    "gpus_billed_from": ("request", "capacity"),
}


@dataclass(frozen=True, slots=True)
class ResizeModel:
    """The course of one resize, and what may go wrong with it.

    From the request on: wait for capacity, prepare (the old width serves), commit (the decode
    clock of all ranks stands still for the pause, arrivals go on), then the new width serves.

    Args:
        mode: what it models, for people.
        prepare_s: from the request to the commit, s, >= 0.
        pause_up_s, pause_down_s: how long no token is made, s, >= 0.
        reject_up_s, reject_down_s: how long from the commit on new requests are turned away where
            ``new`` is reject, s; None: as long as the pause.
        in_flight: keep (goes on after the pause) | fail.
        new: queue | reject: what happens to requests that come in the commit.
        leaving: what ranks that go do with theirs: drain (before the commit) | abort | hang (the
            stream stays open until the client gives up).
        client_timeout_s: after how long a client gives up on a hanging stream, s, > 0.
        scale_up_only: a decrease is refused.
        resets_counters: growth restarts the engine's counters and histograms at the commit.
        refuse_probability: the request is refused at once, 0..1.
        fail_probability: the commit fails and the old width goes on, 0..1.
        failure_outage_s: how long nothing is served after a failed commit, in flight failing, s.
        stuck_probability: never converges, with the GPUs held, 0..1.
        capacity_wait_s: the GPUs of a growth are there only after as long, s, >= 0.
        gpus_billed_from: request | capacity.
    """

    mode: str
    prepare_s: float
    pause_up_s: float
    pause_down_s: float
    reject_up_s: float | None = None
    reject_down_s: float | None = None
    in_flight: str = "keep"
    new: str = "queue"
    leaving: str = "drain"
    client_timeout_s: float = 120.0
    scale_up_only: bool = False
    resets_counters: bool = True
    refuse_probability: float = 0.0
    fail_probability: float = 0.0
    failure_outage_s: float = 0.0
    stuck_probability: float = 0.0
    capacity_wait_s: float = 0.0
    gpus_billed_from: str = "request"

    def __post_init__(self) -> None:
        """Refuse what no resize can be.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        for key in ("prepare_s", "pause_up_s", "pause_down_s", "failure_outage_s"):
            require_number(key, getattr(self, key), 0)
        for key in ("reject_up_s", "reject_down_s", "capacity_wait_s"):
            require_number(key, getattr(self, key), 0)
        for key in ("refuse_probability", "fail_probability", "stuck_probability"):
            require_number(key, getattr(self, key), 0, 1)
        require_number("client_timeout_s", self.client_timeout_s, 0, above=True)
        for key, allowed in _CHOICES.items():
            if getattr(self, key) not in allowed:
                raise ConfigError(
                    f"{key}: must be one of {', '.join(allowed)}; got {getattr(self, key)!r}"
                )

    def pause_s(self, up: bool) -> float:
        """How long no token is made."""
        return self.pause_up_s if up else self.pause_down_s

    def reject_s(self, up: bool) -> float:
        """How long new requests are turned away; 0 where they queue."""
        if self.new == "queue":
            return 0.0
        own_s = self.reject_up_s if up else self.reject_down_s
        return self.pause_s(up) if own_s is None else own_s

    @property
    def notice(self) -> str | None:
        """What to tell people of it; None: nothing."""
        if self.prepare_s + self.pause_up_s + self.capacity_wait_s > 0:
            return None
        return (
            "growth takes no time: policies look better than they are, and may oscillate; measured "
            "ones take 76 to 197 s (gpustack-rdma, vllm-0.25-measured, restart)"
        )
