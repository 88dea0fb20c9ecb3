"""What a search prefers."""

import pytest

from autoscaler.tuning.goals import Goal, Outcome, score, summary

BASE = Outcome(1.0, 10.0, 0.0, 0)
GOAL = Goal()


def test_parameters_like_those_at_the_start_score_zero_when_the_goal_is_kept():
    assert score([BASE], [BASE], GOAL) == 0.0


def test_half_the_gpu_hours_at_the_same_attainment_is_better():
    assert score([Outcome(1.0, 5.0, 0.0, 0)], [BASE], GOAL) == pytest.approx(-0.693, abs=1e-3)


def test_of_two_forecasts_the_one_that_keeps_the_slo_is_better_not_the_one_that_errs_less_S13():
    # What they err by is no part of it: of the same windows the fewer GPU-hours are better.
    exact_but_late, rough_but_early = Outcome(0.96, 9.0, 0.0, 40), Outcome(0.995, 10.5, 0.0, 0)
    assert score([rough_but_early], [BASE], GOAL) < score([exact_but_late], [BASE], GOAL)
    assert GOAL.kept(rough_but_early)
    assert not GOAL.kept(exact_but_late)
    dearer = Outcome(0.995, 12.0, 0.0, 0)
    assert score([rough_but_early], [BASE], GOAL) < score([dearer], [BASE], GOAL)


def test_attainment_beyond_the_goal_earns_nothing():
    assert score([Outcome(0.99, 10.0, 0.0, 0)], [BASE], GOAL) == 0.0


def test_half_the_gpu_hours_do_not_pay_for_two_hundredths_of_the_windows():
    assert score([Outcome(0.97, 5.0, 0.0, 0)], [BASE], GOAL) > 0.0


def test_flapping_beyond_the_budget_costs_and_is_not_kept():
    flapping = Outcome(1.0, 10.0, 6.0, 0)
    assert score([flapping], [BASE], GOAL) == pytest.approx(0.4)
    assert not GOAL.kept(flapping)


def test_a_large_case_counts_no_more_than_a_small_one():
    small, large = Outcome(1.0, 1.0, 0.0, 0), Outcome(1.0, 100.0, 0.0, 0)
    doubled = [Outcome(1.0, 2.0, 0.0, 0), large], [small, Outcome(1.0, 200.0, 0.0, 0)]
    scores = [score(outcomes, [small, large], GOAL) for outcomes in doubled]
    assert scores[0] == pytest.approx(scores[1])


def test_a_summary_tells_the_worst_case():
    found = summary([Outcome(1.0, 1.0, 0.0, 0), Outcome(0.5, 2.0, 3.0, 4)], GOAL)
    assert found["kept"] == 1
    assert found["worst_windows_ok_ratio"] == 0.5
    assert found["gpu_hours"] == 3.0
    assert found["failed"] == 4
