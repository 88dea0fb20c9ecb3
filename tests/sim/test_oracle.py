"""The oracle and the lower bounds: the least GPU-hours that keep the SLO."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler import profiles, shipped
from autoscaler.decisions import JsonlLog
from autoscaler.engine.capacity import saturated_rps
from autoscaler.engine.fleet import Engine, Load
from autoscaler.errors import ConfigError
from autoscaler.model import Slo
from autoscaler.scenario import Scenario
from autoscaler.sim.fleet import Fleet
from autoscaler.sim.fluid import busy_seconds, least_seconds, lower_bound, request_seconds
from autoscaler.sim.plan import Params as Plan
from autoscaler.sim.search import play
from autoscaler.traces import Trace
from autoscaler.wiring import clairvoyant, simulated
from tests.sim.worlds import linear_profile, model

SLO = Slo(ttft_p95_s=5.0, window_s=30.0)
WIDTHS = (1, 2, 3, 4)
TP = 2


def arrivals(*pieces: tuple[float, float], output_tokens: int = 100) -> Load:
    """(requests a second, seconds) one after the other, evenly spaced."""
    at_s, start_s = [], 0.0
    for rate_rps, duration_s in pieces:
        at_s.append(start_s + np.arange(round(rate_rps * duration_s)) / rate_rps)
        start_s += duration_s
    times = np.concatenate(at_s)
    n = len(times)
    return Load(times, np.full(n, 10, np.int32), np.full(n, output_tokens, np.int32))


def new_fleet(load: Load, resize, width: int = 1, seed: int = 0) -> Fleet:
    profile = linear_profile(widths=WIDTHS)
    return Fleet(load, profile, resize, width, WIDTHS[-1], np.random.default_rng(seed))


def look_ahead(load: Load, resize, width: int = 1) -> clairvoyant.Foresight:
    return clairvoyant.look_ahead(
        Scenario(),
        load,
        linear_profile(widths=WIDTHS),
        resize,
        range(1, WIDTHS[-1] + 1),
        width,
        lambda: new_fleet(load, resize, width),
    )


def bound_of(load: Load, resize, width: int = 1):
    profile = linear_profile(widths=WIDTHS)
    physics = {w: profile.physics(w) for w in WIDTHS}
    gpus = {w: profile.gpus(w) for w in WIDTHS}
    return lower_bound(load, least_seconds(load, physics), gpus, 16, SLO, resize, width)


def test_a_load_that_the_least_width_bears_needs_no_resize():
    found = look_ahead(arrivals((0.5, 300)), model()).found
    assert found.best.plan == Plan((), (), 1)
    assert found.best.missed_s == 0
    assert (found.plays, found.finished) == (1, True)


def test_it_grows_before_the_load_comes_and_shrinks_after_it():
    load = arrivals((0.7, 200), (3.5, 100), (0.7, 200))
    found = look_ahead(load, model()).found
    plan, best = found.best.plan, found.best
    assert best.missed_s == 0
    assert max(plan.width) >= 3
    # Eleven seconds of lead, and the slack that the SLO leaves.
    assert 150 <= plan.at_s[0] <= 200
    assert plan.width[-1] == 1
    # Width 4 for good would be 8 GPUs for 500 s.
    assert best.gpu_seconds < 0.6 * 4 * TP * 500


@pytest.mark.parametrize(
    "pieces",
    [((0.7, 100), (1.8, 100), (0.7, 100)), ((0.8, 120), (2.7, 120)), ((3.6, 60), (0.5, 180))],
)
def test_it_is_as_cheap_as_an_exhaustive_search_over_two_resizes(pieces):
    load = arrivals(*pieces)
    resize = model()
    start = 4 if pieces[0][0] > 1 else 1
    found = look_ahead(load, resize, start).found
    cheapest = np.inf
    instants = np.arange(0, 300, 20.0)
    for first, second in itertools.combinations(instants, 2):
        for a, b in itertools.product(WIDTHS, WIDTHS):
            if a in (start, b) or second - first < 15:
                continue
            got = play(
                new_fleet(load, resize, start), Plan((first, second), (a, b), start), 5.0, SLO
            )
            if got.missed_s == 0:
                cheapest = min(cheapest, got.gpu_seconds)
    assert found.best.missed_s == 0
    assert found.best.gpu_seconds <= 1.02 * cheapest


def test_a_fleet_that_cannot_shrink_is_never_asked_to():
    load = arrivals((0.7, 150), (1.8, 100), (0.7, 150))
    found = look_ahead(load, model(scale_up_only=True)).found
    widths = [1, *found.best.plan.width]
    assert widths == sorted(widths)
    assert found.best.missed_s == 0


def test_it_is_as_early_as_the_preparation_demands():
    load = arrivals((0.7, 300), (1.8, 100))
    starts = []
    for prepare_s in (20.0, 60.0, 120.0):
        found = look_ahead(load, model(prepare_s=prepare_s)).found
        assert found.best.missed_s == 0
        starts.append(found.best.plan.at_s[0])
    assert starts[0] - starts[1] == pytest.approx(40, abs=15)
    assert starts[1] - starts[2] == pytest.approx(60, abs=15)


def test_where_every_resize_rejects_it_resizes_least_and_says_that_the_slo_cannot_be_kept():
    load = arrivals((0.7, 200), (2.7, 300))
    resize = model(new="reject", pause_up_s=40.0)
    ahead = look_ahead(load, resize)
    assert len(ahead.found.best.plan.at_s) == 1
    assert not ahead.found.best.kept


def test_where_a_resize_costs_few_of_many_windows_the_slo_counts_as_kept_at_least_cost():
    load = arrivals((0.7, 3000), (1.8, 3000))
    best = look_ahead(load, model(new="reject", pause_up_s=20.0)).found.best
    assert 0 < best.missed_s <= 60
    assert best.kept
    assert best.plan.width == (2,)
    # Just in time for the load, and no sooner.
    assert 2900 <= best.plan.at_s[0] <= 3010


def test_a_load_beyond_the_largest_width_is_proven_infeasible_S14():
    bound = bound_of(arrivals((8.0, 600)), model())
    assert bound.infeasible
    assert bound.gpu_seconds == pytest.approx(4 * TP * 600, rel=0.01)
    assert not bound_of(arrivals((3.0, 600)), model()).infeasible


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.floats(0.2, 3.9), min_size=2, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(WIDTHS)), max_size=4),
    start=st.sampled_from(WIDTHS),
)
def test_no_schedule_that_keeps_the_slo_beats_the_lower_bound_S14(rates, changes, start):
    load = arrivals(*((rate, 100.0) for rate in rates))
    resize = model(prepare_s=5.0)
    steps = sorted({5.0 * at: width for at, width in changes}.items())
    plan = Plan(tuple(at for at, _ in steps), tuple(w for _, w in steps), start)
    got = play(new_fleet(load, resize, start), plan, 5.0, SLO)
    if got.missed_s == 0:
        assert got.gpu_seconds >= bound_of(load, resize, start).gpu_seconds - 1e-6


@pytest.mark.parametrize("name", shipped.names("profiles"))
def test_no_engine_is_faster_than_the_least_time_of_its_requests(name):
    profile = profiles.load(name)
    rng = np.random.default_rng(1)
    n = 400
    prompts = rng.integers(1, 3000, n).astype(np.int32)
    outputs = rng.integers(0, 400, n).astype(np.int32)
    load = Load(np.zeros(n), prompts, outputs)
    for width in (profile.known_widths[0], profile.known_widths[-1]):
        physics = profile.physics(width)
        engine = Engine(load, physics)
        engine.run()
        assert float(engine.finish_s.max()) >= request_seconds(physics, load).sum()


def test_the_busy_bound_lies_between_the_proof_and_what_is_achieved():
    profile = profiles.load("assumed-wide")
    rng = np.random.default_rng(2)
    n = 12_000
    load = Load(
        np.sort(rng.uniform(0, 900, n)),
        rng.integers(100, 2000, n).astype(np.int32),
        rng.integers(20, 500, n).astype(np.int32),
    )
    physics = {w: profile.physics(w) for w in (2, 4)}
    rps = {w: saturated_rps(p, load.prompt_tokens, load.output_tokens) for w, p in physics.items()}
    gpus = {w: w for w in physics}
    resize = model()
    proof, busy = (
        lower_bound(load, seconds, gpus, 64, SLO, resize, 2)
        for seconds in (least_seconds(load, physics), busy_seconds(load, physics, rps))
    )
    fleet = Fleet(load, profile, resize, 4, 4, np.random.default_rng(0))
    achieved = play(fleet, Plan((), (), 4), 5.0, SLO)
    assert achieved.missed_s == 0
    assert proof.gpu_seconds < busy.gpu_seconds <= achieved.gpu_seconds


def scenario(**changed: object) -> Scenario:
    return replace(
        Scenario(profile=("linear",), resize="elastic-nixl", policy=("oracle", "static:4")),
        **changed,  # type: ignore[arg-type]
    )


def run(load: Load, given: Scenario, log=None):
    profile = linear_profile(widths=WIDTHS)
    trace = Trace(load.arrival_s, load.prompt_tokens, load.output_tokens)
    mine = simulated.Run(profile, clairvoyant.unplanned(1), 1, 1, 4)
    return simulated.simulate_run(given, trace, mine, model(), log)


def test_what_the_loop_makes_of_the_schedule_is_what_the_search_found():
    load = arrivals((0.7, 200), (2.7, 100), (0.7, 200))
    entry = run(load, scenario())
    found = look_ahead(load, model()).found
    assert entry["policy"] == "oracle"
    assert entry["gpu_hours"] == pytest.approx(found.best.gpu_seconds / 3600, abs=1e-9)
    assert entry["slo"]["windows_over_s"] == found.best.missed_s == 0
    assert entry["oracle"]["plan"] == [
        [at, w] for at, w in zip(found.best.plan.at_s, found.best.plan.width, strict=True)
    ]
    oracle = entry["oracle"]
    assert oracle["lower_bound_gpu_hours"] <= oracle["busy_bound_gpu_hours"] + 1e-9
    assert oracle["busy_bound_gpu_hours"] <= entry["gpu_hours"]
    assert oracle["slo_infeasible"] is False


def test_its_decisions_say_that_a_plan_was_followed(tmp_path):
    load = arrivals((0.7, 100), (1.8, 100))
    path = tmp_path / "decisions.jsonl"
    with path.open("w") as file:
        run(load, scenario(), JsonlLog(file, {"target": "x"}))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    written = [d for d in lines if d["decision"]["width"] is not None]
    assert len(written) >= 1
    assert "the plan says" in json.dumps(written[0])


def test_a_plan_is_followed_from_its_instants_on():
    plan = Plan((10.0, 30.0), (4, 2), 3)
    assert [plan.at(t) for t in (0.0, 9.9, 10.0, 29.9, 30.0, 1e9)] == [3, 3, 4, 4, 2, 2]


@pytest.mark.parametrize(("at_s", "width"), [((1.0,), ()), ((2.0, 2.0), (1, 2))])
def test_a_plan_that_is_none_is_refused(at_s, width):
    with pytest.raises(ConfigError):
        Plan(at_s, width, 1)


def test_ratios_are_null_where_the_oracle_keeps_no_slo_or_was_not_run():
    def entry(name: str, hours: float, infeasible: bool | None = None) -> dict:
        made = {"policy": name, "profile": "p", "gpu_hours": hours, "oracle_gpu_hours_ratio": None}
        if infeasible is not None:
            made["oracle"] = {"slo_infeasible": infeasible}
        return made

    for oracle, expected in (
        (entry("oracle", 2.0, True), None),
        (entry("oracle", 2.0, False), 1.5),
    ):
        results = [entry("threshold", 3.0), oracle]
        clairvoyant.compare(results)
        assert results[0]["oracle_gpu_hours_ratio"] == expected
    alone = [entry("threshold", 3.0)]
    clairvoyant.compare(alone)
    assert alone[0]["oracle_gpu_hours_ratio"] is None


def test_refused_and_failing_resizes_do_not_stop_the_search():
    load = arrivals((0.7, 100), (1.8, 200))
    resize = model(refuse_probability=0.5, fail_probability=0.5, stuck_probability=0.2)
    found = look_ahead(load, resize).found
    assert found.plays >= 1


def test_one_request_and_a_tiny_trace_have_an_oracle_S14():
    for load in (arrivals((1.0, 1)), arrivals((2.0, 3))):
        ahead = look_ahead(load, model(), 2)
        assert ahead.found.best.missed_s == 0
