"""Ranges to rounds: each scrape once, all targets together, nothing half delivered."""

from autoscaler.sources._promql import Series
from autoscaler.sources._rounds import Rounds
from tests.unit.sources.worlds import VLLM

WAITING, RUNNING = "vllm:num_requests_waiting", "vllm:num_requests_running"


def series(target: str, times: list[float], name: str = WAITING, **more: str) -> Series:
    labels = {"__name__": name, "instance": target, "engine": "0", **more}
    return Series(labels, [(at_s, at_s) for at_s in times])


def rounds(*targets: str) -> Rounds:
    return Rounds(VLLM, ("instance",), 5.0, 30.0)


def taken(target: Rounds, now_s: float, *found: Series) -> list[tuple[float, list[str]]]:
    return [(at_s, sorted(pages)) for at_s, pages in target.new(now_s, found)]


def test_each_scrape_is_taken_once_though_ranges_overlap():
    target = rounds()
    assert taken(target, 11.0, series("a", [0.0, 5.0, 10.0])) == [
        (0.0, ["a"]),
        (5.0, ["a"]),
        (10.0, ["a"]),
    ]
    assert taken(target, 12.0, series("a", [0.0, 5.0, 10.0])) == []
    assert taken(target, 16.0, series("a", [5.0, 10.0, 15.0])) == [(15.0, ["a"])]


def test_a_round_waits_for_all_live_targets_but_not_for_one_that_misses_its_turn():
    target = rounds()
    first = taken(target, 8.0, series("a", [0.0, 5.0]), series("b", [2.0, 7.0]))
    assert first == [(2.0, ["a", "b"]), (7.0, ["a", "b"])]
    assert taken(target, 11.0, series("a", [10.0]), series("b", [7.0])) == []
    assert taken(target, 16.0, series("a", [15.0]), series("b", [7.0])) == [(10.0, ["a"])]
    # b is dead by now: nobody waits for it.
    assert taken(target, 21.0, series("a", [20.0])) == [(15.0, ["a"]), (20.0, ["a"])]
    back = taken(target, 27.0, series("a", [20.0, 25.0]), series("b", [26.0]))
    assert back == [(26.0, ["a", "b"])]


def test_a_scrape_that_is_delivered_in_parts_is_taken_when_it_is_whole():
    target = rounds()
    whole = [series("a", [0.0], WAITING), series("a", [0.0], RUNNING)]
    assert taken(target, 1.0, *whole) == [(0.0, ["a"])]
    part = [series("a", [0.0, 5.0], WAITING), series("a", [0.0], RUNNING)]
    assert taken(target, 6.0, *part) == []
    whole = [series("a", [0.0, 5.0], WAITING), series("a", [0.0, 5.0], RUNNING)]
    (at_s, pages), *_ = target.new(7.0, whole)
    assert at_s == 5.0
    assert set(pages["a"].gauges) == {"waiting", "running"}


def test_a_series_that_is_really_gone_is_waited_for_one_interval_only():
    target = rounds()
    taken(target, 1.0, series("a", [0.0], WAITING), series("a", [0.0], RUNNING))
    rest = [series("a", [0.0, 5.0], WAITING), series("a", [0.0], RUNNING)]
    assert taken(target, 6.0, *rest) == []
    assert taken(target, 10.5, *rest) == [(5.0, ["a"])]


def test_a_target_forgotten_is_not_found_again_in_an_old_range():
    target = rounds()
    assert len(taken(target, 10.0, series("a", [0.0, 5.0]))) == 2
    for now_s in (20.0, 30.0, 34.0):
        assert taken(target, now_s, series("a", [0.0, 5.0])) == []
    assert taken(target, 500.0) == []


def test_who_scraped_tells_no_targets_apart_T12():
    target = rounds()
    found = [
        series("a", [0.0, 5.0], job="one", prometheus_replica="x"),
        series("a", [2.0, 7.0], job="two", prometheus_replica="y"),
    ]
    assert [at_s for at_s, _ in taken(target, 8.0, *found)] == [0.0, 5.0]


def test_of_two_who_scrape_one_target_the_second_is_heard_once_the_first_is_silent_T12():
    target = rounds()
    one, two = {"job": "one"}, {"job": "two"}
    both = [series("a", [0.0, 5.0], **one), series("a", [0.1, 5.1], **two)]
    assert taken(target, 6.0, *both) == [(0.0, ["a"]), (5.0, ["a"])]
    gone = [series("a", [5.0], **one), series("a", [5.1, 10.1, 15.1], **two)]
    assert taken(target, 16.0, *gone) == [(15.1, ["a"])]
    back = [series("a", [16.0, 21.0], **one), series("a", [15.1, 20.1], **two)]
    assert taken(target, 22.0, *back) == [(20.1, ["a"])]


def test_labels_of_a_pages_own_series_are_no_second_scraper_T12():
    target = rounds()
    first = [series("a", [0.0], replica="x"), series("a", [0.0], RUNNING, replica="y")]
    assert taken(target, 1.0, *first) == [(0.0, ["a"])]
    more = [*(series("a", [5.0], name, replica="y") for name in (WAITING, RUNNING))]
    assert taken(target, 6.0, *more) == [(5.0, ["a"])]


def test_whoever_is_heard_brings_the_same_series_T12():
    target, tokens = rounds(), "vllm:generation_tokens_total"
    one, two = {"job": "one", "prometheus_replica": "x"}, {"job": "two", "prometheus_replica": "y"}
    first = list(target.new(1.0, [series("a", [0.0], tokens, **one)]))
    later = list(target.new(16.0, [series("a", [5.1, 10.1, 15.1], tokens, **two)]))
    pages = [pages["a"] for _, pages in (*first, *later)]
    assert len(pages) > 1
    # Else the second one's first sample would be an increase from zero.
    assert len({(name, labels) for page in pages for _, name, labels, _ in page.counters}) == 1


def test_the_interval_that_is_seen_is_measured():
    target = rounds()
    taken(target, 46.0, series("a", [0.0, 15.0, 30.0, 45.0]))
    assert target.interval_s == 15.0
