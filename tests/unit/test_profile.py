import math

import numpy as np
import pytest

from autoscaler import profiles
from autoscaler.engine.fleet import Engine, Load
from autoscaler.errors import ConfigError
from autoscaler.profile import Profile
from autoscaler.steps import Steps, decode_table, graph_sizes

FITTED = {
    "schema": "autoscaler.profile/v1",
    "name": "two-widths",
    "kind": "fitted",
    "layout": "elastic_ep",
    "provenance": "a test",
    "tp": 2,
    "api_serial_s": 0.001,
    "overhead_s": 0.02,
    "widths": {
        2: {"decode_ms": {1: 6.0, 4: 8.0, 16: 12.0}, "prefill_flat_s": 0.06},
        4: {"decode_ms": {1: 8.0, 16: 14.0}, "prefill_flat_s": 0.08, "mixed_share": 0.5},
    },
}
FAMILY = {
    "schema": "autoscaler.profile/v1",
    "name": "family",
    "kind": "assumed",
    "layout": "elastic_ep",
    "provenance": "a test",
    "tp": 1,
    "capacity_rps_by_width": {16: 13.5, 20: 16.875},
    "reference_prompt_tokens": 1024,
    "reference_output_tokens": 256,
}


def test_a_profile_survives_the_way_to_text_and_back(tmp_path):
    for data in (FITTED, FAMILY):
        profile = Profile.from_dict(data, "here")
        profiles.write(profile, tmp_path / "p.yaml", header="A line.\n\nAnother.")
        assert profiles.load(str(tmp_path / "p.yaml")) == profile
        assert profile.to_dict().items() >= data.items()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "v2"}, ["schema", "autoscaler.profile/v1", "'v2'"]),
        ({"kind": "guessed"}, ["kind", "fitted, partial, assumed", "guessed"]),
        ({"layout": "ring"}, ["layout", "external_dp", "ring"]),
        ({"speed": 3}, ["speed", "unknown key"]),
        ({"tp": 0}, ["tp", ">= 1", "0"]),
        ({"tp": True}, ["tp", "True"]),
        ({"layout": "wide_tp"}, ["tp", "must be 1 with wide_tp"]),
        ({"api_serial_s": -1.0}, ["api_serial_s", ">= 0", "-1.0"]),
        ({"overhead_s": math.nan}, ["overhead_s", "finite", "nan"]),
        ({"overhead_s": "fast"}, ["overhead_s", "float", "fast"]),
        ({"widths": {}}, ["widths, capacity_rps_by_width", "one of both"]),
        ({"widths": [2, 4]}, ["widths", "mapping", "[2, 4]"]),
        ({"widths": {"2": {"decode_ms": {1: 1.0}}}}, ["widths", "whole numbers", "'2'"]),
        ({"widths": {0: {"decode_ms": {1: 1.0}}}}, ["width", ">= 1", "0"]),
        ({"widths": {2: None}}, ["widths: 2", "mapping", "None"]),
        ({"widths": {2: {}}}, ["widths: 2: decode_ms", "mapping", "None"]),
        ({"widths": {2: {"decode_ms": {}}}}, ["widths: 2: decode_ms", "at least one"]),
        ({"widths": {2: {"decode_ms": {1: -3.0}}}}, ["widths: 2: decode_ms: 1", "> 0", "-3.0"]),
        ({"widths": {2: {"decode_ms": {1: None}}}}, ["widths: 2: decode_ms", "1: None"]),
        ({"widths": {2: {"decode_ms": {"a": 1.0}}}}, ["decode_ms", "whole", "'a'"]),
        ({"widths": {2: {"decode_ms": {1: 1.0}, "x_s": 1}}}, ["widths: 2: x_s", "unknown key"]),
        (
            {"widths": {2: {"decode_ms": {1: 1.0}, "prefill_flat_s": math.inf}}},
            ["widths: 2: prefill_flat_s", "finite", "inf"],
        ),
        (
            {"widths": {2: {"decode_ms": {1: 1.0}, "mixed_share": 1.5}}},
            ["widths: 2: mixed_share", "<= 1", "1.5"],
        ),
        ({"capacity_rps_by_width": {2: 1.0}}, ["one of both", "both"]),
    ],
)
def test_what_breaks_a_rule_is_refused_with_file_key_rule_and_value(change, words):
    with pytest.raises(ConfigError) as caught:
        Profile.from_dict(FITTED | change, "some/file.yaml")
    for word in ["some/file.yaml: ", *words]:
        assert word in str(caught.value)
    assert str(caught.value).count("some/file.yaml") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "fitted"}, ["kind", "must be assumed"]),
        ({"capacity_rps_by_width": {16: 0}}, ["capacity_rps_by_width: 16", "> 0", "0"]),
        ({"capacity_rps_by_width": {16: None}}, ["capacity_rps_by_width: 16", "nothing"]),
        ({"reference_output_tokens": None}, ["reference_output_tokens", "must be given"]),
    ],
)
def test_a_family_needs_what_its_capacity_refers_to(change, words):
    with pytest.raises(ConfigError) as caught:
        Profile.from_dict(FAMILY | change, "f.yaml")
    for word in words:
        assert word in str(caught.value)


