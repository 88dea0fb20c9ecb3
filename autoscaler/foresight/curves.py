"""What each width bears of the present mix of lengths: found by playing the engine, kept.

Capacity is measured under scattered arrivals that are too many: tables of closed loops overstate
it. Mixes lie on a coarse logarithmic grid, between whose points logarithms are interpolated, so
that lengths that drift cost a few plays an hour. Nothing here assumes that wider is better.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoscaler.engine.fleet import Engine, Load
from autoscaler.engine.layout import ITL_FINE_FLOOR_S, ITL_FINE_LOG_STEP
from autoscaler.engine.physics import Physics
from autoscaler.model import Slo
from autoscaler.profile import Profile

SHARES = (0.1, 0.4, 0.7, 0.85)
"""Of the capacity, at which latencies and requests in the system are measured."""

_GRID = math.log(1.5)
_ORIGIN = (math.log(1024.0), math.log(256.0))
_LONGEST = (200_000, 32_000)
_OVERLOADS = (1.5, 1.08)
"""First of a bound that ignores prefill, then of what was found: two plays come within 1 %."""
_PLAY_SIZES = (2000, 4000)
_LEVEL_REQUESTS = 1200
_CHUNK_TOKENS = 4096.0
_MIX_STEP = 0.01
_LENGTHS = 61
_Z99 = 2.5


@dataclass(frozen=True, slots=True)
class Mix:
    """Mean lengths, tokens a request, >= 1."""

    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Curve:
    """What one width does with one mix.

    Args:
        capacity_rps: completions a second while requests wait, > 0.
        slots: requests in execution at most.
        in_system: mean requests waiting and running at each of SHARES.
        ttft_p95_s, itl_p95_s: at each of SHARES.
        bearable_rps: arrivals a second within the objective, in the long run; 0: none.
    """

    capacity_rps: float
    slots: int
    in_system: tuple[float, ...]
    ttft_p95_s: tuple[float, ...]
    itl_p95_s: tuple[float, ...]
    bearable_rps: float

    def share_of(self, in_system: float) -> float:
        """Share of the capacity in use, 0..1, as so many requests in the system say."""
        low_n, low_share = 0.0, 0.0
        shares, counts = (*SHARES, 1.0), (*self.in_system, float(self.slots))
        for share, count in zip(shares, counts, strict=True):
            if in_system <= count:
                return low_share + (share - low_share) * (in_system - low_n) / (
                    max(count - low_n, 1e-9)
                )
            low_n, low_share = count, share
        return 1.0

    def ttft_at(self, rps: float) -> float:
        """Steady p95 TTFT at a rate, s; infinite from the bearable rate or capacity on."""
        share = rps / self.capacity_rps
        if share >= 1.0:
            return math.inf
        return _between(share, self.ttft_p95_s)


class Curves:
    """The curves of one profile, found when they are first asked for.

    Args:
        profile: gives the physics.
        slo: what is bearable.
        length_cv: coefficient of variation supposed of prompts and outputs: only means are seen.
        extrapolate: whether widths beyond the known ones may be used.
    """

    def __init__(self, profile: Profile, slo: Slo, length_cv: float, extrapolate: bool) -> None:
        self._profile = profile
        self._slo = slo
        self._extrapolate = extrapolate
        self._points: dict[tuple[int, int, int], npt.NDArray[np.float64]] = {}
        self._curves: dict[tuple[int, int, int], Curve] = {}
        self._physics: dict[int, Physics] = {}
        spread = _spread(length_cv)
        order = np.random.default_rng(0)
        self._spreads = order.permutation(spread), order.permutation(spread)
        self._gaps = order.exponential(1.0, _PLAY_SIZES[-1])

    def knows(self, width: int) -> bool:
        """Whether the profile has physics for a width."""
        known = self._profile.known_widths
        return 1 <= width <= 64 and (self._extrapolate or known[0] <= width <= known[-1])

    def physics(self, width: int) -> Physics:
        """The step model of a width that is known."""
        found = self._physics.get(width)
        if found is None:
            found = self._profile.physics(width, extrapolate=self._extrapolate)
            self._physics[width] = found
        return found

    def lengths(self, mix: Mix, n: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Lengths of ``n`` requests of a mix: prompts and outputs, int32[n] each, >= 1."""
        pick = np.arange(n) % _LENGTHS
        means = (mix.prompt_tokens, mix.output_tokens)
        prompt, output = (
            np.maximum(np.rint(mean * spread[pick]), 1.0).astype(np.int32)
            for mean, spread in zip(means, self._spreads, strict=True)
        )
        return prompt, output

    def curve(self, width: int, mix: Mix) -> Curve | None:
        """The curve of a width; None: nothing near this mix was played yet, see ``refine``.

        Grid points that are still missing are left out: a mix that drifts across a grid line
        gives them next to no weight at first.
        """
        at = _log(mix)
        key = (width, round(at[0] / _MIX_STEP), round(at[1] / _MIX_STEP))
        curve = self._curves.get(key)
        if curve is not None:
            return curve
        corners, known, total = _corners(at), 0.0, None
        for corner, weight in corners:
            point = self._points.get((width, *corner))
            if point is not None:
                known += weight
                total = weight * point if total is None else total + weight * point
        if total is None:
            return None
        curve = self._made(width, np.exp(total / known))
        if known > 0.999:
            if len(self._curves) > 4096:
                self._curves.clear()
            self._curves[key] = curve
        return curve

    def refine(self, widths: Iterable[int], mix: Mix, plays: int) -> bool:
        """Find up to ``plays`` points that are missing for this mix; whether all are there."""
        corners = [corner for corner, _ in _corners(_log(mix))]
        for width in widths:
            for corner in corners:
                key = (width, *corner)
                if key in self._points or not self.knows(width):
                    continue
                if plays == 0:
                    return False
                plays -= 1
                self._points[key] = np.log(self._play(width, corner))
        return True

    def _made(self, width: int, values: npt.NDArray[np.float64]) -> Curve:
        found = values.tolist()
        k = len(SHARES)
        capacity_rps, in_system = found[0], tuple(found[1 : k + 1])
        ttft, itl = tuple(found[k + 1 : 2 * k + 1]), tuple(found[2 * k + 1 :])
        physics, slo = self.physics(width), self._slo
        # A queue at load rho exceeds Q with probability exp(-2 (1 - rho) Q): held under 0.7 % for
        # the Q that costs the whole objective.
        share = max(1.0 - _Z99 / (slo.ttft_p95_s * capacity_rps), SHARES[-1])
        share = min(share, _crossing(ttft, slo.ttft_p95_s, share))
        if slo.itl_p95_s is not None:
            share = min(share, _crossing(itl, slo.itl_p95_s, share))
        slots = physics.ranks * physics.slots_per_rank
        return Curve(capacity_rps, slots, in_system, ttft, itl, share * capacity_rps)

    def _play(self, width: int, corner: tuple[int, int]) -> npt.NDArray[np.float64]:
        """Capacity, then requests in the system, p95 TTFT and p95 ITL at each share."""
        physics = self.physics(width)
        mix = Mix(*(math.exp(o + i * _GRID) for o, i in zip(_ORIGIN, corner, strict=True)))
        # Prompts of many chunks take as many steps: fewer requests for about the same time.
        fewer = min(max(_CHUNK_TOKENS / mix.prompt_tokens, 0.1), 1.0)
        prompt, output = self.lengths(mix, int(_PLAY_SIZES[-1] * fewer))
        slots = physics.ranks * physics.slots_per_rank
        rate = slots / (float(output.mean()) * float(physics.decode_s[-1]))
        for overload, n in zip(_OVERLOADS, _PLAY_SIZES, strict=True):
            k = int(n * fewer)
            rate = min(rate, self._throughput(physics, rate * overload, prompt[:k], output[:k]))
        columns: list[list[float]] = [[], [], []]
        n = int(_LEVEL_REQUESTS * fewer)
        for share in SHARES:
            arrival_s = np.cumsum(self._gaps[:n]) / (rate * share)
            engine = Engine(Load(arrival_s, prompt[:n], output[:n]), physics)
            engine.run()
            stay_s = (engine.finish_s - arrival_s).mean() - physics.overhead_s
            columns[0].append(max(float(stay_s), 1e-6) * rate * share)
            columns[1].append(float(np.percentile(engine.first_s - arrival_s, 95)))
            columns[2].append(_itl_p95_s(engine))
        return np.array([rate, *columns[0], *columns[1], *columns[2]])

    def _throughput(
        self,
        physics: Physics,
        rate: float,
        prompt: npt.NDArray[np.int32],
        output: npt.NDArray[np.int32],
    ) -> float:
        """Completions a second in the second half of arrivals that are too many."""
        arrival_s = np.cumsum(self._gaps[: len(prompt)]) / rate
        engine = Engine(Load(arrival_s, prompt, output), physics)
        engine.run()
        end_s = float(arrival_s[-1])
        done = np.count_nonzero((engine.finish_s > end_s / 2) & (engine.finish_s <= end_s))
        if done < 20:  # requests longer than the play: all of it has to do
            return float(len(arrival_s) / engine.finish_s.max())
        return float(done / (end_s / 2))


