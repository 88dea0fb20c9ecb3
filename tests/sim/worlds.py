"""Small worlds that several tests simulate."""

import numpy as np

from autoscaler.engine.fleet import Load
from autoscaler.profile import Profile
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.resize import ResizeModel


def linear_profile(per_width_rps: float = 1.0, widths: tuple[int, ...] = (1, 2, 4)) -> Profile:
    """Capacity exactly proportional to the width; 4 slots a rank, 100 output tokens."""
    return Profile(
        name="linear",
        kind="assumed",
        layout="elastic_ep",
        provenance="made for tests",
        tp=2,
        slots_per_rank=4,
        reference_prompt_tokens=10,
        reference_output_tokens=100,
        capacity_rps_by_width={w: per_width_rps * w for w in widths},
    )


def steady(rate_rps: float, duration_s: float, output_tokens: int = 100) -> Load:
    n = round(rate_rps * duration_s)
    return Load(
        np.arange(n) / rate_rps, np.full(n, 10, np.int32), np.full(n, output_tokens, np.int32)
    )


def model(**given: object) -> ResizeModel:
    """Ten seconds of preparation, one of pause, unless told otherwise."""
    return ResizeModel(
        **({"mode": "test", "prepare_s": 10.0, "pause_up_s": 1.0, "pause_down_s": 1.0} | given)  # type: ignore[arg-type]
    )


def fleet(load: Load, resize: ResizeModel | None = None, width: int = 2, seed: int = 0) -> Fleet:
    return Fleet(load, linear_profile(), resize or model(), width, 4, np.random.default_rng(seed))


def play_out(world: Fleet, tick_s: float = 5.0) -> None:
    at_s = 0.0
    while not world.done:
        at_s += tick_s
        world.advance(at_s)
