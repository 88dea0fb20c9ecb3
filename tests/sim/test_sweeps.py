"""Sweeps: the same results from one process, several, or a cluster; nothing is computed twice."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler import scenario as scenarios
from autoscaler.errors import ConfigError
from autoscaler.sweeps import Journal, Workers, each
from autoscaler.wiring import simulated

# A seeded random outcome and a compiled engine: what could differ between processes.
NAMES = ("threshold", "pid", "static:3")


def _root(number: int) -> float:
    return number**0.5


def _refuse(number: int) -> int:
    raise ConfigError(f"number: must be unused; got {number}")


def _simulated(workers: Workers) -> str:
    given = scenarios.load("slow-drift", {"policy": list(NAMES), "duration_s": 600.0})
    trace = simulated.load_trace(given)
    document = simulated.simulate(given, trace, workers=workers)
    for entry in document["results"]:
        del entry["wall_s"]
    return json.dumps(document)


@pytest.fixture(scope="module")
def serial() -> str:
    return _simulated(Workers(1))


def test_two_processes_give_what_one_gives(serial):
    assert _simulated(Workers(2)) == serial


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[str]:
    """A scheduler and two workers, as anybody starts them; the scheduler's address."""
    told = tmp_path_factory.mktemp("dask") / "scheduler.json"
    common = ("--host", "127.0.0.1", "--scheduler-file", str(told), "--no-dashboard")
    worker = ("worker", *common, "--nworkers", "1", "--nthreads", "1", "--no-nanny")
    running = [_dask("scheduler", *common, "--port", "0")]
    try:
        pause = threading.Event()
        for _ in range(600):
            if told.exists():
                break
            pause.wait(0.1)
        running += [_dask(*worker), _dask(*worker)]
        yield json.loads(told.read_text(encoding="utf-8"))["address"]
    finally:
        for process in running:
            process.kill()  # a worker that has lost its scheduler may take minutes to end by itself
        for process in running:
            process.wait(timeout=30)


def _dask(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask.__main__", *arguments],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def test_a_cluster_of_two_workers_gives_what_one_process_gives(cluster, serial):
    assert _simulated(Workers(cluster=cluster)) == serial


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"cluster: must be the address of a Dask scheduler"):
        list(each(_root, [1, 2], Workers(cluster="nonsense://127.0.0.1:1")))


def test_results_come_in_the_order_of_the_items():
    assert list(each(_root, [9, 1, 4], Workers(2))) == [3.0, 1.0, 2.0]


def test_what_a_worker_refuses_is_refused_with_its_own_message():
    with pytest.raises(ConfigError, match=r"number: must be unused; got [12]$"):
        list(each(_refuse, [1, 2], Workers(2)))


def test_a_policy_that_breaks_has_no_score_and_is_in_no_journal_T21(tmp_path):
    policy = tmp_path / "breaking.yaml"
    policy.write_text("kind: tests.sim.breaking\nafter_ticks: 10\n", encoding="utf-8")
    options = {"policy": ["static:3", str(policy)], "duration_s": 120.0}
    given = scenarios.load("slow-drift", options)
    trace, played = simulated.load_trace(given), []
    with pytest.raises(ZeroDivisionError):
        simulated.simulate(given, trace, on_done=lambda done, _: played.append(done))
    assert played == [1]  # the static width; of the other one there is nothing
    journal = Journal(tmp_path / "journal.jsonl", "policies", resume=False)
    resize = simulated.resize_model(given.resize)

    def play(run: simulated.Run) -> dict[str, object]:
        return simulated.simulate_run(given, trace, run, resize)

    with pytest.raises(ZeroDivisionError):
        list(each(play, simulated.plan(given)[1:], Workers(1), keys=["broken"], journal=journal))
    assert "broken" not in journal
    journal.close(remove=True)


def test_what_a_journal_knows_is_not_computed_again(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "roots", resume=False)
    assert list(each(_root, [4], Workers(1), keys=["4"], journal=journal)) == [2.0]
    journal.close(remove=False)
    journal = Journal(path, "roots", resume=True)
    # It would refuse: so it is not asked.
    assert list(each(_refuse, [4], Workers(1), keys=["4"], journal=journal)) == [2.0]
    journal.close(remove=True)
    assert not path.exists()


def test_two_items_of_one_name_are_one(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl", "roots", resume=False)
    keys = ["4", "9", "4"]
    assert list(each(_root, [4, 9, 4], Workers(1), keys=keys, journal=journal)) == [2.0, 3.0, 2.0]
    journal.close(remove=True)


def test_a_line_that_was_cut_off_is_computed_again(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "roots", resume=False)
    list(each(_root, [4, 9], Workers(1), keys=["4", "9"], journal=journal))
    journal.close(remove=False)
    path.write_text(path.read_text(encoding="utf-8")[:-3], encoding="utf-8")
    journal = Journal(path, "roots", resume=True)
    assert "4" in journal
    assert "9" not in journal
    journal.close(remove=True)


def test_a_journal_that_exists_is_not_overwritten_unasked(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, "roots", resume=False).close(remove=False)
    with pytest.raises(ConfigError, match="must be resumed or removed"):
        Journal(path, "roots", resume=False)


def test_another_sweeps_journal_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, "roots", resume=False).close(remove=False)
    with pytest.raises(ConfigError, match="is of another run"):
        Journal(path, "squares", resume=True)
    assert path.exists()
