"""Any other target, read but never written.

A write is answered ``SKIPPED``: nothing was sent. The loop records what it would have written,
begins no resize, waits for none, and says the same again in the next tick, since nothing changed.
"""

from dataclasses import dataclass
from typing import Any

from autoscaler import plugins
from autoscaler.errors import ConfigError
from autoscaler.findings import Finding
from autoscaler.model import Capabilities, SetOutcome, SetResult, WidthStatus
from autoscaler.parameters import from_mapping
from autoscaler.ports import Target


@dataclass(frozen=True, slots=True)
class Params:
    """What to look at.

    Args:
        of: another target as a configuration has it: its ``kind`` and its parameters.
    """

    of: dict  # type: ignore[type-arg]  # from_mapping takes plain classes only

    def __post_init__(self) -> None:
        if not isinstance(self.of.get("kind"), str) or self.of["kind"] == "dry_run":
            raise ConfigError(f"of.kind: must name another target; got {self.of.get('kind')!r}")


class DryRun:
    """Reads ``target`` and writes nothing.

    Args:
        target: the real one.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def read(self) -> WidthStatus:
        """What the target says."""
        return self._target.read()

    def set_width(self, width: int, expected: int) -> SetOutcome:
        """Nothing, but for looking whether the width is still the expected one.

        Raises:
            TargetError: unreadable.
        """
        present = self._target.read().desired
        if present != expected:
            return SetOutcome(SetResult.CONFLICT, detail=f"the width is {present}")
        detail = f"dry run: would have written {expected} -> {width}"
        return SetOutcome(SetResult.SKIPPED, detail=detail)

    def findings(self) -> list[Finding]:
        """What a check of the target says, where it has one."""
        look = getattr(self._target, "findings", None)
        return [] if look is None else list(look())

    def capabilities(self) -> Capabilities:
        """What the target can do."""
        return self._target.capabilities()


def build(params: Params) -> DryRun:
    """The target around the one that ``of`` names.

    Raises:
        ConfigError: no such kind, or parameters that break its rules.
    """
    rest: dict[str, Any] = {key: value for key, value in params.of.items() if key != "kind"}
    module = plugins.find("targets", params.of["kind"])
    return DryRun(module.build(from_mapping(module.Params, rest, f"of: {params.of['kind']}")))
