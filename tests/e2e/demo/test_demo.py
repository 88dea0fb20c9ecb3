"""The README's first command, as a process: it widens, proves it, tells why, and ends cleanly."""

import re
import signal
import subprocess
import sys
import time

COMMAND = (sys.executable, "-W", "error", "-m", "autoscaler", "demo")


def test_the_demo_widens_proves_it_and_says_why():
    done = subprocess.run(
        (*COMMAND, "--time-scale", "20", "--duration-s", "400"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    assert re.search(r"2 -> \d: p95 TTFT [\d.]+ s, queue \d+, high for [\d.]+ s", told)
    assert re.search(r"a token on every rank proved it 1[0-4]\d s later", told)
    assert re.search(r"p95 TTFT within 5 s in \d+ of \d+ ticks", told)
    assert re.search(r"[\d.]+ GPU-hours; always at 8", told)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_ctrl_c_ends_the_demo_at_once_with_its_story():
    demo = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "within_band" in line:
                break
        demo.send_signal(signal.SIGINT)
        started_s = time.perf_counter()
        out, err = demo.communicate(timeout=20)
    finally:
        demo.kill()
    assert time.perf_counter() - started_s < 5.0
    assert (demo.returncode, err) == (0, "")
    assert "emulated seconds:" in out