def _log(mix: Mix) -> tuple[float, float]:
    """Logarithms of both lengths, within what is played."""
    lengths = (mix.prompt_tokens, mix.output_tokens)
    prompt, output = (
        math.log(min(max(length, 1.0), longest))
        for length, longest in zip(lengths, _LONGEST, strict=True)
    )
    return prompt, output


def _corners(at: tuple[float, float]) -> list[tuple[tuple[int, int], float]]:
    """Grid points around a mix with their weights; those of next to no weight are left out."""
    axes = []
    for value, origin in zip(at, _ORIGIN, strict=True):
        place = (value - origin) / _GRID
        low = math.floor(place + 0.03)
        share = place - low
        axes.append([(low, 1.0)] if share < 0.03 else [(low, 1.0 - share), (low + 1, share)])
    return [((i, j), a * b) for i, a in axes[0] for j, b in axes[1]]


def _crossing(values: tuple[float, ...], limit: float, last: float) -> float:
    """Share at which a latency passes a limit; ``last`` if it does at none of SHARES."""
    low_share, low = 0.0, values[0]
    for share, value in zip(SHARES, values, strict=True):
        if value > limit:
            if low > limit:
                return 0.0
            return low_share + (share - low_share) * (limit - low) / (value - low)
        low_share, low = share, value
    return last


