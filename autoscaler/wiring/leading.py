"""Leadership of one run: the elector as configured, what it is called, and what is told of it."""

import math
import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

from autoscaler.cluster.connection import Access, Connection
from autoscaler.errors import ConfigError
from autoscaler.journal import Logger
from autoscaler.leadership.election import Election
from autoscaler.leadership.elector import Elector
from autoscaler.leadership.last_resort import KernelTimer
from autoscaler.leadership.lease import Lease
from autoscaler.ports import Clock
from autoscaler.settings import LeaderElection
from autoscaler.telemetry import Telemetry

_RELEASE_S = 1.0


class Leadership:
    """Whether this process is the one that steers.

    Args:
        settings: enabled ones.
        clock: the run's.
        logger: the run's log.
        telemetry: shows who leads.

    Raises:
        ConfigError: no namespace, or no usable access to the API server.
    """

    def __init__(
        self, settings: LeaderElection, clock: Clock, logger: Logger, telemetry: Telemetry
    ) -> None:
        self.timing = settings.timing
        access = Access(settings.kubeconfig, settings.context, self.timing.call_timeout_s)
        namespace = namespace_of(settings, Path(access.account))
        connection = Connection(access)
        lease = Lease(connection, namespace, settings.name, self.timing.lease_duration_s)
        election = Election(identity_of(settings, os.environ), self.timing)
        self.elector = Elector(lease, election, clock, KernelTimer(clock))
        self._telemetry = telemetry
        self._logger = logger.bind(lease=f"{namespace}/{settings.name}")
        self._told: tuple[bool, str, str] | None = None
        telemetry.set_leader(False)

    def attempt(self) -> bool:
        """Try for the lease once; whether it is ours."""
        self.elector.attempt()
        self.tell()
        return self.elector.leads

    def tell(self) -> None:
        """Show who leads, and log it where it has changed."""
        elector = self.elector
        leads, holder, problem = elector.leads, elector.holder, elector.problem
        self._telemetry.set_leader(leads)
        told, self._told = self._told, (leads, holder, problem)
        if told is None or told[:2] != (leads, holder):
            event = "leading" if leads else "standby"
            self._logger.info(event, identity=elector.identity, holder=holder)
        if problem and (told is None or not told[2]):  # once, not with each attempt
            self._logger.warning("lease_unreachable", problem=problem)

    def unready(self) -> list[str]:
        """Why this process could not take over; empty: it could."""
        silent_s = self.elector.silent_s
        if silent_s <= self.timing.lease_duration_s:
            return []
        if math.isinf(silent_s):  # ready before, it would let an update take the old ones away
            return ["leadership: the API server has given no answer yet"]
        return [f"leadership: the API server has given no answer for {silent_s:.0f} s"]

    def release(self) -> None:
        """Free the lease, if it is ours."""
        led = self.elector.leads
        kept = self.elector.release(_RELEASE_S)
        self._telemetry.set_leader(False)
        if kept:
            self._logger.warning("lease_kept", reason=kept)
        elif led:
            self._logger.info("lease_released")


def namespace_of(settings: LeaderElection, account: Path) -> str:
    """Where the Lease is: as configured, else the Pod's own namespace.

    Raises:
        ConfigError: neither.
    """
    if settings.namespace is not None:
        return settings.namespace
    try:
        return (account / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        rule = "must be given outside a Pod"
        raise ConfigError(f"leader_election.namespace: {rule}; got nothing") from error


def identity_of(settings: LeaderElection, environ: Mapping[str, str]) -> str:
    """What this process calls itself in the Lease: readable, and never used before.

    A container that was restarted in its Pod, or two processes of one configuration, would else
    take each other's lease for their own.
    """
    name = settings.identity or environ.get("POD_NAME") or socket.gethostname()
    return f"{name}_{uuid.uuid4().hex[:12]}"
