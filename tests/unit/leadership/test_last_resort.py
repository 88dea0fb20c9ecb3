"""The kernel's timer, in processes that it may end."""

import signal
import subprocess
import sys
import threading

import pytest

PROGRAM = """
import threading
from autoscaler.clock import SystemClock
from autoscaler.leadership.last_resort import KernelTimer

clock = SystemClock()
timer = KernelTimer(clock)
now_s = clock.now_s()
{body}
print("set", flush=True)
threading.Event().wait(2.0)
print("lived", flush=True)
"""
CASES = {
    "the instant has come": ("timer.set('a', now_s + 0.3)", 14),
    "it has come already": ("timer.set('a', now_s - 5.0)", 14),
    "the earliest of several": ("timer.set('a', now_s + 60); timer.set('b', now_s + 0.3)", 14),
    "set anew in time": ("timer.set('a', now_s + 0.3); timer.set('a', now_s + 60)", 0),
    "cleared": ("timer.set('a', now_s + 0.3); timer.clear('a')", 0),
    "another's is left": (
        "timer.set('a', now_s + 0.3); timer.set('b', now_s + 60); timer.clear('b')",
        14,
    ),
}


def start(body):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("case", CASES)
def test_a_process_ends_at_the_earliest_instant_that_was_not_taken_back(case):
    body, code = CASES[case]
    process = start(body)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert ("lived" in out) is (code == 0)


def test_a_frozen_process_does_nothing_more_once_its_time_is_over():
    process = start("timer.set('a', now_s + 1.5)")
    try:
        assert process.stdout.readline() == "set\n"
        process.send_signal(signal.SIGSTOP)
        threading.Event().wait(2.5)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 14
    assert out == ""
