"""Physics of the two-H200 Elastic EP deployment from its curves (DeepSeek-V2-Lite shape).

What cannot be seen in curves with prompts of one length is taken from the model's shape and the
GPU's data sheet, so that other prompt lengths come out sensibly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.calibrate.cells import OUTPUT_TOKENS, PROMPT_TOKENS, Cell, simulate
from autoscaler.calibrate.search import Vector, robust, rounded, search
from autoscaler.profile import Profile
from autoscaler.steps import Steps

LAYERS, HEADS, QK_DIM, V_DIM, LATENT_DIM = 27, 16, 192, 128, 576
"""DeepSeek-V2-Lite: layers, attention heads, query-key and value dimension of a head, width of
the latent that MLA caches a token and layer."""

ATTENTION_FLOP_PER_S = 4e14
"""Prior: what attention kernels reach of an H200's 990 dense bf16 TFLOP/s, about 40 %."""

MEMORY_BYTE_PER_S = 4.8e12
"""An H200's memory bandwidth by its data sheet."""

KV_TOKEN_S = LATENT_DIM * 2 * LAYERS / MEMORY_BYTE_PER_S
"""Prior: a decode step reads each cached token's latent, 2 bytes a number, once a layer."""

PREFILL_TOKEN2_S = LAYERS * HEADS * (QK_DIM + V_DIM) * 2 / ATTENTION_FLOP_PER_S
"""Prior: each pair of tokens costs a multiplication and an addition a dimension, head and layer."""

MIXED_SHARE = 0.5
"""Prior: a step that waits for the host hides its decoding, one that computes does not. The curves
cannot tell: anything from 0 to 1 fits within 5 % as well."""

_SMALL = np.array([0.05, 0.05, 0.02, 0.02])
"""What counts as a small error of each of ``cells.QUANTITIES``."""

_FIRST_DELAYS = (0.007, 0.0005)
"""Overhead and serial cost that width 1 is fitted with; the fit of width 2 refines them."""

_BOUNDS = {
    1: ((0.04, 0.07), (0.0, 0.08), (1.0, 6.0), (6e-6, 14e-6)),
    2: ((0.066, 0.082), (0.034, 0.055), (0.5, 1.2), (0.0, 6e-6), (0.004, 0.012), (0.0002, 0.001)),
}
"""Search ranges: floor, spread, power, then at width 1 the token, at width 2 moving a token
between ranks, overhead and serial cost. Floor and spread of width 2 are kept near what the steps
themselves were seen to last, by the longest gap of each decoding request: 72 to 120 ms with one
prompt a step, spread evenly, a quarter under 77 and a quarter over 109 ms."""

_DRAWS = 6


@dataclass(frozen=True, slots=True)
class Common:
    """What both widths share.

    Args:
        prefill_rank_token_s: computing a prompt token; one rank computes its own.
        overhead_s, api_serial_s: as in ``engine.Physics``.
    """

    prefill_rank_token_s: float
    overhead_s: float
    api_serial_s: float


@dataclass(frozen=True, slots=True)
class Floor:
    """What a width has of its own: the host's time to launch a step outside the CUDA graphs.

    Args:
        floor_s, spread_s, power: ``engine.Physics.prefill_floor_s`` and its spread.
        prefill_token_s: moving a prompt token between the ranks; 0 at width 1.
    """

    floor_s: float
    spread_s: float
    power: float
    prefill_token_s: float = 0.0


def decode_knots(cells: Sequence[Cell], slots: int) -> tuple[tuple[int, float], ...]:
    """The decode staircase of one width, read off ITL p50 without what reading the KV cache costs.

    Args:
        cells: of that width; where two have the same largest batch, the one with fewer requests
            waiting says more about the step alone.
        slots: of a rank.

    Returns:
        (batch of the fullest rank, milliseconds), ascending.
    """
    knots: dict[int, float] = {}
    for cell in sorted(cells, key=lambda c: c.clients):
        batch = min(-(-cell.clients // cell.width), slots)
        cached_tokens = batch * (PROMPT_TOKENS + OUTPUT_TOKENS / 2)
        knots.setdefault(batch, (cell.itl_p50_s - KV_TOKEN_S * cached_tokens) * 1e3)
    # At width 2 one client and two have the same batch, 1: nothing else was measured there.
    return tuple(zip(knots, rounded(np.array(list(knots.values()))), strict=True))


def build(
    shape: Profile, cells: Sequence[Cell], common: Common, floors: dict[int, Floor]
) -> Profile:
    """``shape`` with these costs, at the widths of ``floors``."""
    content = shape.to_dict()
    content["overhead_s"] = common.overhead_s
    content["api_serial_s"] = common.api_serial_s
    content["widths"] = {
        width: Steps(
            decode_ms=decode_knots([c for c in cells if c.width == width], shape.slots_per_rank),
            prefill_token_s=floor.prefill_token_s,
            prefill_rank_token_s=common.prefill_rank_token_s,
            prefill_token2_s=float(f"{PREFILL_TOKEN2_S:.4g}"),
            prefill_floor_s=floor.floor_s,
            prefill_spread_s=floor.spread_s,
            prefill_spread_power=floor.power,
            mixed_share=MIXED_SHARE,
            kv_token_s=float(f"{KV_TOKEN_S:.4g}"),
        ).to_dict()
        for width, floor in floors.items()
    }
    return Profile.from_dict(content, shape.name)


def errors(profile: Profile, cells: Sequence[Cell], draws: int) -> Vector:
    """float64[cells, 4]: predicted / measured - 1 in the order of ``cells.QUANTITIES``."""
    rows = [simulate(c, profile.physics(c.width), draws) / c.values() - 1.0 for c in cells]
    return np.array(rows)


def fit_h200(cells: Sequence[Cell], shape: Profile) -> Profile:
    """The profile that explains the cells best.

    Width 1 knows nothing of other ranks, so it gives the cost of a token. How an overhead outside
    the engine and the least prefill time share what they sum to, width 1 cannot tell; width 2
    can, since there it decides which rank's requests make the next step.

    Args:
        cells: of widths 1 and 2.
        shape: everything but the costs.
    """

    def cost(candidate: Profile, width: int) -> float:
        of_width = [c for c in cells if c.width == width]
        return robust(errors(candidate, of_width, _DRAWS) / _SMALL)

    def first(x: Vector) -> float:
        common = Common(x[3], *_FIRST_DELAYS)
        return cost(build(shape, cells, common, {1: Floor(*x[:3].tolist())}), 1)

    def second(x: Vector) -> float:
        common = Common(token_s, *x[4:].tolist())
        return cost(build(shape, cells, common, {2: Floor(*x[:4].tolist())}), 2)

    one = rounded(search(first, _BOUNDS[1], generations=25, population=6, refinements=100))
    token_s = one[3]
    two = rounded(search(second, _BOUNDS[2], generations=40, population=6, refinements=100))
    overhead_s, serial_s = two[4:]
    floor_s = rounded(np.array([one[0] + sum(_FIRST_DELAYS) - overhead_s - serial_s]))[0]
    floors = {1: Floor(floor_s, one[1], one[2]), 2: Floor(*two[:4])}
    return build(shape, cells, Common(token_s, overhead_s, serial_s), floors)
