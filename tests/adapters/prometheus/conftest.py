"""A real Prometheus, started for a test."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from autoscaler.clock import SystemClock
from tests.adapters.prometheus.servers import free_port

_CONFIG = """
global:
  scrape_interval: {interval_ms}ms
  scrape_timeout: {interval_ms}ms
  evaluation_interval: {interval_ms}ms
rule_files: {rules}
scrape_configs:
{jobs}
"""
_JOB = "- {{job_name: {name}, static_configs: [{{targets: {targets}, labels: {labels}}}]}}\n"


class Prometheus:
    """One that scrapes given targets each ``interval_ms``; on a port of its own.

    Targets are by job; a job may have several, separated by blanks. ``rules`` is a file of rules.
    """

    def __init__(
        self,
        folder: Path,
        jobs: dict[str, tuple[str, dict[str, str]]],
        interval_ms: int,
        rules: Path | None = None,
    ):
        binary = shutil.which("prometheus")
        if binary is None:
            pytest.fail("needs Prometheus: apt-get install prometheus")
        self._binary = binary
        self._folder = folder
        self.port = free_port()
        lines = "".join(
            _JOB.format(name=name, targets=json.dumps(target.split()), labels=json.dumps(labels))
            for name, (target, labels) in jobs.items()
        )
        self._config = folder / "prometheus.yml"
        named = json.dumps([] if rules is None else [str(rules)])
        self._config.write_text(_CONFIG.format(interval_ms=interval_ms, jobs=lines, rules=named))
        self._process: subprocess.Popen[bytes] | None = None
        self._clock = SystemClock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, with the samples it had; returns once it answers."""
        log = (self._folder / "prometheus.log").open("ab")
        with log:
            self._process = subprocess.Popen(  # the binary that was asked for
                [
                    self._binary,
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )
        self.wait_for(self._ready, "prometheus to be ready")

    def stop(self) -> None:
        """End it; its samples stay."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(5)
            self._process = None

    def query(self, query: str, at_s: float | None = None) -> list[dict[str, Any]]:
        """The result of an instant query, as it comes."""
        arguments = {"query": query} | ({} if at_s is None else {"time": f"{at_s:.3f}"})
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return result

    def number(self, query: str, at_s: float | None = None) -> float:
        """The one number that a query gives."""
        (element,) = self.query(query, at_s)
        return float(element["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=10) as answer:  # noqa: S310
            groups = json.load(answer)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for(self, happened: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
        """Wait until something has happened."""
        until_s = self._clock.now_s() + within_s
        while not happened():
            assert self._clock.now_s() < until_s, f"waited {within_s} s for {what}"
            self._clock.sleep(0.05)

    def _ready(self) -> bool:
        assert self._process is not None
        log = self._folder / "prometheus.log"
        assert self._process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False


Start = Callable[..., Prometheus]


@pytest.fixture(scope="module")
def start_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts one: ``start_prometheus({job: (host:port, labels)}, interval_ms=200)``.

    It takes 5 s to find its targets; tests of a module share one where they can.
    """
    with ExitStack() as stack:

        def start(
            jobs: dict[str, tuple[str, dict[str, str]]],
            interval_ms: int = 200,
            rules: Path | None = None,
        ) -> Prometheus:
            folder = tmp_path_factory.mktemp("prometheus")
            return stack.enter_context(_running(folder, jobs, interval_ms, rules))

        yield start


@contextmanager
def _running(
    folder: Path,
    jobs: dict[str, tuple[str, dict[str, str]]],
    interval_ms: int,
    rules: Path | None,
) -> Iterator[Prometheus]:
    prometheus = Prometheus(folder, jobs, interval_ms, rules)
    prometheus.start()
    try:
        yield prometheus
    finally:
        prometheus.stop()
