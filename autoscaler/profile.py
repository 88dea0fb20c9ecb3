"""Width profiles: how fast a deployment is at each width, as step tables for the engine.

A profile is made of what was measured (``fitted``, ``partial``) or of what somebody supposes
(``assumed``). Measured widths are reproduced exactly, widths between two measured ones are
interpolated and marked, widths beyond them are refused unless asked for. No I/O: ``profiles.py``
reads the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autoscaler.engine.physics import Physics
from autoscaler.errors import ConfigError
from autoscaler.parameters import from_mapping, require_number, require_whole
from autoscaler.steps import COSTS, Steps, decode_table

SCHEMA = "autoscaler.profile/v1"
KINDS = ("fitted", "partial", "assumed")
LAYOUTS = ("elastic_ep", "external_dp", "wide_tp")
MAX_WIDTH = 64
"""The engine serves 64 ranks at most."""

_BEYOND_FLOOR = 0.5
"""Extrapolated costs stay above this share of the nearest known ones: a line through two
points soon crosses zero, and no step is free."""

_NESTED = ("widths", "capacity_rps_by_width", "fit")


@dataclass(frozen=True, slots=True)
class Deployment:
    """What holds for a deployment at every width.

    Args:
        name: file stem, what people call it.
        kind: ``fitted``: from a table of cells; ``partial``: from too few cells to fix every
            cost, the provenance says what was supposed; ``assumed``: measured by nobody.
        layout: ``elastic_ep``: ranks behind one API server, least load; ``external_dp``: an API
            server a rank, round robin; ``wide_tp``: one engine, the width is its TP.
        provenance: where the numbers come from, for people.
        tp: GPUs a unit of width; 1 with ``wide_tp``.
        slots_per_rank: requests in execution a rank at most (``max_num_seqs``).
        token_budget: tokens a rank and step (``max_num_batched_tokens``).
        api_serial_s: serial cost of a request in its API server.
        overhead_s: delay outside the engine, not serial.
        load_refresh_s: age at most of the loads that the dispatcher sees.
        waiting_weight: running requests that a waiting one counts for in the dispatcher.
        schedule_ahead: a step is put together while the one before it runs.
        graph_padding: whether a batch is padded to the next CUDA graph size.
        reference_prompt_tokens, reference_output_tokens: of the requests that a capacity counts.
    """

    name: str
    kind: str
    layout: str
    provenance: str
    tp: int = 1
    slots_per_rank: int = 16
    token_budget: int = 8192
    api_serial_s: float = 0.0
    overhead_s: float = 0.0
    load_refresh_s: float = 0.0
    waiting_weight: float = 4.0
    schedule_ahead: bool = False
    graph_padding: bool = True
    reference_prompt_tokens: int | None = None
    reference_output_tokens: int | None = None

    def __post_init__(self) -> None:
        _require_one_of("kind", self.kind, KINDS)
        _require_one_of("layout", self.layout, LAYOUTS)
        require_whole("tp", self.tp, 1)
        if self.layout == "wide_tp" and self.tp != 1:
            raise ConfigError(f"tp: must be 1 with wide_tp, whose width is its TP; got {self.tp}")
        require_whole("slots_per_rank", self.slots_per_rank, 1, 8192)
        require_whole("token_budget", self.token_budget, self.slots_per_rank)
        for name in ("api_serial_s", "overhead_s", "load_refresh_s", "waiting_weight"):
            require_number(name, getattr(self, name), 0)
        require_whole("reference_prompt_tokens", self.reference_prompt_tokens, 1)
        require_whole("reference_output_tokens", self.reference_output_tokens, 1)


@dataclass(frozen=True, slots=True)
class Profile(Deployment):
    """One deployment, at all widths that are known of it.

    Args:
        widths: known step costs by width; empty with ``capacity_rps_by_width``.
        capacity_rps_by_width: requests/s, in place of ``widths``: a decode step then lasts
            slots x width / (reference_output_tokens x capacity) and prefill is free, so the
            capacity is met exactly and all queueing is for slots.
        fit: what the fit reports about itself (errors by cell); free form, for people.
    """

    widths: Mapping[int, Steps] = field(default_factory=dict)
    capacity_rps_by_width: Mapping[int, float] = field(default_factory=dict)
    fit: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Deployment.__post_init__(self)
        capacities = self.capacity_rps_by_width
        if bool(self.widths) == bool(capacities):
            given = "both" if capacities else "none"
            raise ConfigError(f"widths, capacity_rps_by_width: must give one of both; got {given}")
        for width in self.known_widths:
            require_whole("width", width, 1, MAX_WIDTH)
        for width, rps in capacities.items():
            require_number(f"capacity_rps_by_width: {width}", rps, 0, above=True)
        if capacities and self.kind != "assumed":
            raise ConfigError(f"kind: must be assumed with capacity_rps_by_width; got {self.kind}")
        if capacities and self.reference_output_tokens is None:
            raise ConfigError(
                "reference_output_tokens: must be given with capacity_rps_by_width; got nothing"
            )

    @property
    def known_widths(self) -> tuple[int, ...]:
        """Widths that were measured (or assumed), ascending."""
        return tuple(sorted(self.widths or self.capacity_rps_by_width))

    def is_interpolated(self, width: int) -> bool:
        """Whether ``width`` lies between two known ones, not on one: mark it in every output."""
        known = self.known_widths
        return width not in known and known[0] < width < known[-1]

    def is_extrapolated(self, width: int) -> bool:
        """Whether ``width`` lies beyond the known ones: mark it in every output."""
        return not self.known_widths[0] <= width <= self.known_widths[-1]

    def gpus(self, width: int) -> int:
        """GPUs that a width occupies."""
        return width * self.tp

    def physics(self, width: int, extrapolate: bool = False) -> Physics:
        """The engine's step model at a width.

        Args:
            width: a known one gives the known costs exactly, one in between a straight line
                between its neighbours, entry by entry.
            extrapolate: also go beyond the known widths: the line through the two nearest goes
                on, but never below half the nearest known cost; with one known width its costs
                stay as they are.

        Raises:
            ConfigError: a width beyond the known ones that was not asked for, or not 1..64.
        """
        require_whole(f"profile {self.name}: width", width, 1, MAX_WIDTH)
        if self.is_extrapolated(width) and not extrapolate:
            known = ", ".join(str(w) for w in self.known_widths)
            raise ConfigError(
                f"profile {self.name}: width: must lie within the known widths {known}, "
                f"unless extrapolation is asked for; got {width}"
            )
        common = Physics(
            ranks=1 if self.layout == "wide_tp" else width,
            slots_per_rank=self.slots_per_rank,
            decode_s=np.ones(self.slots_per_rank + 1),
            token_budget=self.token_budget,
            api_servers=width if self.layout == "external_dp" else 1,
            api_serial_s=self.api_serial_s,
            overhead_s=self.overhead_s,
            round_robin=self.layout == "external_dp",
            load_refresh_s=self.load_refresh_s,
            waiting_weight=self.waiting_weight,
            schedule_ahead=self.schedule_ahead,
        )
        if self.capacity_rps_by_width:
            output_tokens = self.reference_output_tokens or 1
            capacity_rps = float(self._at(width, self._capacity_rps))
            step_s = common.ranks * self.slots_per_rank / (output_tokens * capacity_rps)
            # A step that prefills lasts as long as any other: prefill itself costs nothing.
            flat = np.full(self.slots_per_rank + 1, step_s)
            return replace(common, decode_s=flat, prefill_flat_s=step_s)
        decode_s = self._at(width, self._decode_table)
        costs = dict(zip(COSTS, self._at(width, self._costs).tolist(), strict=True))
        costs["mixed_share"] = min(costs["mixed_share"], 1.0)
        return replace(common, decode_s=decode_s, **costs)

    def sped_up(self, ratio: float) -> "Profile":
        """The same deployment as if everything took 1 / ``ratio`` (> 0) of its time, assumed.

        What the policy believes where the curves are wrong by so much.
        """
        return replace(
            self,
            name=f"{self.name}@{ratio:g}",
            kind="assumed",
            provenance=f"Assumed to be {ratio:g} times as fast as: {self.provenance}",
            api_serial_s=self.api_serial_s / ratio,
            overhead_s=self.overhead_s / ratio,
            load_refresh_s=self.load_refresh_s / ratio,
            widths={width: steps.sped_up(ratio) for width, steps in self.widths.items()},
            capacity_rps_by_width={w: ratio * c for w, c in self.capacity_rps_by_width.items()},
            fit={},
        )

    def _capacity_rps(self, width: int) -> npt.NDArray[np.float64]:
        return np.array(self.capacity_rps_by_width[width])

    def _costs(self, width: int) -> npt.NDArray[np.float64]:
        return np.array([getattr(self.widths[width], name) for name in COSTS])

    def _decode_table(self, width: int) -> npt.NDArray[np.float64]:
        return decode_table(
            self.widths[width].decode_ms, self.slots_per_rank, padded=self.graph_padding
        )

    def _at(
        self, width: int, value: Callable[[int], npt.NDArray[np.float64]]
    ) -> npt.NDArray[np.float64]:
        known = self.known_widths
        if width in known:
            return value(width)
        if len(known) == 1:
            return value(known[0])
        low = max((w for w in known[:-1] if w < width), default=known[0])
        high = known[known.index(low) + 1]
        share = (width - low) / (high - low)
        straight = value(low) + share * (value(high) - value(low))
        nearest = value(low) if share < 0 else value(high)
        return straight if 0 < share < 1 else np.maximum(straight, _BEYOND_FLOOR * nearest)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], origin: str) -> "Profile":
        """A profile from the mapping that a YAML file of schema autoscaler.profile/v1 holds.

        Args:
            data: keys and values; widths and batch sizes are whole-number keys.
            origin: what to name in messages, e.g. the file.

        Raises:
            ConfigError: unknown or missing key, wrong type, or a rule is broken.
        """
        known = [f.name for f in fields(Deployment)]
        for key in data:
            if key not in ("schema", *known, *_NESTED):
                allowed = ", ".join(("schema", *known, *_NESTED))
                raise ConfigError(f"{origin}: {key}: unknown key; must be one of {allowed}")
        if data.get("schema") != SCHEMA:
            got = data.get("schema")
            raise ConfigError(f"{origin}: schema: must be {SCHEMA!r}; got {got!r}")
        if "tp" not in data:
            # A guess would make every sum of GPU-hours a wrong one that looks right.
            raise ConfigError(f"{origin}: tp: must be given, GPU-hours depend on it; got nothing")
        scalars = {key: data[key] for key in known if key in data}
        deployment = from_mapping(Deployment, scalars, origin)
        widths = {
            _width(w, f"{origin}: widths"): Steps.from_dict(steps, f"{origin}: widths: {w}")
            for w, steps in _mapping(data, "widths", origin).items()
        }
        capacities = _mapping(data, "capacity_rps_by_width", origin)
        for width, rps in capacities.items():
            _width(width, f"{origin}: capacity_rps_by_width")
            if rps is None:
                where = f"{origin}: capacity_rps_by_width: {width}"
                raise ConfigError(f"{where}: must be a number > 0; got nothing")
        fit = _mapping(data, "fit", origin)
        values = {name: getattr(deployment, name) for name in known}
        try:
            return cls(**values, widths=widths, capacity_rps_by_width=capacities, fit=fit)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``from_dict`` reads, in a fixed order, without what is empty."""
        content: dict[str, Any] = {"schema": SCHEMA}
        for key in fields(Deployment):
            value = getattr(self, key.name)
            if value is not None:
                content[key.name] = value
        if self.widths:
            content["widths"] = {w: self.widths[w].to_dict() for w in self.known_widths}
        if self.capacity_rps_by_width:
            content["capacity_rps_by_width"] = {
                w: self.capacity_rps_by_width[w] for w in self.known_widths
            }
        if self.fit:
            content["fit"] = dict(self.fit)
        return content


def _mapping(data: Mapping[str, Any], key: str, origin: str) -> Mapping[Any, Any]:
    value = data.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{origin}: {key}: must be a mapping; got {value!r}")
    return value


def _width(width: object, where: str) -> int:
    if type(width) is not int:
        raise ConfigError(f"{where}: widths must be whole numbers; got {width!r}")
    return width


def _require_one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{key}: must be one of {', '.join(allowed)}; got {value!r}")
