import numpy as np
import pytest

from autoscaler import profiles
from autoscaler.calibrate import assumed, partial, report
from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.workload import Workload
from autoscaler.engine.capacity import Criterion, capacity_rps, holds, poisson_load

RDMA = "h100-dsv2lite-elastic-ep-rdma"
TCP = "h100-dsv2lite-elastic-ep-tcp"


@pytest.mark.parametrize("name", [RDMA, TCP])
def test_fitted_profiles_meet_the_targets(name):
    errors = profiles.load(name).fit["errors"]
    assert errors["itl_p50_ms"]["max_ratio"] <= 0.02
    assert errors["output_tok_per_s"]["median_ratio"] <= 0.025
    assert errors["output_tok_per_s"]["max_ratio"] <= 0.11
    assert errors["ttft_p50_ms"]["median_ratio"] <= 0.10
    if "ttft_p95_ms" in errors:
        assert errors["ttft_p95_ms"]["median_ratio"] <= 0.05


@pytest.mark.parametrize("name", [RDMA, TCP])
def test_a_fitted_profile_reproduces_what_it_says(name):
    profile = profiles.load(name)
    stated = profile.fit["cells"][-1]
    measured = {m: v["measured"] for m, v in stated.items() if isinstance(v, dict)}
    cell = Cell(stated["concurrency"], stated["width"], 128, measured, "stated")
    (comparison,) = report.compare([cell], profile, Workload(**profile.fit["workload"]))
    for metric in measured:
        assert comparison.fitted[metric] == pytest.approx(stated[metric]["fitted"], rel=0.01)


@pytest.mark.parametrize("name", [f"h100-dsv2lite-external-dp-{t}" for t in ("tcp", "rdma")])
def test_external_dp_is_partial(name):
    profile = profiles.load(name)
    assert (profile.kind, profile.layout, profile.known_widths) == ("partial", "external_dp", (4,))
    assert profile.gpus(4) == 8


def test_wide_tp_is_one_engine_on_all_gpus():
    profile = profiles.load("h100-dsv2lite-wide-tp")
    assert profile.kind == "partial"
    assert profile.physics(8).ranks == 1
    assert profile.gpus(8) == 8


def test_assumed_wide_has_about_five_requests_a_second_a_width():
    profile = profiles.load("assumed-wide")
    assert profile.kind == "assumed"
    assert profile.known_widths == tuple(range(2, 17, 2))
    for width, rps in profile.fit["capacity_rps_by_width"].items():
        assert rps == pytest.approx(5 * width, rel=0.2)
    physics = profile.physics(4)
    for rate_rps, within in ((16.0, True), (24.0, False)):
        load = poisson_load(rate_rps, 3600, assumed.PROMPT, assumed.OUTPUT, seed=3)
        assert holds(physics, load, Criterion()) is within


@pytest.mark.parametrize("capacity", [13.0, 13.5, 14.0, 15.0])
def test_the_ramp_family_is_linear_in_width(capacity):
    profile = profiles.load(f"gb200-ramp-{capacity:g}")
    assert profile == assumed.ramp_family(capacity)
    for width in (8, 16, 20):
        physics = profile.physics(width)
        assert width * 16 / (256 * physics.decode_s[1]) == pytest.approx(width * capacity / 16)


def test_the_capacity_search_finds_a_known_capacity():
    physics = assumed.ramp_family(13.5).physics(16)
    criterion = Criterion(ttft_s=5.0, percentile=95.0, duration_s=900.0)
    found = capacity_rps(physics, assumed.PROMPT, assumed.OUTPUT, criterion=criterion)
    assert 0.9 * 13.5 < found < 1.05 * 13.5


def test_scales_act_on_their_own_costs():
    steps = profiles.load(RDMA).widths[2]
    scaled = partial.scaled(steps, (2.0, 3.0, 0.5))
    doubled = [2 * ms for _, ms in steps.decode_ms]
    assert np.allclose([ms for _, ms in scaled.decode_ms], doubled, rtol=1e-4)
    assert scaled.prefill_flat_s == pytest.approx(3 * steps.prefill_flat_s, rel=1e-4)
    assert scaled.prefill_rank_token_s == pytest.approx(0.5 * steps.prefill_rank_token_s, rel=1e-4)
    assert scaled.mixed_share == steps.mixed_share
