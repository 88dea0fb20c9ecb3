"""What is simulated: a trace, a deployment, an objective and the policies to compare.

One frozen value, filled from the command line, from a scenario file, or from both (flags win).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from autoscaler import shipped
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.parameters import from_mapping, require_number, require_whole
from autoscaler.policy_file import read_yaml
from autoscaler.synthetic import Synth

SCHEMA = "autoscaler.scenario/v1"

LOAD_CLASSES = ("", "foreseeable", "bursty")
"""Foreseeable: over the lead time of one resize the load grows by one width's capacity at most,
so that a policy which looks ahead can keep the objective. Bursty: faster than any resize; what
counts there is how soon it is over."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that decides the outcome of a simulation, with the command's defaults.

    Args:
        trace: files, superimposed on one time axis.
        synth: a synthetic load in place of ``trace``; None: there is none.
        load_class: one of LOAD_CLASSES, in a file ``class``; empty: nobody said.
        trace_format: name of a format, or auto.
        skip_bad_rows: count and leave out bad rows instead of stopping.
        policy: names, ``static:4`` or files; empty: every shipped one and the static widths.
        profile: names or files of width profiles, each simulated with each policy.
        resize: name or file of a resize model.
        initial_width, min_width, max_width: None: the least, the least and the largest that the
            profile knows.
        ttft_slo_s, itl_slo_s, window_s, failure_penalty_s: the objective.
        tick_s, scrape_interval_s: periods of the control loop and of the monitoring.
        metrics_delay_s: how old what the policy gets to see is besides that, s, >= 0.
        scrape_loss_ratio: share of the scrapes that fail, 0 to below 1.
        decide_with_profile: name or file of the profile that policies believe in while the fleet
            follows ``profile``; None: they know the fleet's own. A wrong one is ``NAME@1.3``: the
            same deployment as if it were 1.3 times as fast.
        speed: arrival times are divided by it.
        start_s, duration_s: the part of the trace that is played; None: from its start, to its end.
        seed: of everything random.
        extrapolate: permit widths beyond those that the profile knows.
        title, notes: for people.
    """

    trace: tuple[str, ...] = ()
    synth: Synth | None = None
    load_class: str = ""
    trace_format: str = "auto"
    skip_bad_rows: bool = False
    policy: tuple[str, ...] = ()
    profile: tuple[str, ...] = ("h100-dsv2lite-elastic-ep-rdma",)
    resize: str = "gpustack-rdma"
    initial_width: int | None = None
    min_width: int | None = None
    max_width: int | None = None
    ttft_slo_s: float = 5.0
    itl_slo_s: float | None = None
    window_s: float = 30.0
    failure_penalty_s: float = 30.0
    tick_s: float = 5.0
    scrape_interval_s: float = 5.0
    metrics_delay_s: float = 0.0
    scrape_loss_ratio: float = 0.0
    decide_with_profile: str | None = None
    speed: float = 1.0
    start_s: float | None = None
    duration_s: float | None = None
    seed: int = 0
    extrapolate: bool = False
    title: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        """Refuse values that no simulation can use.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        for key in (
            *("ttft_slo_s", "itl_slo_s", "window_s", "failure_penalty_s"),
            *("tick_s", "scrape_interval_s", "speed", "duration_s"),
        ):
            require_number(key, getattr(self, key), 0, above=True)
        for key in ("start_s", "metrics_delay_s"):
            require_number(key, getattr(self, key), 0)
        require_number("scrape_loss_ratio", self.scrape_loss_ratio, 0, 0.99)
        if self.load_class not in LOAD_CLASSES:
            allowed = ", ".join(LOAD_CLASSES[1:])
            raise ConfigError(f"class: must be one of {allowed}; got {self.load_class!r}")
        if self.trace and self.synth is not None:
            raise ConfigError("trace, synth: must give one of both; got both")
        require_whole("seed", self.seed, 0)
        for key in ("initial_width", "min_width", "max_width"):
            require_whole(key, getattr(self, key), 1, 64)
        if self.window_s < 2 * self.scrape_interval_s:
            # Two scrapes make an increase; a window that may hold one makes none.
            raise ConfigError(
                f"window_s: must be at least twice scrape_interval_s ({self.scrape_interval_s:g}); "
                f"got {self.window_s:g}"
            )

    @property
    def slo(self) -> Slo:
        """The objective."""
        return Slo(self.ttft_slo_s, self.itl_slo_s, self.window_s, self.failure_penalty_s)


def load(name_or_file: str | None, flags: Mapping[str, Any]) -> Scenario:
    """A scenario from a file and from flags; flags that are None or empty say nothing.

    Relative trace paths in a file are relative to that file.

    Args:
        name_or_file: a shipped scenario's name or a YAML file; None: flags alone.
        flags: by field name.

    Raises:
        ConfigError: unreadable, an unknown key, or an unusable value.
    """
    given: dict[str, Any] = {}
    origin = "options"
    if name_or_file is not None:
        path = shipped.resolve("scenarios", name_or_file)
        origin = str(path)
        given = read_yaml(path)
        schema = given.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise ConfigError(f"{path}: schema: must be {SCHEMA}; got {schema!r}")
        _rename_class(given, origin)
        given = {key: _listed(key, value) for key, value in given.items()}
        if isinstance(given.get("trace"), list):
            given["trace"] = [_beside(path, item) for item in given["trace"]]
        if flags.get("trace"):
            given.pop("synth", None)
        if "synth" in given:
            synth = Synth.from_dict(given["synth"], f"{origin}: synth")
            given["synth"] = synth.beside(lambda file: _beside(path, file))
    given |= {key: value for key, value in flags.items() if value not in (None, (), [])}
    return from_mapping(Scenario, given, origin)


_SEVERAL = {f.name for f in fields(Scenario) if f.type in (tuple[str, ...], "tuple[str, ...]")}


def _listed(key: str, value: Any) -> Any:
    """A single name where several may stand."""
    return [value] if key in _SEVERAL and isinstance(value, str) else value


def _rename_class(given: dict[str, Any], origin: str) -> None:
    """``class`` is no name for a field in Python, and the best one in a file."""
    if "load_class" in given:
        raise ConfigError(f"{origin}: load_class: unknown key; must be class")
    if "class" in given:
        given["load_class"] = given.pop("class")


def _beside(path: Path, item: Any) -> Any:
    if not isinstance(item, str) or Path(item).is_absolute():
        return item
    return str((path.parent / item).resolve())
