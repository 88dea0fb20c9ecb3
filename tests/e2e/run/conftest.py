"""A world of files, and ``autoscaler run`` as a process of its own in it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import requests
import yaml

PLUGINS = Path(__file__).parent / "plugins"
QUIET = {"ttft_p95_s": 0.5, "queue_depth": 0, "arrival_rps": 1, "ttft_observations": 30}
BURNING = {"ttft_p95_s": 9.0, "queue_depth": 90, "arrival_rps": 9, "ttft_observations": 30}
FREE = {"cooldown_down_s": 0, "scale_down_window_s": 0, "settle_s": 0, "max_width": 8}


class World:
    """Files of one configuration, and the processes started with it."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "autoscaler.yaml"
        self.log = folder / "decisions.jsonl"
        self.processes = []
        self.settings = {
            "tick_s": 0.1,
            "targets": [],
            "decisions": {"path": "decisions.jsonl"},
            "telemetry": {"port": 0},
        }

    def add_target(self, name, policy="static:4", width=2, **section):
        self.metrics(name, QUIET)
        self.state(name, desired=width, effective=width)
        entry = {
            "name": name,
            "source": {"kind": "live_fakes.source", "path": str(self.folder / f"{name}.metrics")},
            "target": {"kind": "live_fakes.target", "path": str(self.folder / f"{name}.state")},
            "slo": {"ttft_p95_s": 5, "window_s": 1},
            "policy": policy,
            "guards": FREE,
            **section,
        }
        self.settings["targets"].append(entry)
        return entry

    def metrics(self, name, signals=None, **other):
        content = {"signals": signals} if signals else other
        self._write(f"{name}.metrics", json.dumps(content))

    def state(self, name, **values):
        self._write(f"{name}.state", json.dumps(values))

    def read_state(self, name):
        return json.loads((self.folder / f"{name}.state").read_text(encoding="utf-8"))

    def save(self, **changes):
        self.settings |= changes
        self._write("autoscaler.yaml", yaml.safe_dump(self.settings))

    def _write(self, name, text):
        beside = self.folder / f"{name}.edited"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.folder / name)

    def command(self, *arguments, env=None):
        return subprocess.run(
            [sys.executable, "-m", "autoscaler", *arguments],
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    def run(self, *arguments, env=None):
        return self.command("run", "--config", str(self.config), *arguments, env=env)

    def start(self, *arguments, env=None):
        process = Process(
            [sys.executable, "-m", "autoscaler", "run", "--config", str(self.config), *arguments],
            self.environment(env),
        )
        self.processes.append(process)
        process.await_line("started", timeout_s=40.0)  # two cores, and others on them
        return process

    def environment(self, env):
        mine = {k: v for k, v in os.environ.items() if not k.startswith("AUTOSCALER_")}
        return {**mine, "PYTHONPATH": str(PLUGINS), **(env or {})}

    def entries(self):
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines() if line]

    def await_true(self, what, timeout_s=8.0):
        for _ in range(int(timeout_s / 0.05)):
            if what():
                return
            threading.Event().wait(0.05)
        raise AssertionError("did not happen in time")


class Process:
    """The program, its lines, and its own page."""

    def __init__(self, arguments, environment):
        self.process = subprocess.Popen(
            arguments,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = []
        self._grown = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._grown:
                self.lines.append(line)
                self._grown.notify_all()

    @property
    def text(self):
        return "".join(self.lines)

    def events(self, name):
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in found if line["event"] == name]

    def await_line(self, event, count=1, timeout_s=30.0):
        with self._grown:
            ok = self._grown.wait_for(lambda: len(self.events(event)) >= count, timeout_s)
        assert ok, f"no {event} in:\n{self.text}"
        return self.events(event)[-1]

    def page(self, path):
        address = self.events("started")[0]["telemetry"]
        return requests.get(f"http://{address}{path}", timeout=5)

    def end(self, number=signal.SIGTERM, timeout_s=5.0):
        self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)
        self._reader.join(5)
        self.process.stdout.close()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    for process in made.processes:
        process.close()
