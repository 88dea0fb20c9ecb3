"""What goes wrong on demand: set at the start, or over HTTP while the emulator runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.parameters import from_mapping, require_number, require_whole

RESIZE_FAULTS = ("", "refuse", "fail_commit", "wedge", "hang", "lose_answer")


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults to play.

    Args:
        resize: what the next resizes do: "" (work), refuse (500 at once, nothing has happened but
            the reset of the metrics), fail_commit (500 at the end, the old width goes on), wedge
            (500 at the end, and 503 on every path until a restart), hang (never over, no answer),
            lose_answer (works, but the connection is cut instead of an answer).
        resize_times: how many resizes it holds for, >= 1.
        metrics_delay_s: real seconds that ``/metrics`` takes longer, >= 0.
        metrics_status: status that ``/metrics`` answers instead of the page; 0: the page.
        probe_failure_ratio: share of completions with a chosen rank (valid or not) that get a
            500, 0..1.
        health_status: what ``/health`` answers; 0: 200.
    """

    resize: str = ""
    resize_times: int = 1
    metrics_delay_s: float = 0.0
    metrics_status: int = 0
    probe_failure_ratio: float = 0.0
    health_status: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no fault.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        if self.resize not in RESIZE_FAULTS:
            allowed = ", ".join(repr(f) for f in RESIZE_FAULTS)
            raise ConfigError(f"resize: must be one of {allowed}; got {self.resize!r}")
        require_whole("resize_times", self.resize_times, 1)
        require_number("metrics_delay_s", self.metrics_delay_s, 0)
        require_number("probe_failure_ratio", self.probe_failure_ratio, 0, 1)
        for key in ("metrics_status", "health_status"):
            if getattr(self, key) != 0:
                require_whole(key, getattr(self, key), 200, 599)

    def changed(self, given: Mapping[str, Any]) -> "Faults":
        """These with some keys set otherwise.

        Raises:
            ConfigError: unknown key, or a rule is broken.
        """
        known = {f.name for f in fields(self)}
        now = {k: v for k, v in asdict(self).items() if k in known}
        return from_mapping(Faults, {**now, **given}, "faults")

    def without_one_resize(self) -> "Faults":
        """These after one more resize has had its fault."""
        if self.resize_times > 1:
            return replace(self, resize_times=self.resize_times - 1)
        return replace(self, resize="")
