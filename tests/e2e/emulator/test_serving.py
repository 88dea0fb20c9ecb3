"""Completions over HTTP are those of the engine, and so are the accounts."""

import http.client
import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autoscaler.emulator.server import Options, serving
from autoscaler.engine.fleet import Load
from autoscaler.errors import AutoscalerError, ConfigError
from tests.e2e.emulator.worlds import MEASURED, emulated, profile, until


def _total(page: dict[str, float], name: str) -> float:
    return sum(value for key, value in page.items() if key.startswith(f"vllm:{name}{{"))


def test_a_stream_has_an_event_a_token_then_the_usage_then_done():
    with emulated() as call:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        status, text = call.complete("a b", 5, **options)
    events = [line[6:] for line in text.splitlines() if line]
    assert status == 200
    assert events[-1] == "[DONE]"
    bodies = [json.loads(event) for event in events[:-1]]
    assert [b["choices"][0]["text"] for b in bodies[:-1]] == [" tok"] * 5
    assert [b["choices"][0]["finish_reason"] for b in bodies[:-1]] == [None] * 4 + ["length"]
    assert bodies[-1]["usage"]["completion_tokens"] == 5


def test_many_streams_at_once_all_get_every_token():
    with emulated(4, time_scale=20.0) as call, ThreadPoolExecutor(64) as pool:
        texts = list(pool.map(lambda _: call.complete("a", 30, stream=True)[1], range(128)))
        assert all(text.count('" tok"') == 30 for text in texts)
        page = call.series()
        assert _total(page, "generation_tokens_total") == 128 * 30
        assert _total(page, "prompt_tokens_total") == 128
        assert _total(page, "inter_token_latency_seconds_count") == 128 * 29
        assert _total(page, "time_to_first_token_seconds_count") == 128
        assert _total(page, "request_success_total") == 128
        assert _total(page, "num_requests_running") == 0
        labels = '{handler="/v1/completions",method="POST",status="2xx"}'
        assert page[f"http_requests_total{labels}"] == 128


def test_the_gaps_between_tokens_are_the_engines_steps():
    with emulated(2, time_scale=10.0, profile=profile(0.1, 30.0)) as call:
        call.complete("a", 50)
        page = call.series()
        assert _total(page, "inter_token_latency_seconds_sum") == pytest.approx(49 * 0.03)
        for le, count in (("0.025", 0.0), ("0.05", 49.0)):
            labels = f'{{engine="0",le="{le}",model_name="emulated"}}'
            assert page[f"vllm:inter_token_latency_seconds_bucket{labels}"] == count


def test_a_client_that_hangs_up_gives_its_slot_back():
    with emulated(2, time_scale=1.0) as call:
        connection = http.client.HTTPConnection(call.url.split("//")[1], timeout=5.0)
        body = json.dumps({"prompt": "a", "max_tokens": 5000, "stream": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        stream = connection.getresponse()
        assert stream.readline().startswith(b"data:")
        connection.close()
        stream.close()
        until(lambda: call.state()["active"] == 0)
        aborted = '{engine="0",finished_reason="abort",model_name="emulated"}'
        assert call.series()[f"vllm:request_success_total{aborted}"] == 1.0


def test_a_trace_is_served_as_built_in_load():
    n = 40
    trace = Load(np.arange(n) * 0.5, np.full(n, 10, np.int32), np.full(n, 5, np.int32))
    with emulated(2, trace=trace, time_scale=40.0) as call:
        until(lambda: call.state()["ended"]["length"] == n)
        assert _total(call.series(), "generation_tokens_total") == n * 5


def test_a_port_in_use_is_named():
    with emulated() as call:
        port = int(call.url.rsplit(":", 1)[1])
        options = Options(profile=profile(), resize=MEASURED, width=2)
        message = f"cannot serve on 127.0.0.1:{port}"
        with pytest.raises(AutoscalerError, match=message), serving(options, port=port):
            pass


@pytest.mark.parametrize("wrong", [{"version": "0.1"}, {"time_scale": 0.0}, {"width": 8}])
def test_what_cannot_be_emulated_is_a_config_error(wrong):
    with pytest.raises(ConfigError):
        Options(**({"profile": profile(), "resize": MEASURED, "width": 2} | wrong))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_url_and_ends_at_once_on_a_signal(number, tmp_path):
    from autoscaler import profiles

    path = tmp_path / "even.yaml"
    profiles.write(profile(), path)
    code = "import typer; from autoscaler.cli_emulate import emulate; typer.run(emulate)"
    arguments = ["--profile", str(path), "--port", "0", "--width", "2"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.0.0.1:")
            process.send_signal(number)
            assert process.wait(5) == 0
        finally:
            process.kill()
