"""What people read of a run: few lines, valid JSON, no secrets."""

import io
import json
import logging
from collections import Counter

import pytest

from autoscaler import journal
from autoscaler.journal import Journal
from autoscaler.model import (
    Capabilities,
    Decision,
    Resize,
    SetOutcome,
    SetResult,
    Signal,
    SignalStatus,
)
from autoscaler.redaction import Redaction
from autoscaler.testing import observation


@pytest.fixture
def stream():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before[0], before[1]


def lines(stream):
    return [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]


def decision(tick, code="within_band", width=None):
    return Decision(tick, 1000.0 + 5.0 * tick, width, 2, code, f"because of {code}")


def a_journal(stream, errors=None):
    logger = journal.configure("json", "info", Redaction, stream)
    return Journal(logger.bind(target="chat"), lambda: errors or {})


def test_R22_an_hour_without_change_is_a_line_a_minute_and_an_outage_is_no_storm(stream):
    errors = Counter()
    log = a_journal(stream, errors)
    for tick in range(720):
        if tick >= 360:
            errors["target", "TargetError"] += 1
            log.record(decision(tick, "target_unreadable"), None, None, {})
        else:
            log.record(decision(tick), observation(tick), None, {})
    found = lines(stream)
    assert len(found) == 60
    assert [line["event"] for line in found].count("decision") == 2
    assert found[-1]["errors"] == {"target.TargetError": found[-1]["tick"] - 359}


def test_the_canonical_line_says_what_was_decided_from_what(stream):
    log = a_journal(stream)
    obs = observation(
        queue_depth=Signal(None, SignalStatus.STALE), ttft_p95_s=9.123456, resize=Resize(2, 4, 1.0)
    )
    outcome = SetOutcome(SetResult.CONFLICT, detail="the width is 3")
    log.record(decision(7, "high", 4), obs, outcome, {}, {"pid": decision(7, "high", 6)})
    (line,) = lines(stream)
    del line["time"]
    assert line == {
        "event": "decision",
        "level": "info",
        "target": "chat",
        "tick": 7,
        "code": "high",
        "reason": "because of high",
        "width": 4,
        "desired": 2,
        "effective": 2,
        "outcome": "conflict",
        "detail": "the width is 3",
        "resize": "2 -> 4",
        "ttft_p95_s": 9.1235,
        "slo_attainment_ratio": "no_series",
        "queue_depth": "stale",
        "arrival_rps": 1.0,
        "shadows": {"pid": 6},
    }


def test_lines_are_valid_json_whatever_is_in_them_S14(stream):
    logger = journal.configure("json", "info", Redaction, stream)
    logger.info(
        "odd", value=float("nan"), more=[float("inf")], thing=object, text='a"\n{"event":1}'
    )
    (line,) = lines(stream)
    assert (line["value"], line["more"]) == ("nan", ["inf"])


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_taken_out_of_lines_and_of_what_libraries_say_G76(form, stream):
    redaction = Redaction({"password": "hunter2"})
    logger = journal.configure(form, "info", lambda: redaction, stream)
    logger.info("said", problem="hunter2 is wrong", nested={"a": ["http://u:p@host/?q=1"]})
    logging.getLogger("urllib3").warning("retry of %s", "http://u:secret@host with hunter2")
    logging.getLogger("urllib3").info("chatter")
    text = stream.getvalue()
    for secret in ("hunter2", "secret@", "u:p@", "q=1", "chatter"):
        assert secret not in text
    assert "retry of http://***@host with ***" in text


def test_the_level_decides(stream):
    logger = journal.configure("json", "warning", Redaction, stream)
    logger.info("quiet")
    logger.error("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_a_closed_pipe_costs_lines_and_not_the_loop():
    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    logger = journal.configure("json", "info", Redaction, Broken())
    logger.info("lost")
    logging.getLogger().handlers[:] = []


def test_unknown_capacity_is_said_once_and_again_after_it_was_known(stream):
    log = a_journal(stream)
    for tick, text in enumerate(["unknown: 403", "unknown: 504", "4 of 8 free", "unknown: 403"]):
        free = None if text.startswith("unknown") else 4
        can = Capabilities(1, 8, free_gpus=free, capacity=text)
        log.record(decision(tick), observation(tick, capabilities=can), None, {})
    said = [line["problem"] for line in lines(stream) if line["event"] == "capacity_unknown"]
    assert said == ["unknown: 403"] * 2


def test_a_signal_that_becomes_unreadable_is_a_line_with_the_cause_and_so_is_its_return(stream):
    log = a_journal(stream)
    away = Signal(None, SignalStatus.STALE, detail="http://prometheus: HTTP 503")
    for tick in range(9):
        signals = {"queue_depth": away} if 3 <= tick < 6 else {}
        log.record(decision(tick, "resizing"), observation(tick, **signals), None, {})
    found = lines(stream)
    assert [line["tick"] for line in found] == [0, 3, 6]
    assert [line.get("unread") for line in found] == [
        None,
        "stale: http://prometheus: HTTP 503",
        None,
    ]


def test_requests_that_run_and_get_no_first_token_are_a_line_and_an_idle_engine_is_none(stream):
    log = a_journal(stream)
    none = Signal(None, SignalStatus.NO_OBSERVATIONS)
    for tick, running in enumerate([0.0, 0.0, 3.0, 3.0]):
        log.record(decision(tick), observation(tick, ttft_p95_s=none, running=running), None, {})
    found = lines(stream)
    assert [line["tick"] for line in found] == [0, 2]
    assert found[1]["unread"].startswith("no_observations: 3 requests run")


def test_no_words_of_a_server_forge_a_line_or_command_a_terminal_S14(stream):
    logger = journal.configure("text", "info", Redaction, stream)
    logger.info("decision", reason="no\n2026-01-01 [info] decision width=64 \x1b[2K", width=2)
    logger.critical("defect", traceback="Traceback\n  line\nValueError: \x1b[31m")
    logger.info("decision", reason="\x1b[2K", width=2)
    text = stream.getvalue()
    assert "no\\n2026-01-01 [info] decision width=64 \\x1b[2K" in text
    assert text.count("\n") == 3
    assert "\x1b" not in text
