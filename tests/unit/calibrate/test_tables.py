from dataclasses import replace

import numpy as np
import pytest

from autoscaler.calibrate import report, tables
from autoscaler.calibrate.captures import Cell
from autoscaler.calibrate.parameters import Fitted, Prior, staircases
from autoscaler.calibrate.workload import Workload, uniform_numbers
from autoscaler.engine.draws import closed_loop, percentile_rows
from autoscaler.errors import ConfigError

TRUTH = Fitted(
    overhead_s=0.02,
    api_serial_s=0.001,
    token_s=0.0,
    network_token_s=2e-6,
    rank_token_s=4e-6,
    mixed_share=0.3,
    cap_share=1.0,
    flat_s={1: 0.03, 2: 0.05},
)
KNOTS = {1: {1: 6.0, 2: 7.0, 4: 8.0}, 2: {1: 7.0, 2: 8.0, 4: 9.0}}
BASE = tables.unfitted("made", "elastic_ep", "a test", slots_per_rank=4, tp=1)
EFFORT = tables.Effort(generations=10, population=6, refinements=120, draws=1)
KNOWN = {
    name: Prior(getattr(TRUTH, name), factor=1.0)
    for name in ("api_serial_s", "token_s", "network_token_s", "rank_token_s", "mixed_share")
}


@pytest.fixture(scope="module")
def cells():
    """A table that the model itself made."""
    profile = TRUTH.apply(BASE, KNOTS)
    made = []
    for width in (1, 2):
        for concurrency in (1, 2, 4, 8):
            cell = Cell(concurrency, width, 16, {}, "made", output_tokens=64)
            measured = tables.simulate(
                cell, profile.physics(width), Workload(1.0, 1.0), uniform_numbers(16, 1, 0)
            )
            made.append(replace(cell, measured=measured))
    return made


@pytest.fixture(scope="module")
def fit(cells):
    return tables.fit(cells, BASE, early_stops=False, priors=KNOWN, effort=EFFORT)


def test_a_fit_finds_the_parameters_that_made_the_table(fit):
    assert fit.fitted.overhead_s == pytest.approx(TRUTH.overhead_s, rel=0.05)
    for width, flat_s in TRUTH.flat_s.items():
        assert fit.fitted.flat_s[width] == pytest.approx(flat_s, rel=0.05)
    assert fit.cost < 0.5


def test_equal_inputs_give_equal_profiles(cells, fit):
    again = tables.fit(cells, BASE, early_stops=False, priors=KNOWN, effort=EFFORT)
    assert again.profile == fit.profile


def test_the_report_compares_and_the_profile_says_how_well(cells, fit):
    comparisons = report.compare(cells, fit.profile, fit.workload, draws=2)
    summary = report.summary(comparisons)
    assert summary["output_tok_per_s"]["max_ratio"] < 0.02
    described = report.described(fit, comparisons, ["made.csv"])
    assert described.fit["captures"] == ["made.csv"]
    assert len(described.fit["cells"]) == len(cells)
    assert described.widths == fit.profile.widths
    text = report.text(comparisons)
    assert "measured" in text
    assert text.count("\n") > 8 * 4


def test_progress_is_told(cells):
    told = []
    effort = tables.Effort(generations=1, population=1, refinements=1, draws=1)
    tables.fit(cells, BASE, early_stops=False, priors=KNOWN, effort=effort, progress=told.append)
    assert told == sorted(told)
    assert 0 < told[-1] <= 2 * tables.evaluations(effort, cells)


def test_a_width_without_gaps_between_tokens_is_refused(cells):
    bare = replace(cells[0], width=3, measured={"ttft_p50_ms": 100.0})
    with pytest.raises(ConfigError, match="width 3: needs a cell with itl_p50_ms"):
        tables.fit([*cells, bare], BASE)


def test_staircases_are_read_off_and_completed_from_other_widths():
    table = [
        Cell(c, w, 8, {"itl_p50_ms": ms}, "t")
        for w, c, ms in [
            (1, 1, 5.0),
            (1, 2, 6.0),
            (1, 3, 8.0),
            (1, 4, 8.0),
            (2, 2, 10.0),
            (2, 4, 12.0),
        ]
    ]
    found = staircases(table, 4, {1: 1, 2: 2})
    assert found[1] == {1: 5.0, 2: 6.0, 4: 8.0}
    assert found[2] == {1: 10.0, 2: 12.0, 4: 16.0}


def test_early_stops_keep_the_mean():
    workload = Workload(0.65, 237 / 256)
    outputs = workload.output_tokens(256, uniform_numbers(1000, 50, 0))
    assert outputs.mean() == pytest.approx(237, rel=0.01)
    assert (outputs == 256).mean() == pytest.approx(0.65, abs=0.01)
    assert outputs.min() >= workload.shortest(256) - 1
    assert (Workload(1.0, 1.0).output_tokens(64, uniform_numbers(5, 2, 0)) == 64).all()


def test_draws_are_independent_closed_loops():
    physics = TRUTH.apply(BASE, KNOTS).physics(2)
    outputs = Workload(0.6).output_tokens(64, uniform_numbers(16, 3, 0))
    prompts = np.full(16, 1024, np.int32)
    together = closed_loop(physics, 4, prompts, outputs)
    alone = closed_loop(physics, 4, prompts, outputs[2:])
    assert np.array_equal(together.first_s[2], alone.first_s[0])
    assert np.array_equal(together.finish_s[2], alone.finish_s[0])
    assert together.itl_fine.sum() == (outputs - 1).sum()


def test_a_prior_costs_nothing_at_its_value_and_as_much_on_both_sides():
    prior = Prior(6e-6)
    assert prior.cost(6e-6) == 0.0
    assert prior.cost(12e-6) == pytest.approx(prior.cost(3e-6)) == pytest.approx(2.0)


@pytest.mark.parametrize("percentile", [0, 37.5, 50, 95, 100])
def test_percentiles_of_rows_are_those_of_numpy(percentile):
    for n in (1, 2, 33):
        values = np.random.default_rng(n).random((3, n))
        expected = np.percentile(values, percentile, axis=1)
        assert percentile_rows(values, percentile) == pytest.approx(expected)
