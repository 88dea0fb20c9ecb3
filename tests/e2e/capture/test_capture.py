"""Captures of the emulator agree with the engine behind it, and calibrate reads them."""

import asyncio
import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from autoscaler.calibrate import captures
from autoscaler.capture import cells
from autoscaler.capture.cells import Load
from autoscaler.cli_capture import capture
from autoscaler.clock import SystemClock
from autoscaler.engine import fleet
from autoscaler.errors import AutoscalerError, ConfigError, ObservationError
from autoscaler.profile import Profile
from tests.e2e.emulator.worlds import emulated, profile

PROMPT, OUTPUT = 64, 10
ATTEMPTS = 3
"""Real time on a machine that has other things to do: one undisturbed run is enough."""

SLOW = replace(profile(prefill_s=0.25, decode_ms=50.0), api_serial_s=0.01)
"""Requests get in one by one, 10 ms apart, as real ones do: so neither the engine nor the
emulator puts those that come at once into one step, and a client's milliseconds hardly count."""


def truth(of: Profile, width: int, clients: int, requests: int) -> dict[str, float]:
    """What the engine says of a closed loop, run directly."""
    load = fleet.Load(
        np.zeros(requests),
        np.full(requests, PROMPT, np.int32),
        np.full(requests, OUTPUT, np.int32),
    )
    engine = fleet.Engine(load, of.physics(width), clients=clients)
    engine.run()
    ttft_s = engine.first_s - engine.arrival_s
    return {
        "ttft_p50_ms": float(np.percentile(ttft_s, 50)) * 1e3,
        "ttft_p95_ms": float(np.percentile(ttft_s, 95)) * 1e3,
        "tpot_p50_ms": float(np.median((engine.finish_s - engine.first_s) / (OUTPUT - 1))) * 1e3,
        "output_tok_per_s": requests * OUTPUT / float(engine.finish_s.max()),
    }


@pytest.mark.parametrize(("clients", "requests"), [(1, 4), (4, 8), (12, 24)])
def test_a_capture_agrees_with_the_engine_within_three_percent(clients, requests):
    expected = truth(SLOW, 2, clients, requests) | {"itl_p50_ms": 50.0}
    with emulated(2, profile=SLOW, time_scale=1.0) as call:
        load = Load(call.url, "emulated", PROMPT, OUTPUT)
        for _ in range(ATTEMPTS):
            cell = asyncio.run(cells.closed_loop(load, clients, requests, SystemClock()))
            assert (cell.requests, cell.failed, cell.output_tokens_mean) == (requests, 0, OUTPUT)
            measured = {name: getattr(cell, name) for name in expected}
            if measured == pytest.approx(expected, rel=0.03):
                return
    assert measured == pytest.approx(expected, rel=0.03)


def _run(*arguments: str):
    app = typer.Typer()
    app.command()(capture)
    return CliRunner().invoke(app, arguments, catch_exceptions=True)


def test_the_command_writes_what_calibrate_reads_and_its_provenance(tmp_path):
    out = tmp_path / "cells.csv"
    with emulated(2, time_scale=20.0) as call:
        result = _run(
            "--url", call.url, "--model", "emulated", "--out", str(out), "--concurrency", "1,2",
            "--rps", "20", "--requests", "6", "--prompt-tokens", "8", "--output-tokens", "4",
            "--gpus-per-width", "2",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    read = captures.read(out)
    assert [(c.concurrency, c.width, c.gpus, c.requests) for c in read] == [
        (1, 2, 4, 6),
        (2, 2, 4, 6),
    ]
    assert set(read[0].measured) == set(captures.METRICS)
    assert (read[0].prompt_tokens, read[0].output_tokens) == (8, 4)
    with (tmp_path / "cells.open-loop.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["arrival_rps"], row["requests"]) == ("20.0", "6")
    provenance = json.loads((tmp_path / "cells.provenance.json").read_text())
    assert provenance["schema"] == "autoscaler.capture/v1"
    assert (provenance["widths"], provenance["width_from"]) == ([2], "the engine")


def test_a_single_token_has_no_gap_and_leaves_the_column_empty(tmp_path):
    out = tmp_path / "cells.csv"
    with emulated(2, time_scale=20.0) as call:
        result = _run(
            "--url", call.url, "--model", "emulated", "--out", str(out), "--concurrency", "1",
            "--requests", "2", "--prompt-tokens", "8", "--output-tokens", "1",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    (cell,) = captures.read(out)
    assert set(cell.measured) == {"ttft_p50_ms", "ttft_p95_ms", "output_tok_per_s"}
    assert cell.gpus is None


def test_failed_requests_are_counted_and_left_out_and_end_with_an_error():
    with emulated(2, time_scale=20.0) as call:
        load = Load(call.url, "emulated", 8, 9000)
        with pytest.raises(ObservationError, match="no request was served: 3 x HTTP 400"):
            asyncio.run(cells.closed_loop(load, 1, 3, SystemClock()))


def test_a_deployment_that_is_not_there_is_named():
    result = _run("--url", "http://127.0.0.1:9", "--model", "m", "--out", "x.csv")
    assert isinstance(result.exception, AutoscalerError)
    assert "no answer" in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [("--concurrency", "1,x"), ("--concurrency", "1.5"), ("--rps", "-1"), ("--requests", "0")],
)
def test_unusable_options_are_named(arguments):
    result = _run("--url", "http://127.0.0.1:9", "--model", "m", "--out", "x.csv", *arguments)
    assert isinstance(result.exception, ConfigError)
    assert arguments[0].lstrip("-") in str(result.exception)


@pytest.mark.parametrize(
    ("clients", "requests"), [(1, 32), (8, 32), (16, 64), (32, 128), (64, 128), (200, 200)]
)
def test_cells_are_as_large_as_the_published_ones(clients, requests):
    assert cells.usual_requests(clients) == requests
