"""A signal ends the program cleanly, whichever of its threads takes it."""

import ctypes
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TGKILL = {"x86_64": 234, "aarch64": 131}[platform.machine()]
"""Number of the call that sends a signal to one thread; Python has none for another process."""

CONFIG = """\
tick_s: 5
targets:
  - name: chat
    source: {kind: scrape, urls: ["http://127.0.0.1:9/metrics"]}
    target: {kind: vllm, url: "http://127.0.0.1:9", max_width: 4, gpus_per_width: 2}
    policy: hold
    guards: {min_width: 2, max_width: 4}
telemetry: {port: 0}
"""


def unblocking_thread(pid: int) -> int | None:
    """A thread other than the main one that blocks no signal: linear algebra's."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid and "SigBlk:\t0000000000000000" in (task / "status").read_text():
            return int(task.name)
    return None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_a_library_thread_takes_ends_the_program_as_any_other(tmp_path, number):
    (tmp_path / "autoscaler.yaml").write_text(CONFIG)
    program = subprocess.Popen(
        [sys.executable, "-m", "autoscaler", "run", "--config", "autoscaler.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
    )
    try:
        assert program.stdout is not None
        assert any('"started"' in line for line in program.stdout)
        thread = unblocking_thread(program.pid)
        assert thread is not None
        assert ctypes.CDLL(None).syscall(TGKILL, program.pid, thread, number) == 0
        out, _ = program.communicate(timeout=10)
    finally:
        program.kill()
    assert program.returncode == 0
    assert '"stopping"' in out
