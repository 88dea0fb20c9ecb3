"""Seeded synthesis: arrivals at a rate that varies in time, and lengths of prompts and outputs.

Arrivals are a renewal process in operational time: increments of mean 1 are summed and mapped back
through the inverse of the cumulative rate (Cinlar 1975, "time change"), all of it vectorised. With
exponential increments that is exactly the inhomogeneous Poisson process.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.errors import ConfigError
from autoscaler.traces._trace import MAX_TOKENS, Trace

MAX_REQUESTS = 250_000_000


@dataclass(frozen=True, slots=True, eq=False)
class RateProfile:
    """A rate made of straight pieces, which need not join.

    Attributes:
        edges_s: float64[m + 1], ascending: where the pieces begin, and where the last one ends.
        from_rps: float64[m], requests a second at the beginning of each piece, >= 0.
        to_rps: float64[m], at its end.
    """

    edges_s: npt.NDArray[np.float64]
    from_rps: npt.NDArray[np.float64]
    to_rps: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.concatenate((self.edges_s, self.from_rps, self.to_rps))
        if not len(self.from_rps) or not np.all(np.isfinite(values)):
            raise ConfigError("rate: must be one or more pieces of finite rates and times")
        if np.any(np.diff(self.edges_s) <= 0):
            raise ConfigError("duration_s: must be above 0 for every piece of the rate")
        if min(self.from_rps.min(), self.to_rps.min()) < 0:
            raise ConfigError("rate: must be from 0 throughout")

    @classmethod
    def constant(cls, rps: float, duration_s: float) -> "RateProfile":
        """The same rate throughout."""
        return cls.steps([(rps, duration_s)])

    @classmethod
    def ramp(
        cls,
        from_rps: float,
        to_rps: float,
        duration_s: float | None = None,
        requests: int | None = None,
    ) -> "RateProfile":
        """A linear ramp that lasts ``duration_s``, or as long as ``requests`` take at its mean.

        Raises:
            ConfigError: not exactly one of the two given, or a value out of its range.
        """
        if (duration_s is None) == (requests is None):
            raise ConfigError("ramp: must have either duration_s or requests")
        if duration_s is None:
            if from_rps + to_rps <= 0:
                raise ConfigError(f"ramp: must have a mean rate above 0; got {from_rps}:{to_rps}")
            duration_s = 2.0 * (requests or 0) / (from_rps + to_rps)
        return cls(np.array([0.0, duration_s]), np.array([from_rps]), np.array([to_rps]))

    @classmethod
    def steps(cls, steps: list[tuple[float, float]]) -> "RateProfile":
        """Constant rates one after the other: ``(requests a second, seconds)`` each."""
        rates = np.array([rps for rps, _ in steps], dtype=np.float64)
        edges = np.concatenate(([0.0], np.cumsum([s for _, s in steps], dtype=np.float64)))
        return cls(edges, rates, rates)

    @classmethod
    def curve(
        cls, start_s: npt.NDArray[np.float64], rps: npt.NDArray[np.float64], scale: float = 1.0
    ) -> "RateProfile":
        """Constant between the starts; the last piece is as long as the one before it.

        Args:
            start_s: float64[m], m >= 2, ascending.
            rps: float64[m].
            scale: factor on every rate, > 0.
        """
        if len(start_s) < 2:
            raise ConfigError("rate curve: must have at least two rows")
        if not (math.isfinite(scale) and scale > 0):
            raise ConfigError(f"rate_scale: must be a number above 0; got {scale}")
        edges = np.append(start_s, 2 * start_s[-1] - start_s[-2])
        return cls(edges, rps * scale, rps * scale)

    @property
    def duration_s(self) -> float:
        """Seconds from the first edge to the last."""
        return float(self.edges_s[-1] - self.edges_s[0])

    @property
    def mean_requests(self) -> float:
        """Requests expected over the whole profile."""
        return float(self._cumulative()[-1])

    def clipped(self, start_s: float, duration_s: float | None) -> "RateProfile":
        """The part of the profile in ``[start_s, start_s + duration_s)`` after its first edge.

        Raises:
            ConfigError: nothing of the profile is left.
        """
        low = self.edges_s[0] + start_s
        high = self.edges_s[-1] if duration_s is None else min(self.edges_s[-1], low + duration_s)
        if low >= high:
            raise ConfigError(
                f"start_s: must be before the end of the rate profile, {self.duration_s:g} s; "
                f"got {start_s:g}"
            )
        first = int(np.searchsorted(self.edges_s, low, side="right")) - 1
        last = int(np.searchsorted(self.edges_s, high, side="left"))
        edges = self.edges_s[first : last + 1].copy()
        edges[0], edges[-1] = low, high
        pieces = slice(first, last)
        slope = (self.to_rps - self.from_rps)[pieces] / np.diff(self.edges_s)[pieces]
        begin = self.from_rps[pieces] + slope * (edges[:-1] - self.edges_s[:-1][pieces])
        end = begin + slope * np.diff(edges)
        return RateProfile(edges, np.maximum(begin, 0.0), np.maximum(end, 0.0))

    def times_s(self, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """When the cumulative rate reaches each of ``counts``: the inverse of the integral.

        Args:
            counts: float64[n], ascending, in ``[0, mean_requests]``.

        Returns:
            float64[n], seconds on the profile's own axis.
        """
        cumulative = self._cumulative()
        piece = np.searchsorted(cumulative[1:], counts, side="right")
        np.minimum(piece, len(self.from_rps) - 1, out=piece)
        slope = (self.to_rps - self.from_rps) / np.diff(self.edges_s)
        left = counts - cumulative[piece]
        rate = self.from_rps[piece]
        # c = r t + s t²/2 solved for t in the form that neither cancels nor divides by the slope.
        root = np.sqrt(np.maximum(rate * rate + 2.0 * slope[piece] * left, 0.0))
        root += rate
        np.maximum(root, np.finfo(np.float64).tiny, out=root)
        inside = 2.0 * left / root
        return np.minimum(self.edges_s[piece] + inside, self.edges_s[piece + 1])

    def _cumulative(self) -> npt.NDArray[np.float64]:
        pieces = (self.from_rps + self.to_rps) / 2.0 * np.diff(self.edges_s)
        return np.concatenate(([0.0], np.cumsum(pieces)))


def arrivals(
    profile: RateProfile,
    rng: np.random.Generator,
    cv: float = 1.0,
    requests: int | None = None,
) -> npt.NDArray[np.float64]:
    """Arrival times on the profile's axis, ascending.

    Args:
        profile: the rate.
        rng: of the increments; untouched with ``cv=0``.
        cv: coefficient of variation of the inter-arrival times at a constant rate: 1 Poisson
            (exponential), 0 deterministic (one arrival each time the cumulative rate passes a whole
            number, beginning at the profile's beginning), otherwise Gamma.
        requests: exactly so many instead of as many as fall into the profile; the process is then
            stretched to fit, which for ``cv=1`` is the Poisson process given its count.

    Returns:
        float64[n], possibly empty.

    Raises:
        ConfigError: a value out of its range, or more than ``MAX_REQUESTS`` arrivals.
    """
    if not (math.isfinite(cv) and 0 <= cv <= 100):
        raise ConfigError(f"cv: must be from 0 to 100; got {cv}")
    mean = profile.mean_requests
    if requests is not None and not 1 <= requests <= MAX_REQUESTS:
        raise ConfigError(f"requests: must be from 1 to {MAX_REQUESTS:,}; got {requests}")
    if mean > MAX_REQUESTS:
        raise ConfigError(
            f"rate: must make at most {MAX_REQUESTS:,} requests (scale it down, or take a slice); "
            f"got {mean:,.0f}"
        )
    if mean <= 0:
        raise ConfigError("rate: must be above 0 somewhere")
    if cv == 0:
        n = requests or math.ceil(mean - 1e-9)
        counts = np.arange(n, dtype=np.float64)
        if requests is not None:
            counts *= mean / n
    elif requests is not None:
        counts = np.cumsum(_increments(rng, cv, requests + 1))
        counts = counts[:-1] * (mean / counts[-1])
    else:
        drawn = [_increments(rng, cv, int(mean + 6 * max(cv, 1) * math.sqrt(mean)) + 16)]
        total = float(drawn[0].sum())
        while total < mean:
            drawn.append(_increments(rng, cv, len(drawn[0]) // 8 + 16))
            total += float(drawn[-1].sum())
        counts = np.cumsum(np.concatenate(drawn))
        counts = counts[: int(np.searchsorted(counts, mean))]
    return profile.times_s(counts)


def _increments(rng: np.random.Generator, cv: float, n: int) -> npt.NDArray[np.float64]:
    if cv == 1:
        return rng.standard_exponential(n)
    shape = 1.0 / (cv * cv)
    return rng.standard_gamma(shape, n) / shape


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in tokens: constant with ``cv=0``, otherwise lognormal.

    Attributes:
        mean: tokens, > 0.
        cv: coefficient of variation, >= 0.
        cap: no length is above it; 1 to ``MAX_TOKENS``.
    """

    mean: float
    cv: float = 0.0
    cap: int = MAX_TOKENS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 < self.mean <= MAX_TOKENS):
            raise ConfigError(f"tokens: must be above 0, to {MAX_TOKENS:,}; got {self.mean}")
        if not (math.isfinite(self.cv) and 0 <= self.cv <= 100):
            raise ConfigError(f"tokens cv: must be from 0 to 100; got {self.cv}")
        if not 1 <= self.cap <= MAX_TOKENS:
            raise ConfigError(f"max tokens: must be from 1 to {MAX_TOKENS:,}; got {self.cap}")

    def draw(self, n: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
        """int32[n], each from 1 to ``cap``."""
        if self.cv == 0:
            return np.full(n, min(max(round(self.mean), 1), self.cap), dtype=np.int32)
        # Of a lognormal: variance of the logarithm ln(1 + cv²), its mean ln(mean) - variance / 2.
        variance = math.log1p(self.cv * self.cv)
        drawn = rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), n)
        np.rint(drawn, out=drawn)
        np.clip(drawn, 1, self.cap, out=drawn)
        return drawn.astype(np.int32)


