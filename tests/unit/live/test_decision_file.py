"""The decision log as a file: crashes, rotation, full disks."""

import json

import pytest

from autoscaler import decisions
from autoscaler.decisions import Entry
from autoscaler.errors import TraceError
from autoscaler.model import Decision, Signal
from autoscaler.redaction import Redaction
from autoscaler.testing import observation
from autoscaler.wiring import decision_file
from autoscaler.wiring.decision_file import DecisionFile, FileLog

DECISION = Decision(7, 12.5, None, 2, "code", "reason")
GOOD = json.dumps(
    decisions.encode(Entry(DECISION, observation(), None, {}, {})), separators=(",", ":")
)


def a_log(path, states=None, lost=None):
    states, lost = [] if states is None else states, [] if lost is None else lost
    file = DecisionFile(path, states.append)
    redaction = Redaction({"password": "hunter2"})
    return FileLog(file, {"target": "chat"}, redaction, lambda: lost.append(1))


def read(path):
    notices = []
    return list(decision_file.read(path, notices.append)), notices


def test_lines_are_appended_and_carry_target_and_wall_time(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(2):  # two processes, one after the other
        a_log(path).record(DECISION, observation(), None, {"i": float("nan")})
    entries, notices = read(path)
    assert [number for number, _ in entries] == [1, 2]
    assert entries[0][1].controller == {"target": "chat"}
    assert notices == []
    assert json.loads(path.read_text().splitlines()[0])["time"].endswith("+00:00")
    assert path.stat().st_mode & 0o007 == 0


def test_a_rotated_file_is_followed_by_a_new_one(tmp_path):
    path = tmp_path / "log.jsonl"
    log = a_log(path)
    log.record(DECISION, observation(), None, {})
    path.rename(tmp_path / "log.jsonl.1")
    log.record(DECISION, observation(), None, {})
    assert len(read(path)[0]) == len(read(tmp_path / "log.jsonl.1")[0]) == 1


def test_a_file_never_gets_longer_than_it_may_and_two_are_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    file = DecisionFile(path, lambda _: None, max_bytes=4 * len(GOOD))
    for written in range(1, 20):
        assert file.append(GOOD)
        sizes = [p.stat().st_size for p in tmp_path.iterdir()]
        assert all(size <= 4 * len(GOOD) for size in sizes)
        assert sum(len(read(p)[0]) for p in tmp_path.iterdir()) >= min(written, 4)
    assert {p.name for p in tmp_path.iterdir()} == {"log.jsonl", "log.jsonl.1"}


def test_a_line_longer_than_the_limit_is_written_all_the_same(tmp_path):
    path = tmp_path / "log.jsonl"
    file = DecisionFile(path, lambda _: None, max_bytes=10)
    assert file.append(GOOD)
    assert file.append(GOOD)
    assert len(read(path)[0]) == 1


def test_a_line_cut_off_by_a_crash_is_left_out_and_swallows_no_other(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD + "\n" + GOOD[:400], encoding="utf-8")
    entries, notices = read(path)
    assert len(entries) == 1
    assert notices == [f"{path}:2: cut off, left out"]
    a_log(path).record(DECISION, observation(), None, {})
    entries, notices = read(path)
    assert [number for number, _ in entries] == [1, 3]
    assert notices == [f"{path}:2: cut off, left out"]


@pytest.mark.parametrize("length", [1, 10, 31, 32, 100])
def test_a_line_may_be_cut_off_anywhere(length, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(f"{GOOD}\n{GOOD[:length]}", encoding="utf-8")
    assert len(read(path)[0]) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", r"log\.jsonl:2: must be a JSON object"),
        ("[]", r"log\.jsonl:2: must be a decision"),
        ('{"schema": "other/v1"}', r"log\.jsonl:2: must be a decision"),
    ],
)
def test_lines_that_were_never_decisions_are_refused(line, message, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(f"{GOOD}\n{line}\n", encoding="utf-8")
    with pytest.raises(TraceError, match=message):
        read(path)


def test_a_missing_log_is_refused(tmp_path):
    with pytest.raises(TraceError, match="must be a readable decision log"):
        read(tmp_path / "none")


def test_a_failing_disk_is_told_once_and_counted_each_time(tmp_path):
    states, lost = [], []
    path = tmp_path / "folder" / "log.jsonl"
    log = a_log(path, states, lost)
    for _ in range(3):
        log.record(DECISION, observation(), None, {})
    assert (states, len(lost)) == ([f"{path}: No such file or directory"], 3)
    path.parent.mkdir()
    log.record(DECISION, observation(), None, {})
    assert (states[1:], len(lost)) == ([None], 3)
    assert len(read(path)[0]) == 1


def test_secrets_do_not_get_into_the_log_G76(tmp_path):
    path = tmp_path / "log.jsonl"
    obs = observation(queue_depth=Signal(1.0, detail="http://me:hunter2@host/?token=abc"))
    a_log(path).record(
        Decision(7, 12.5, None, 2, "code", "hunter2 was refused"), obs, None, {"s": "hunter2"}
    )
    text = path.read_text()
    assert "hunter2" not in text
    assert "token=abc" not in text
    assert read(path)[0][0][1].decision.reason == "*** was refused"
