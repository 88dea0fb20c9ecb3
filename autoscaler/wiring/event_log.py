"""Tells of a target's decisions in Kubernetes Events, where the target is an object."""

from collections.abc import Mapping
from typing import Any

from autoscaler.clock import wall_s
from autoscaler.cluster.events import EventWriter, Note
from autoscaler.events import Events
from autoscaler.journal import Logger
from autoscaler.model import Decision, ObjectReference, Observation, SetOutcome
from autoscaler.redaction import Redaction
from autoscaler.telemetry import Telemetry


class EventLog:
    """Writes one target's Events; a ``DecisionLog``.

    Args:
        name: of the target.
        target: has a ``reference``, the object, and an ``access``, how to reach its API server.
        redaction: keeps secrets out of messages; may be exchanged.
        telemetry: counts what is lost.
        logger: told once of an outage, and of its end.
    """

    def __init__(
        self,
        name: str,
        target: Any,
        redaction: Redaction,
        telemetry: Telemetry,
        logger: Logger,
    ) -> None:
        self.redaction = redaction
        self._target, self._logger = target, logger
        self._events = Events()
        self._writer = EventWriter(
            target.access,
            lambda kind: telemetry.count_error(name, "events", kind),
            self._on_state,
        )

    def record(
        self,
        decision: Decision,
        obs: Observation | None,
        outcome: SetOutcome | None,
        policy_state: dict[str, Any],  # noqa: ARG002  # the port's signature
        shadows: Mapping[str, Decision] | None = None,  # noqa: ARG002
    ) -> None:
        """Hand over the Events that this tick is worth."""
        reference: ObjectReference = self._target.reference
        for event in self._events.tell(decision, obs, outcome):
            message = self.redaction.text(event.message)
            self._writer.submit(Note(reference, event.reason, event.warning, message, wall_s()))

    def close(self, timeout_s: float) -> None:
        """Send what waits, for at most ``timeout_s``."""
        self._writer.close(timeout_s)

    def _on_state(self, problem: str | None) -> None:
        if problem is None:
            self._logger.warning("events_written_again")
        else:
            self._logger.warning("events_lost", problem=self.redaction.text(problem))
