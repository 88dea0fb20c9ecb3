"""Knative's decisions against table K, which is read from its own tests.

Rows without a counterpart here: K14 and the spare capacities in brackets (no activator to keep
out of the way), K21 unreachable (there is no such state), K24 (nothing is sampled).
K17's count error: the present width is always known, as ``WidthStatus.present`` defines it.
"""

import pytest

from autoscaler.averages import RollingMean
from autoscaler.errors import ConfigError
from autoscaler.model import Resize, Signal, SignalStatus, Slo
from autoscaler.policies.kpa import Params, build
from autoscaler.ports import PolicyContext
from autoscaler.testing import observation
from autoscaler.window import RollingMax

CONTEXT = PolicyContext(Slo(), 5.0)


def kpa(target=10.0, **params):
    rates = {"max_up_ratio": 10.0, "max_down_ratio": 10.0, "utilization_ratio": 1.0}
    return build(Params(target_concurrency=target, **{**rates, **params}), CONTEXT)


@pytest.mark.parametrize(
    ("row", "params", "steps"),
    [
        ("K1", {}, [(0, 50, 10, 1, 5), (0, 100, 10, 1, 10)]),
        ("K2", {}, [(0, 100, 100, 8, 10), (0, 50, 50, 8, 5)]),
        ("K3", {}, [(0, 1, 0, 1, 1), (0, 0, 0, 1, 0)]),
        ("K4", {"activation_width": 2}, [(0, 0, 0, 1, 0), (0, 1, 1, 1, 2)]),
        (
            "K5",
            {"target": 1.0},
            [
                (0, 6, 6, 1, 6),
                (1, 36, 36, 6, 36),
                (2, 216, 216, 36, 216),
                (3, 1296, 1296, 216, 1296),
                (4, 1296, 1296, 1296, 1296),
            ],
        ),
        (
            "K7",
            {},
            [
                (0, 100, 100, 1, 10),
                (0, 100, 1000, 10, 100),
                (30, 1, 1, 10, 100),
                (61, 1, 1, 10, 1),
            ],
        ),
        (
            "K8, G36",
            {"target": 1.0},
            [(0, 11, 25, 10, 25), (30, 30, 41, 40, 41), (62, 50, 56, 55, 50)],
        ),
        (
            "K9",
            {"target": 1.0},
            [(0, 11, 25, 10, 25), (30, 30, 80, 40, 80), (62, 50, 56, 55, 80)],
        ),
        ("K10, T06", {}, [(0, 1000, 1001, 1, 10), (0, 1000, 1001, 10, 100)]),
        ("K11", {}, [(0, 1, 1, 100, 10), (0, 1, 1, 10, 1)]),
        ("K12", {"target": 1.0, "max_up_ratio": 1.1}, [(0, 3, 3.1, 2, 3)]),
        ("K13", {"max_down_ratio": 1.1}, [(0, 1, 1, 100, 90)]),
        ("K15", {}, [(0, 50, 100, 1, 10)]),
        ("K16, T18", {}, [(0, 1000, 888, 0, 10)]),
        (
            "K19",
            {"scale_down_delay_s": 300.0},
            [(2, 40, 40, 4, 4), (300, 0, 0, 4, 4), (302, 0, 0, 4, 0)],
        ),
        (
            "K20",
            {"scale_down_delay_s": 300.0},
            [
                (540, 40, 40, 4, 4),
                (600, 30, 30, 4, 4),
                (660, 0, 0, 4, 4),
                (840, 0, 0, 4, 3),
                (900, 0, 0, 4, 0),
            ],
        ),
        ("K21 no delay", {}, [(0, 40, 40, 4, 4), (0.5, 20, 20, 4, 2)]),
        ("T02 no load, no growth", {}, [(i, 0, 0, 0, 0) for i in range(5)]),
        (
            "G35 leaving a panic keeps what the load needs",
            {"target": 1.0, "max_up_ratio": 1000.0},
            [(0, 100, 1000, 40, 1000), (61, 1000, 1000, 600, 1000)],
        ),
    ],
)
def test_K_decisions(row, params, steps):
    policy = kpa(**params)
    said = [policy.decide(s, p, ready, 1000.0 + at)[0] for at, s, p, ready, _ in steps]
    assert said == [expected for *_, expected in steps], row


@pytest.mark.parametrize(("stable", "panic", "expected"), [(50, 30, 50), (20, 30, 30)])
def test_a_panic_takes_the_larger_of_both_windows_K6_T12(stable, panic, expected):
    policy = kpa(target=1.0)
    policy.decide(5, 5, 1, 1000.0)
    assert policy.decide(stable, panic, 5, 1000.0) == (expected, "panic")


def test_K22_another_target_counts_at_once():
    assert kpa(target=1.0).decide(100, 101, 10, 1000.0)[0] == 100


@pytest.mark.parametrize("width", [0, 1])
def test_K18_starts_calm_with_one_unit_or_none(width):
    policy = kpa()
    policy.propose(observation(width=width, running=1.0))
    assert policy.state()["panic_at_s"] is None


def test_K18_starts_in_a_panic_at_what_is_there():
    policy = kpa()
    said = policy.propose(observation(width=2, running=1.0))
    assert (said.width, said.code) == (2, "panic")
    assert policy.state() == {"panic_at_s": 1000.0, "peak": 2}


def test_K23_the_highest_wish_of_the_window():
    for samples, expected in [
        ([(0, 5)], 5),
        ([(0, 6), (0.5, 5)], 6),
        ([(0, 5), (1, 8)], 8),
        ([(0, 5), (6, 4)], 4),
    ]:
        window = RollingMax(5.0)
        for at_s, value in samples:
            window.add(at_s, value)
        assert window.value(samples[-1][0]) == expected


