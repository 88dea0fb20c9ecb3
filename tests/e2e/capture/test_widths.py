"""Capture at one width after the other: asks, resizes once, waits for the proof, measures."""

import json

import pytest

from autoscaler.calibrate import captures
from autoscaler.capture.widths import reach
from autoscaler.errors import AutoscalerError, ConfigError, ObservationError, TargetError
from autoscaler.model import SetOutcome, SetResult, WidthStatus
from autoscaler.testing import FakeTarget, ManualClock
from tests.e2e.capture.test_capture import _run
from tests.e2e.emulator.worlds import emulated

CONFIG = """\
targets:
  - name: chat
    source: {{kind: scrape, urls: ["{url}/metrics"]}}
    target: {{kind: vllm, url: "{url}", max_width: 4, gpus_per_width: 2}}
    policy: hold
    guards: {{min_width: 2, max_width: 4}}
"""


def options(url: str, folder, *more: str) -> tuple[str, ...]:
    (folder / "autoscaler.yaml").write_text(CONFIG.format(url=url))
    return (
        *("--url", url, "--model", "emulated", "--out", str(folder / "cells.csv")),
        *("--concurrency", "2", "--requests", "4", "--prompt-tokens", "8"),
        *("--output-tokens", "4", "--gpus-per-width", "2"),
        *("--config", str(folder / "autoscaler.yaml"), "--widths", "2,4", *more),
    )


def test_both_widths_end_up_in_one_table(tmp_path):
    with emulated(2, time_scale=20.0) as call:
        result = _run(*options(call.url, tmp_path, "--yes"))
    assert result.exit_code == 0, (result.output, result.exception)
    read = captures.read(tmp_path / "cells.csv")
    assert [(c.width, c.gpus, c.concurrency) for c in read] == [(2, 4, 2), (4, 8, 2)]
    provenance = json.loads((tmp_path / "cells.provenance.json").read_text())
    assert provenance["widths"] == [2, 4]


def test_it_asks_before_it_resizes_and_a_no_changes_nothing(tmp_path):
    with emulated(2, time_scale=20.0) as call:
        result = _run(*options(call.url, tmp_path))
        assert "resize from 2 to 4?" in result.output
    assert result.exit_code != 0
    assert not (tmp_path / "cells.csv").exists()


def test_widths_without_a_configuration_are_refused():
    result = _run(
        *("--url", "http://127.0.0.1:9", "--model", "m", "--out", "x.csv", "--widths", "2")
    )
    assert isinstance(result.exception, ConfigError)
    assert "config" in str(result.exception)


class Stubborn(FakeTarget):
    """Stays where it is, or fails."""

    def __init__(self, failure: str | None = None) -> None:
        super().__init__(ManualClock())
        self.failure = failure
        self.asked: list[int] = []

    def read(self) -> WidthStatus:
        asked = bool(self.asked)
        return WidthStatus(4 if asked else 2, 2, failure=self.failure if asked else None)

    def set_width(self, width: int, expected: int) -> SetOutcome:
        self.asked.append(width)
        return SetOutcome(SetResult.AMBIGUOUS)


@pytest.mark.parametrize(
    ("failure", "error"), [(None, ObservationError), ("the commit failed", TargetError)]
)
def test_a_width_that_is_not_reached_is_asked_for_once_and_named(failure, error):
    target = Stubborn(failure)
    with pytest.raises(error, match="width 4"):
        reach(target, 4, ManualClock(), limit_s=30.0)
    assert target.asked == [4]
    assert issubclass(error, AutoscalerError)
