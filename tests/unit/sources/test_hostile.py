"""Untrusted pages and answers: only samples, or an ObservationError, in bounded time and memory."""

import gzip
import json
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.errors import ObservationError
from autoscaler.sources import _promql as promql
from autoscaler.sources._ledger import Page
from autoscaler.sources._page import Sample, parse
from autoscaler.sources._presets import ENGINES
from autoscaler.testing import FakeSource, check_source
from tests.unit.sources.worlds import VLLM, window

NAMES = VLLM.names()
WHOLE = gzip.decompress(
    (Path(__file__).parents[2] / "data" / "vllm" / "metrics_width2.txt.gz").read_bytes()
).decode()
WANTED = [line for line in WHOLE.splitlines() if line.startswith(tuple(NAMES))]


def read(text: str) -> None:
    """As a source does: samples, page, round, metrics."""
    try:
        page = Page(VLLM, parse(text, NAMES, 1000))
    except ObservationError:
        return
    target = window()
    target.add(0.0, {"a": page})
    target.add(5.0, {"a": page})
    check_source(FakeSource(target.read(5.0, 2)))


@given(st.binary(max_size=400))
def test_random_bytes_are_samples_or_an_observation_error(data: bytes):
    read(data.decode("utf-8", "replace"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(WANTED),
            st.integers(0, 120),
            st.sampled_from(
                ["", '"', "\\", "{", "}", ",", " ", "\n", "NaN", "-1", "1e999", "0x1", "#", "\0",
                 "é", 'le="x"', 'engine="-1"', "\t", "=", "1_0", "inf", "+"]
            ),
            st.integers(0, 5),
        ),
        max_size=6,
    )
)  # fmt: skip
@settings(max_examples=300, deadline=None)
@example([(WANTED[0], 0, "", 0), (WANTED[0], 0, "", 0)])
def test_hostile_lines_are_samples_or_an_observation_error(edits: list[tuple[str, int, str, int]]):
    lines = [line[:at] + insert + line[at + cut :] for line, at, insert, cut in edits]
    read("\n".join(lines) + "\n")


@given(st.integers(0, len(WHOLE)))
@settings(max_examples=60, deadline=None)
def test_a_page_cut_off_anywhere_is_refused_or_lacks_whole_series_only(length: int):
    text = WHOLE[:length]
    if text and not text.endswith("\n"):
        with pytest.raises(ObservationError):
            parse(text, NAMES, 1000)
    else:
        read(text)


def test_a_whole_real_page_is_read_in_a_few_milliseconds():
    began = time.perf_counter()
    for _ in range(10):
        samples = parse(WHOLE, NAMES, 1000)
    took_s = (time.perf_counter() - began) / 10
    assert len(samples) == 106
    assert took_s < 0.1  # 5 ms on an idle machine


def test_a_million_series_are_refused_with_little_memory_and_time_G73():
    line = 'vllm:num_requests_waiting{{engine="{}"}} 1\n'
    text = "".join(line.format(i) for i in range(1_000_000))
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(ObservationError, match="more than 20000 series"):
        parse(text, NAMES, 20_000)
    took_s = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took_s < 10
    assert peak < 400e6  # the split lines; the addresses' byte limit keeps it from coming so far


def test_a_series_given_twice_is_malformed():
    with pytest.raises(ObservationError, match="given twice"):
        parse('vllm:num_requests_waiting{engine="0"} 1\n' * 2, NAMES, 10)


def test_a_line_without_end_is_refused():
    text = 'vllm:num_requests_waiting{engine="' + "x" * 10_000 + '"} 1\n'
    with pytest.raises(ObservationError, match="characters"):
        parse(text, NAMES, 10)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "data", "result", "resultType", "metric", "values", "value", "warnings"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(deadline=None)
def test_answers_of_any_shape_are_results_or_an_observation_error(content: object):
    body = json.dumps({"status": "success", "data": content}).encode()
    for raw in (body, json.dumps(content).encode(), json.dumps(content).encode()[:-1]):
        promql.refusal(raw)
        try:
            kind, result, _ = promql.envelope(raw)
        except ObservationError:
            continue
        for shape in ("vector", "scalar", kind):
            with suppress(ObservationError):
                promql.single(shape, result)
        with suppress(ObservationError):
            for series in promql.matrix("matrix", result, 100):
                Page(VLLM, [Sample("x", series.labels, v) for _, v in series.points])
        promql.label_values("vector", result, "a")


@pytest.mark.parametrize(
    "body", [b"", b"[" * 100_000, b"1", b"null", b'{"status":"success"}', b"\xff"]
)
def test_bodies_that_are_no_answers_are_refused(body: bytes):
    with pytest.raises(ObservationError, match=r"must be|reports"):
        promql.envelope(body)
    assert promql.refusal(body) == ""


def test_more_series_than_the_limit_are_refused_G73():
    element = {"metric": {}, "values": [[1.0, "1"]]}
    with pytest.raises(ObservationError, match="at most 10 series"):
        promql.matrix("matrix", [element] * 11, 10)


@given(st.text(max_size=30))
def test_no_label_value_leaves_its_quotes_G75(value: str):
    quoted = promql.quoted(value)
    assert json.loads(quoted) == value
    inside = quoted[1:-1].replace("\\\\", "").replace('\\"', "")
    assert '"' not in inside
    assert "\n" not in quoted


def test_every_preset_is_told_apart_by_its_names():
    names = [preset.names() for preset in ENGINES.values()]
    assert not names[0] & names[1]