def synth(
    profile: RateProfile,
    rng: np.random.Generator,
    *,
    cv: float = 1.0,
    requests: int | None = None,
    prompt: Lengths | None = None,
    output: Lengths | None = None,
    lengths_of: Trace | None = None,
) -> Trace:
    """A synthetic trace.

    Args:
        profile: the rate.
        rng: seeds everything; equal states give equal traces.
        cv: see ``arrivals``.
        requests: see ``arrivals``.
        prompt: prompt lengths; None is 1,024 each.
        output: output lengths; None is 256 each.
        lengths_of: draw pairs of lengths from this trace, with replacement, instead.

    Raises:
        ConfigError: a value out of its range, or no arrival at all.
    """
    at_s = arrivals(profile, rng, cv, requests)
    n = len(at_s)
    if n == 0:
        raise ConfigError("rate: must make at least one request; got none, raise rate or duration")
    if lengths_of is not None:
        picked = rng.integers(0, lengths_of.requests, n)
        prompts, outputs = lengths_of.prompt_tokens[picked], lengths_of.output_tokens[picked]
    else:
        prompts = (prompt or Lengths(1024)).draw(n, rng)
        outputs = (output or Lengths(256)).draw(n, rng)
    return Trace(at_s - at_s[0], prompts, outputs, format="synthetic")
