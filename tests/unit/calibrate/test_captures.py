import json

import pytest

from autoscaler.calibrate import captures
from autoscaler.errors import ConfigError

HEADER = "concurrency,width,gpus,requests,ttft_p50_ms,output_tok_per_s\n"

VLLM = {
    "max_concurrency": 8,
    "completed": 32,
    "width": "4",
    "total_input_tokens": 32 * 1024,
    "total_output_tokens": 32 * 200,
    "output_throughput": 700.0,
    "median_ttft_ms": 120.0,
    "median_itl_ms": 8.0,
    "p99_itl_ms": 74.0,
}
AIPERF = {
    "schema_version": "1.5",
    "run_info": {"variation_values": {"phases.profiling.concurrency": 16}},
    "request_count": {"unit": "requests", "avg": 64.0},
    "time_to_first_token": {"unit": "ms", "avg": 195.8, "p50": 175.0, "p95": 252.0},
    "inter_token_latency": {"unit": "ms", "avg": 35.2, "p50": 34.7},
    "inter_chunk_latency": {"unit": "ms", "avg": 34.0, "p50": 33.0, "p99": 60.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 527.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 240.0, "max": 256.0},
}


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_table_is_read_cell_by_cell(tmp_path):
    path = write(tmp_path, HEADER + "1,2,4,32,87.9,151.7\n64,2,4,128,,2292.5\n")
    first, second = captures.read(path)
    assert (first.concurrency, first.width, first.gpus, first.requests) == (1, 2, 4, 32)
    assert first.measured == {"ttft_p50_ms": 87.9, "output_tok_per_s": 151.7}
    assert second.measured == {"output_tok_per_s": 2292.5}
    assert (first.prompt_tokens, first.output_tokens) == (1024, 256)
    assert second.origin == f"{path}:3"


def test_the_width_may_follow_from_gpus_and_layout(tmp_path):
    table = "layout,concurrency,gpus,requests,ttft_p50_ms\nexternal_dp,1,8,8,5\nwide_tp,1,8,8,5\n"
    path = write(tmp_path, table)
    assert [c.width for c in captures.read(path, tp=2)] == [4, 8]
    no_gpus = write(tmp_path, "concurrency,requests,ttft_p50_ms\n1,8,5\n", "b.csv")
    assert captures.read(no_gpus, width=3)[0].width == 3
    with pytest.raises(ConfigError, match=r"b\.csv:2: width: must be given"):
        captures.read(no_gpus)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", r":1: concurrency: this column must be there"),
        ("concurrency,requests,speed\n", r":1: speed: unknown column"),
        ("concurrency,requests,width\n1,2,3\n", r":1: must have at least one of ttft_p50_ms"),
        (HEADER, r"must hold at least one cell; got none"),
        (HEADER + "1,2,4,32,87.9\n", r":2: must have as many fields as the header"),
        (HEADER + "1,2,4,32,87.9,1,1\n", r":2: must have as many fields as the header"),
        (HEADER + "x,2,4,32,87.9,1\n", r":2: concurrency: must be a whole number >= 1; got 'x'"),
        (HEADER + "1,2,4,0,87.9,1\n", r":2: requests: must be a whole number >= 1; got '0'"),
        (HEADER + "1,2,4,32,nan,1\n", r":2: ttft_p50_ms: must be a finite number > 0; got 'nan'"),
        (HEADER + "1,2,4,32,-3,1\n", r":2: ttft_p50_ms: must be a finite number > 0; got '-3'"),
        (HEADER + ",2,4,32,3,1\n", r":2: concurrency: must be given"),
        (HEADER + "1,2,4,32,,\n", r":2: must have measured something"),
    ],
)
def test_a_bad_table_is_refused_with_file_line_rule_and_value(tmp_path, table, message):
    with pytest.raises(ConfigError, match=message) as caught:
        captures.read(write(tmp_path, table))
    assert "table.csv" in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    for name in ("none.csv", "none.json"):
        with pytest.raises(ConfigError, match=rf"{name}: must be a readable"):
            captures.read(tmp_path / name)


def test_vllm_bench_serve_results_are_read(tmp_path):
    (cell,) = captures.read(write(tmp_path, json.dumps(VLLM), "r.json"), width=2)
    assert (cell.concurrency, cell.width, cell.requests) == (8, 4, 32)
    assert (cell.prompt_tokens, cell.output_tokens, cell.output_tokens_mean) == (1024, 200, 200)
    assert cell.measured == {
        "ttft_p50_ms": 120.0,
        "itl_p50_ms": 8.0,
        "itl_p99_ms": 74.0,
        "output_tok_per_s": 700.0,
    }


def test_aiperf_results_are_read(tmp_path):
    (cell,) = captures.read(write(tmp_path, json.dumps(AIPERF), "r.json"), width=2)
    assert (cell.concurrency, cell.width, cell.requests) == (16, 2, 64)
    assert (cell.output_tokens, cell.output_tokens_mean) == (256, 240.0)
    assert cell.measured["tpot_p50_ms"] == 34.7
    assert cell.measured["itl_p50_ms"] == 33.0
    assert cell.measured["output_tok_per_s"] == 527.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "got neither"),
        ({"a": 1}, "got neither"),
        (VLLM | {"max_concurrency": None}, "max_concurrency: must be given"),
        (VLLM | {"width": "wide"}, "width: must be a finite number > 0; got 'wide'"),
        (VLLM | {"median_ttft_ms": -1}, "median_ttft_ms: must be a finite number > 0; got -1"),
        (VLLM | {"completed": 0}, "completed: must be a finite number > 0; got 0"),
        ({k: v for k, v in AIPERF.items() if k != "run_info"}, "concurrency: must stand"),
        (AIPERF | {"time_to_first_token": {"unit": "s", "p50": 1}}, "unit: must be ms; got 's'"),
        (AIPERF | {"request_count": {"avg": 1.5}}, "request_count: avg: must be a whole number"),
    ],
)
def test_bad_benchmark_json_is_refused(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message):
        captures.read(write(tmp_path, json.dumps(content), "r.json"), width=2)


def test_benchmark_json_without_a_width_needs_one(tmp_path):
    content = {k: v for k, v in VLLM.items() if k != "width"}
    with pytest.raises(ConfigError, match="width: must be stated in the file or given"):
        captures.read(write(tmp_path, json.dumps(content), "r.json"))