def test_gpu_hours_are_not_counted_by_a_guess_S09():
    for data in (FITTED, FAMILY):
        untold = {k: v for k, v in data.items() if k != "tp"}
        with pytest.raises(ConfigError, match=r"f\.yaml: tp: must be given, GPU-hours depend"):
            Profile.from_dict(untold, "f.yaml")


def test_a_missing_key_is_named():
    data = {k: v for k, v in FITTED.items() if k != "layout"}
    with pytest.raises(ConfigError, match=r"f\.yaml: layout: must be given"):
        Profile.from_dict(data, "f.yaml")


def test_known_widths_are_exact_and_those_between_interpolated():
    profile = Profile.from_dict(FITTED, "here")
    two, three, four = (profile.physics(w) for w in (2, 3, 4))
    assert (two.prefill_flat_s, four.prefill_flat_s, four.mixed_share) == (0.06, 0.08, 0.5)
    assert three.prefill_flat_s == pytest.approx(0.07)
    assert three.mixed_share == pytest.approx(0.25)
    assert three.decode_s == pytest.approx((two.decode_s + four.decode_s) / 2)
    assert [profile.is_interpolated(w) for w in (1, 2, 3, 4, 5)] == [0, 0, 1, 0, 0]
    assert [profile.is_extrapolated(w) for w in (1, 2, 3, 4, 5)] == [1, 0, 0, 0, 1]
    assert [p.ranks for p in (two, three, four)] == [2, 3, 4]


def test_widths_beyond_the_known_ones_are_refused_unless_asked_for():
    profile = Profile.from_dict(FITTED, "here")
    with pytest.raises(ConfigError, match=r"known widths 2, 4, unless extrapolation.*got 6"):
        profile.physics(6)
    assert profile.physics(6, extrapolate=True).prefill_flat_s == pytest.approx(0.10)
    assert profile.physics(64, extrapolate=True).mixed_share == 1.0
    falling = FITTED | {
        "widths": {8: {"decode_ms": {1: 2.0}}, 9: {"decode_ms": {1: 1.0}, "prefill_flat_s": 1.0}}
    }
    beyond = Profile.from_dict(falling, "here").physics(64, extrapolate=True)
    assert beyond.decode_s[1] == pytest.approx(0.5e-3)
    with pytest.raises(ConfigError, match="<= 64; got 65"):
        profile.physics(65, extrapolate=True)


def test_one_known_width_is_extrapolated_as_it_is():
    one = Profile.from_dict(FITTED | {"widths": {2: FITTED["widths"][2]}}, "here")
    assert np.array_equal(one.physics(3, extrapolate=True).decode_s, one.physics(2).decode_s)


def test_layouts_decide_ranks_servers_dispatch_and_gpus():
    elastic = Profile.from_dict(FITTED, "here")
    external = Profile.from_dict(FITTED | {"layout": "external_dp"}, "here")
    wide = Profile.from_dict(FITTED | {"layout": "wide_tp", "tp": 1}, "here")
    for profile, ranks, servers, in_turn, gpus in (
        (elastic, 4, 1, False, 8),
        (external, 4, 4, True, 8),
        (wide, 1, 1, False, 4),
    ):
        physics = profile.physics(4)
        assert (physics.ranks, physics.api_servers, physics.round_robin) == (
            ranks,
            servers,
            in_turn,
        )
        assert profile.gpus(4) == gpus


def test_a_batch_costs_what_its_cuda_graph_costs():
    assert graph_sizes(16) == (1, 2, 4, 8, 16)
    assert graph_sizes(17) == (1, 2, 4, 8, 16, 24)
    knots = ((1, 6.0), (4, 9.0), (8, 10.0), (16, 12.0))
    table_ms = decode_table(knots, 17) * 1e3
    assert table_ms[[1, 2, 3, 4, 5, 8, 9, 16]] == pytest.approx([6, 7, 9, 9, 10, 10, 12, 12])
    assert table_ms[17] == pytest.approx(14.0)  # padded to 24, beyond the last knot
    assert decode_table(knots, 5, padded=False)[3] == pytest.approx(8e-3)
    assert decode_table(((1, 6.0),), 4) == pytest.approx(6e-3)


def test_an_assumed_capacity_is_met_exactly():
    profile = Profile.from_dict(FAMILY, "here")
    n = 20_000
    load = Load(np.zeros(n), np.full(n, 1024, np.int32), np.full(n, 256, np.int32))
    for width, capacity_rps in ((16, 13.5), (18, 15.1875), (20, 16.875)):
        engine = Engine(load, profile.physics(width))
        engine.run()
        assert n / np.nanmax(engine.finish_s) == pytest.approx(capacity_rps, rel=0.02)
        slots = width * profile.slots_per_rank
        step_s = profile.physics(width).decode_s[1]
        assert slots / (256 * step_s) == pytest.approx(capacity_rps, rel=1e-12)


def test_negative_zero_and_repeated_knots_are_refused():
    with pytest.raises(ConfigError, match="decode_ms: batch"):
        Steps(decode_ms=((2, 1.0), (2, 1.0)))
