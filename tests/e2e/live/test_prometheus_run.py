"""``autoscaler run`` with a real Prometheus: a ramp, 503s, an outage and a restart of Prometheus.

One run of 70 s is told once; each test looks at its part of the decision log.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.prometheus.conftest import Start
from tests.e2e.live.story import Live, live, ramp

Entry = dict[str, Any]

RAMP_S, SECOND_RAMP_S, END_S = 90.0, 370.0, 720.0
OUTAGE_S = 60.0


def observed(entries: list[Entry]) -> list[Entry]:
    """Those of ticks that could read the width: on a busy machine a read may time out."""
    return [entry for entry in entries if entry["observation"]]


def effective(entry: Entry) -> int | None:
    return entry["observation"] and entry["observation"]["width"]["effective"]


def written(entry: Entry) -> int | None:
    return entry["decision"]["width"] if entry["outcome"] else None


def signal(entry: Entry, name: str) -> dict[str, Any]:
    return entry["observation"]["metrics"][name]


def stage(entry: Entry, name: str) -> str:
    return next((s["code"] for s in entry["trail"] if s["name"] == name), "")


def calm(entry: Entry) -> bool:
    """Whether it is known that nobody waits long."""
    return bool(entry["observation"]) and signal(entry, "ttft_p95_s").get("value", 9.0) < 1.0


def not_calm(entry: Entry) -> bool:
    """Whether that was looked for and not found: a busy machine may miss a tick altogether."""
    return bool(entry["observation"]) and not calm(entry)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, start_prometheus: Start) -> Iterator[Live]:
    load = ramp(
        (0, 12), (RAMP_S, 12), (RAMP_S + 40, 24), (SECOND_RAMP_S, 24), (SECOND_RAMP_S + 20, 33),
        (5 * END_S, 33),
    )  # fmt: skip
    with live(tmp_path_factory.mktemp("run"), start_prometheus, load) as run:
        run.mark("started")
        run.wait_for(lambda entry: written(entry) == 3)
        run.mark("asked for 3")
        run.wait_for(lambda entry: effective(entry) == 3)
        run.mark("3 serve")
        run.wait_until_s(SECOND_RAMP_S - 20)
        run.mark("unreachable")
        run.prometheus.stop()
        run.wait_until_s(SECOND_RAMP_S - 20 + OUTAGE_S)
        run.mark("reachable")
        run.prometheus.start()
        run.wait_for(lambda entry: written(entry) == 4)
        run.mark("asked for 4")
        run.wait_for(lambda entry: effective(entry) == 4)
        run.mark("4 serve")
        run.wait_for(calm)
        run.mark("before the restart")
        run.prometheus.stop()
        run.prometheus.start()
        run.wait_for(not_calm)
        run.mark("restarted")
        run.wait_for(calm)
        run.mark("end")
        yield run


def test_a_ramp_widens_before_the_width_is_lost_in_its_queue(story: Live) -> None:
    before = observed(story.between("started", "asked for 3"))
    assert {effective(entry) for entry in before[1:]} == {2}  # the first one begins to prove it
    assert [written(entry) for entry in before if written(entry)] == [3]
    assert before[-1]["decision"]["code"] == "high"
    assert "p95 TTFT" in before[-1]["decision"]["reason"]
    quiet = [e for e in before if stage(e, "policy") == "within_band" and effective(e)]
    assert quiet, "the load before the ramp is no reason"


def test_A36_503s_of_the_commit_are_held_through_and_named(story: Live) -> None:
    during = observed(story.between("asked for 3", "3 serve"))
    assert not [written(entry) for entry in during if written(entry)]
    assert {effective(entry) for entry in during[:-1]} == {None}
    resizing = [entry for entry in during if stage(entry, "convergence") == "resizing"]
    assert len(resizing) > 10
    assert any("503" in entry["observation"]["width"]["detail"] for entry in resizing)
    blind = [entry for entry in resizing if "value" not in signal(entry, "queue_depth")]
    assert len(blind) > 5, "the hole in the metrics is a reason, not a number"
    assert {entry["decision"]["width"] for entry in during} == {None}


def test_with_prometheus_away_for_60_s_the_width_stays_and_the_log_says_why_M05_G05(
    story: Live,
) -> None:
    away = observed(story.between("unreachable", "reachable"))[1:]
    assert len(away) >= 8
    assert {effective(entry) for entry in away} == {3}
    assert not [written(entry) for entry in away if written(entry)]
    for entry in away:
        assert signal(entry, "queue_depth")["status"] == "stale"
        assert story.prometheus.url in signal(entry, "queue_depth")["detail"]
        assert entry["decision"]["code"] == "unknown"
        assert "data missing: p95 TTFT stale, queue stale" in entry["decision"]["reason"]
    # The load went up meanwhile; it is seen and answered once Prometheus is back.
    after = story.between("reachable", "asked for 4")
    assert [written(entry) for entry in after if written(entry)] == [4]


def test_a_restart_of_prometheus_moves_no_width(story: Live) -> None:
    after = observed(story.between("before the restart", "end"))
    assert {effective(entry) for entry in after} == {4}
    assert not [written(entry) for entry in after if written(entry)]
    blind = [entry for entry in after if "value" not in signal(entry, "ttft_p95_s")]
    assert {entry["decision"]["code"] for entry in blind} == {"unknown"}
    assert "value" in signal(after[-1], "ttft_p95_s")


def test_the_width_is_never_wrong_and_the_resizes_are_the_two_that_were_needed(story: Live) -> None:
    entries = story.entries()
    widths = [w for w in map(effective, observed(entries)) if w]
    changes = [w for i, w in enumerate(widths) if i == 0 or w != widths[i - 1]]
    assert changes == [2, 3, 4]
    assert [written(entry) for entry in entries if written(entry)] == [3, 4]
    assert story.engine.state()["width"] == 4


def test_the_controllers_own_series_are_in_prometheus(story: Live) -> None:
    story.prometheus.wait_for(
        lambda: bool(story.prometheus.query('autoscaler_width{kind="effective"} == 4')), "telemetry"
    )
    failed = 'autoscaler_errors_total{port="source", target="chat"}'
    assert story.prometheus.number(f"sum({failed})") > 5
    up = 'autoscaler_resizes_total{direction="up", result="converged"}'
    assert story.prometheus.number(f"sum({up})") == 2


def test_replay_of_the_log_reproduces_every_decision_S18(story: Live) -> None:
    assert story.process.end() == 0
    again = story.world.command("replay", str(story.world.log), "--format", "json")
    assert again.returncode == 0, again.stdout + again.stderr
    document = json.loads(again.stdout)
    assert document["differences"] == []
    assert document["equal"] == document["decisions"] > 80
    assert document["decisions"] + document["unobserved"] == len(story.entries())