def test_a_sample_on_the_border_of_two_windows_counts_once_G38():
    mean = RollingMean(10.0)
    mean.add(0.0, 100.0)
    mean.add(10.0, 2.0)
    assert mean.value(9.9) == 51.0
    assert mean.value(10.0) == 2.0
    assert mean.value(20.0) is None


@pytest.mark.parametrize("signals", [{"running": None}, {"queue_depth": None, "running": 3.0}])
def test_K17_no_data_changes_nothing(signals):
    policy = kpa()
    said = {policy.propose(observation(i, 1e3 + 5 * i, 4, **signals)) for i in range(50)}
    assert {(p.width, p.code) for p in said} == {(4, "unknown")}


def test_no_shrink_while_the_ttft_is_unknown_M04():
    policy = kpa()
    none = Signal(None, SignalStatus.STALE)
    for i in range(50):
        said = policy.propose(
            observation(i, 1e3 + 5 * i, 4, ttft_p95_s=none, running=1.0, queue_depth=0.0)
        )
    assert (said.width, said.code) == (4, "missing_data")


def test_the_windows_average_what_waits_and_what_runs():
    policy = kpa()
    for i in range(13):
        said = policy.propose(
            observation(i, 1e3 + 5 * i, 1, queue_depth=20.0 if i > 10 else 0.0, running=10.0)
        )
    assert said.reason == "13.33 in the system on average, 30 lately, target 10 a width"


def test_a_panic_is_not_over_while_its_growth_does_not_serve_yet_G40_A09():
    policy = kpa()
    burst = {"running": 16.0, "queue_depth": 184.0}
    policy.propose(observation(0, 1000.0, 1, **burst))
    resize = Resize(1, 8, 1000.0)
    widths = set()
    for i in range(1, 40):
        obs = observation(i, 1000.0 + 5 * i, 1, resize=resize, running=16.0, queue_depth=60.0)
        widths.add(policy.propose(obs).width)
    assert widths == {10}


def test_a_clock_that_went_back_begins_the_panic_anew_T15():
    policy = kpa()
    policy.propose(observation(0, 1000.0, 4, running=1.0))
    policy.propose(observation(1, 900.0, 4, running=1.0))
    assert policy.propose(observation(2, 955.0, 4, running=1.0)).code == "panic"
    assert policy.propose(observation(3, 960.0, 4, running=1.0)).code == "stable"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"target_concurrency": 0}, "target_concurrency: must be a finite number > 0; got 0"),
        ({"utilization_ratio": 1.1}, "utilization_ratio: must be a finite number > 0 and <= 1"),
        ({"stable_window_s": 0}, "stable_window_s: must be"),
        ({"panic_window_ratio": 2}, "panic_window_ratio: must be"),
        ({"panic_threshold_ratio": 1}, "panic_threshold_ratio: must be a finite number > 1"),
        ({"max_up_ratio": 1.0}, "max_up_ratio: must be"),
        ({"max_down_ratio": 0.5}, "max_down_ratio: must be"),
        ({"scale_down_delay_s": -1}, "scale_down_delay_s: must be"),
        ({"activation_width": 0}, "activation_width: must be a whole number >= 1; got 0"),
    ],
)
def test_params_name_key_rule_and_value(params, message):
    with pytest.raises(ConfigError, match=message):
        Params(**params)


def test_leaving_a_panic_keeps_what_the_load_needs_although_little_is_ready_G35():
    policy = kpa(target=1.0, max_up_ratio=1000.0, max_down_ratio=2.0)
    assert policy.decide(100, 1000, 40, 1000.0) == (1000, "panic")
    # A minute later its growth is on the way and 40 are ready: nothing of it is undone.
    assert policy.decide(60, 60, 40, 1061.0, resizing=True) == (1000, "panic")
    # It serves, and the burst is over: back by no more than the rate, and not to 40.
    assert policy.decide(60, 60, 1000, 1122.0) == (500, "stable")
    lasting = kpa(target=1.0, max_up_ratio=1000.0)
    lasting.decide(100, 1000, 40, 1000.0)
    assert lasting.decide(1000, 1000, 600, 1061.0)[0] == 1000


def test_steps_of_one_do_not_prolong_a_panic_and_a_new_breach_does_G36():
    policy = kpa(target=1.0)
    assert policy.decide(10, 25, 10, 1000.0)[1] == "panic"
    for i in range(1, 12):  # +1 each 5 s, never twice what is there
        assert policy.decide(25 + i, 26 + i, 25 + i, 1000.0 + 5 * i)[1] == "panic"
    assert policy.decide(37, 38, 37, 1060.0) == (37, "stable")
    again = kpa(target=1.0)
    again.decide(10, 25, 10, 1000.0)
    again.decide(30, 60, 25, 1030.0)
    assert again.decide(37, 38, 37, 1060.0) == (60, "panic")


def test_members_that_start_for_30_s_are_not_asked_for_again_and_again_G40():
    policy = kpa(target=1.0)
    wishes = []
    for i in range(7):  # 40 in the system since the first tick; 1 serves until 30 s have passed
        resize = Resize(1, 10, 1000.0) if i else None
        load = {"running": 8.0, "queue_depth": 32.0}
        wishes.append(
            policy.propose(observation(i, 1000.0 + 5 * i, 1, resize=resize, **load)).width
        )
    assert set(wishes) == {10}  # ten times what serves, once
    served = observation(7, 1035.0, 10, running=40.0)
    assert policy.propose(served).width == 40  # what the load needs, and no more
