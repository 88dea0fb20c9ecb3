"""What a synthetic load in a scenario file says: rates over time, and lengths.

Data only: the traces package draws the requests, so that a scenario needs no large trace file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.errors import ConfigError
from autoscaler.parameters import from_mapping, require_number, require_whole


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time with a constant or a straight rate.

    Args:
        duration_s: how long it lasts, s, > 0.
        rps: requests a second throughout, >= 0; None: see ``from_rps`` and ``to_rps``.
        from_rps, to_rps: requests a second at its beginning and its end, >= 0.
    """

    duration_s: float
    rps: float | None = None
    from_rps: float | None = None
    to_rps: float | None = None

    def __post_init__(self) -> None:
        require_number("duration_s", self.duration_s, 0, above=True)
        for key in ("rps", "from_rps", "to_rps"):
            require_number(key, getattr(self, key), 0)
        slope = (self.from_rps is not None) + (self.to_rps is not None)
        if (self.rps is None) != (slope == 2) or (self.rps is not None and slope):
            raise ConfigError(
                "rps: must be given alone, or from_rps and to_rps together; "
                f"got {self.rps}, {self.from_rps}, {self.to_rps}"
            )

    @property
    def begin_rps(self) -> float:
        """The rate at its beginning."""
        return self.rps if self.rps is not None else self.from_rps or 0.0

    @property
    def end_rps(self) -> float:
        """The rate at its end."""
        return self.rps if self.rps is not None else self.to_rps or 0.0


@dataclass(frozen=True, slots=True)
class Synth:
    """A synthetic load.

    Args:
        rate: pieces one after the other; empty: see ``curve``.
        repeat: how often the pieces are played, >= 1.
        curve: rate curve file, in place of ``rate``.
        curve_start_s, curve_duration_s: the part of the curve; None: to its end.
        curve_mean_s: the curve's rates are averaged over as long, with straight lines in
            between; None: as they are, a step at each row.
        rate_scale: factor on the curve's rates, > 0.
        time_scale: seconds of the curve that pass in one second of the trace, > 0: the course of
            a day in less, at the same rates.
        cv: coefficient of variation of the inter-arrival times: 1 Poisson, 0 even.
        requests: exactly so many; None: as many as the rate makes.
        lengths_from: trace from which pairs of lengths are drawn; None: as follows.
        prompt_tokens, output_tokens: means, > 0.
        prompt_cv, output_cv: coefficients of variation (lognormal), >= 0.
        seed: of the arrivals and the lengths; None: the scenario's.
    """

    rate: tuple[Piece, ...] = ()
    repeat: int = 1
    curve: str | None = None
    curve_start_s: float = 0.0
    curve_duration_s: float | None = None
    curve_mean_s: float | None = None
    rate_scale: float = 1.0
    time_scale: float = 1.0
    cv: float = 1.0
    requests: int | None = None
    lengths_from: str | None = None
    prompt_tokens: float = 1024.0
    prompt_cv: float = 0.0
    output_tokens: float = 256.0
    output_cv: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no load can be; the traces package refuses the rest.

        Raises:
            ConfigError: names the key, the rule and the value.
        """
        if bool(self.rate) == (self.curve is not None):
            given = "both" if self.rate else "none"
            raise ConfigError(f"rate, curve: must give one of both; got {given}")
        require_whole("repeat", self.repeat, 1, 10_000)
        require_whole("seed", self.seed, 0)
        for key in ("curve_duration_s", "curve_mean_s", "rate_scale", "time_scale"):
            require_number(key, getattr(self, key), 0, above=True)
        require_number("curve_start_s", self.curve_start_s, 0)

    @classmethod
    def from_dict(cls, data: object, where: str) -> "Synth":
        """From the mapping that a scenario file holds.

        Raises:
            ConfigError: unknown key, wrong type, or a rule is broken.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where}: must be a mapping of keys; got {data!r}")
        given: dict[str, Any] = dict(data)
        pieces = given.pop("rate", ())
        if not isinstance(pieces, list | tuple):
            raise ConfigError(f"{where}: rate: must be a list of pieces; got {pieces!r}")
        rate = []
        for number, piece in enumerate(pieces):
            if not isinstance(piece, Mapping):
                raise ConfigError(f"{where}: rate: {number}: must be a mapping; got {piece!r}")
            rate.append(from_mapping(Piece, piece, f"{where}: rate: {number}"))
        return from_mapping(cls, {**given, "rate": rate}, where)

    def beside(self, place: Callable[[str], str]) -> "Synth":
        """The same with its files where ``place`` says."""
        return replace(
            self,
            curve=None if self.curve is None else place(self.curve),
            lengths_from=None if self.lengths_from is None else place(self.lengths_from),
        )