def _between(share: float, values: tuple[float, ...]) -> float:
    low_share, low = 0.0, values[0]
    for at, value in zip(SHARES, values, strict=True):
        if share <= at:
            return low + (value - low) * (share - low_share) / (at - low_share)
        low_share, low = at, value
    return values[-1]


def _itl_p95_s(engine: Engine) -> float:
    counts = np.cumsum(engine.itl_fine)
    if not counts[-1]:
        return ITL_FINE_FLOOR_S
    at = int(np.searchsorted(counts, 0.95 * counts[-1]))
    return float(ITL_FINE_FLOOR_S * math.exp((at + 0.5) * ITL_FINE_LOG_STEP))


def _spread(cv: float) -> npt.NDArray[np.float64]:
    """Factors of mean 1: lognormal quantiles in the middle of equal shares."""
    sigma = math.sqrt(math.log1p(cv * cv))
    # Acklam-free: numpy has no inverse of the normal; a fine table of its density has.
    z = np.linspace(-5.0, 5.0, 20_001)
    below = np.cumsum(np.exp(-z * z / 2.0))
    at = (np.arange(_LENGTHS) + 0.5) / _LENGTHS
    factors = np.exp(sigma * np.interp(at, below / below[-1], z))
    return np.asarray(factors / factors.mean())
