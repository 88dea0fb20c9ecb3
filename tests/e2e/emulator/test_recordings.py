"""Pages and answers of the emulator, held to those of a live vLLM 0.25.0."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.e2e.emulator.worlds import emulated

RECORDED = Path(__file__).parents[2] / "data" / "vllm_control"
_VARIES = re.compile(r'"(created|id|root|max_model_len)":("[^"]*"|\d+)')


def _names(text: str) -> list[str]:
    """Lines without their values; without versions, which differ between machines."""
    names = [line if line[0] == "#" else line.rsplit(" ", 1)[0] for line in text.splitlines()]
    return [re.sub(r"python_info\{.*\}", "python_info", name) for name in names]


def test_a_fresh_page_has_the_families_labels_and_buckets_of_the_recorded_one():
    recorded = gzip.decompress((RECORDED / "page_fresh_width2.txt.gz").read_bytes()).decode()
    with emulated(model="dsv2lite") as call:
        status, page, headers = call("GET", "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert _names(page) == _names(recorded)


def test_after_load_and_a_shrink_the_page_has_the_series_of_the_recorded_one():
    recorded = gzip.decompress((RECORDED / "page_after_shrink_to_1.txt.gz").read_bytes()).decode()
    with emulated(2, model="dsv2lite", min_width=1, time_scale=500.0) as call:
        assert call.complete()[0] == 200
        assert call("POST", "/is_scaling_elastic_ep")[0] == 200
        assert call.scale(1)[0] == 200
        page = call("GET", "/metrics")[1]
    assert _names(page) == _names(recorded)


def _recorded_answers() -> list[dict[str, str]]:
    return json.loads((RECORDED / "control_answers.json").read_text())


def test_control_requests_are_answered_as_recorded():
    with emulated(1, min_width=1, max_width=1, model="dsv2lite") as call:
        for recorded in _recorded_answers():
            status, body, headers = call(
                recorded["method"],
                recorded["path"],
                recorded["request_body"],
                recorded["request_headers"],
            )
            what = f"{recorded['method']} {recorded['path']} {recorded['request_body']}"
            assert status == recorded["status"], what
            assert headers.get("Allow", "") == recorded["allow"], what
            assert _VARIES.sub(r"\1", body) == _VARIES.sub(r"\1", recorded["body"]), what
            if recorded["body"]:
                assert headers["Content-Type"].split(";")[0] == recorded["content_type"], what


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("one", 1), ("one two three", 3), ([5, 6], 2), (["a b", "c"], 3), ("", 1)],
)
def test_a_token_is_a_word_or_an_id(prompt, tokens):
    with emulated() as call:
        status, body = call.complete(prompt, 2)
    assert status == 200
    assert json.loads(body)["usage"]["prompt_tokens"] == tokens


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": []},
        {},
        {"prompt": "a", "max_tokens": 0},
        {"prompt": "a", "max_tokens": 9000},
        {"prompt": "a", "n": 2},
        {"prompt": {"a": 1}},
    ],
)
def test_a_request_that_cannot_be_served_is_a_400(body):
    with emulated() as call:
        status, text, _ = call("POST", "/v1/completions", body)
    assert status == 400
    assert json.loads(text)["error"]["message"]


def test_an_unknown_model_is_a_404_and_a_rank_out_of_range_names_the_width():
    with emulated() as call:
        assert call.complete(model="other")[0] == 404
        status, text, _ = call(
            "POST", "/v1/completions", {"prompt": "a"}, {"X-data-parallel-rank": "-1"}
        )
        assert status == 400
        assert "data_parallel_rank -1 is out of range [0, 2)." in text
