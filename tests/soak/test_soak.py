"""A short soak; the long one is a command: python -m tests.soak 1000000."""

from dataclasses import replace

import pytest

from autoscaler.convergence import Params as Patience

from .faults import SPELLS, STROKES
from .ledger import Broken
from .run import PARAMS, Soak, soak

KEPT = 1_500
"""Values that one controller, its keeper and its policy hold at most."""


def test_every_promise_holds_at_every_tick_whatever_fails():
    counts, codes, faults, kept = soak(2, 20_000)
    assert counts["ticks"] >= 20_000
    assert all(faults[name] for name in (*SPELLS, *STROKES)), faults
    assert counts["write applied"] > 100
    for result in ("conflict", "refused", "ambiguous"):
        assert counts[f"write {result}"] > 3, counts
    assert counts["foreign writes seen"] > 10
    assert counts["processes"] > 20
    assert {"ambiguous", "overridden", "flap_budget", "missing_data", "timed_out"} <= set(codes)
    assert max(max(pair) for pair in kept) < KEPT, kept


LOOSE = {
    "configured bounds": {"min_width": 1},
    "the GPU budget": {"max_gpus": None},
    "cool-downs and settling": {"settle_s": 0.0, "cooldown_down_s": 0.0, "cooldown_up_s": 0.0},
    "the flap budget": {"max_reversals_per_hour": 60},
    "what others set is respected": {"override_hold_s": 5.0},
}


@pytest.mark.parametrize("promise", sorted(LOOSE))
def test_a_controller_with_looser_limits_is_found_out(promise):
    loose = replace(PARAMS, **LOOSE[promise])
    with pytest.raises(Broken, match=promise):
        Soak(5, lattice=False, carrier=False, params=loose).run(20_000)


def test_a_write_sent_again_too_soon_is_found_out():
    hasty = Patience(timeout_s=400.0, ambiguous_hold_s=5.0)
    with pytest.raises(Broken, match="no blind resend"):
        Soak(5, lattice=False, carrier=False, patience=hasty).run(20_000)
