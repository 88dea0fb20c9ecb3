"""The simulated fleet as the target of a control loop."""

from autoscaler.model import Capabilities, SetOutcome, Tristate, WidthStatus
from autoscaler.ports import Clock
from autoscaler.profile import Profile
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.resize import ResizeModel


class SimTarget:
    """Reads and writes the width of a ``Fleet``.

    Args:
        fleet: what is resized.
        clock: simulated time.
        profile: knows the GPUs of a width.
        resize: knows whether a decrease is possible, and the pause.
        min_width, max_width: what the deployment permits.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        profile: Profile,
        resize: ResizeModel,
        min_width: int,
        max_width: int,
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._capabilities = Capabilities(
            min_width,
            max_width,
            can_shrink=Tristate.NO if resize.scale_up_only else Tristate.YES,
            gpus_per_width=profile.gpus(1),
            pause_s=resize.pause_up_s,
        )

    def read(self) -> WidthStatus:
        """What an operator would say now."""
        return self._fleet.status()

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Ask the fleet for a width."""
        return self._fleet.request(width, expected, self._clock.now_s())

    def capabilities(self) -> Capabilities:
        """Bounds of the simulated deployment."""
        return self._capabilities
