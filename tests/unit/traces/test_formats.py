"""Each format from a ten-line sample: detected by its keys, exact values."""

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from autoscaler import plugins
from autoscaler.errors import ConfigError, TraceError
from autoscaler.traces import load
from autoscaler.traces._format import Format, formats


def rows(*lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


NATIVE = rows(
    {"arrival_s": 0, "prompt_tokens": 1024, "output_tokens": 256},
    {"arrival_s": 0.5, "prompt_tokens": 10, "output_tokens": 1, "id": "a", "session": "s"},
    {"arrival_s": 0.5, "prompt_tokens": 11, "output_tokens": 2},
    {"arrival_s": 12.25, "prompt_tokens": 0, "output_tokens": 0},
)
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:46.6805901,396,109\r\n"
    "2023-11-16 18:15:50.9951690,879,55\r\n"
    "2023-11-17 18:15:46.6805900,91,16"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 00:00:01+00:00,2399,6\n"
    "2024-05-10 00:00:01.000001+00:00,76,15\n"
    "2024-05-10 00:00:02.009930+00:00,2376,4\n"
)
MOONCAKE = rows(
    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]},
    {"timestamp": 27482, "input_length": 12, "output_length": 26, "hash_ids": []},
    {"timestamp": 30535, "input_length": 6472, "output_length": 26},
    {"timestamp": 30535.5, "input_length": 1, "output_length": 1},
)
BAILIAN = rows(
    {"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521,
     "output_length": 132, "type": "text", "turn": 1, "hash_ids": [1, 2]},
    {"chat_id": 160, "parent_chat_id": 159, "timestamp": 62.114, "input_length": 7,
     "output_length": 8, "type": "text", "turn": 2, "hash_ids": []},
)  # fmt: skip
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,Conversation log\n"
    "45,GPT-4,417,276,693,API log\n"
    "118,GPT-4,1360,647,2007,API log\n"
)
BURSTGPT_SESSIONS = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "0.0,1,2.5,ChatGPT,10,20,30,Conversation log\n"
    "2.5,,,GPT-4,11,21,32,API log\n"
)
LLMSERVINGSIM = rows(
    {"input_toks": 2361, "output_toks": 532, "arrival_time_ns": 1_777_144_890_512_207_123},
    {"input_toks": 1128, "output_toks": 772, "arrival_time_ns": 1_777_144_890_512_207_124},
    {"input_toks": 1, "output_toks": 2, "arrival_time_ns": 1_777_144_891_512_207_123},
)
VLLM_REQUESTS = rows(
    {"request_id": "bench-0", "input_toks": 2361, "output_toks": 532, "arrival_time": 1777144890.5},
    {"request_id": "bench-1", "input_toks": 3, "output_toks": 4, "arrival_time": 1777144890.75},
)
AIBRIX_FLAT = rows(
    {"timestamp_ms": 6011, "Prompt Length": 178, "Output Length": 8},
    {"timestamp_ms": 6917, "Prompt Length": 258, "Output Length": 0},
)
AIBRIX_NESTED = rows(
    {"timestamp": 0, "requests": []},
    {"timestamp": 1000, "requests": [
        {"Prompt Length": 4, "Output Length": 5, "prompt": "a, b", "model": None},
        {"Prompt Length": 6, "Output Length": 0}]},
    {"timestamp": 3500, "requests": [{"Prompt Length": 8, "Output Length": 9}]},
)  # fmt: skip
SPLITWISE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    "0,2,0,0.25,1,2162,5\n"
    "1,2,0,1.5,1,2399,6\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100,7\n0.125,200,8\n"

SAMPLES = [
    ("jsonl", NATIVE, [0, 0.5, 0.5, 12.25], [1024, 10, 11, 0], [256, 1, 2, 0]),
    ("azure", AZURE_2023, [0, 1e-7, 4.314579, 86400], [374, 396, 879, 91], [44, 109, 55, 16]),
    ("azure", AZURE_2024, [0, 0.99007, 0.990071, 2], [2162, 2399, 76, 2376], [5, 6, 15, 4]),
    ("mooncake", MOONCAKE, [0, 0, 3.053, 3.0535], [6955, 12, 6472, 1], [52, 26, 26, 1]),
    ("bailian", BAILIAN, [0, 1], [521, 7], [132, 8]),
    ("burstgpt", BURSTGPT, [0, 40, 113], [472, 417, 1360], [18, 276, 647]),
    ("burstgpt", BURSTGPT_SESSIONS, [0, 2.5], [10, 11], [20, 21]),
    ("llmservingsim", LLMSERVINGSIM, [0, 1e-9, 1], [2361, 1128, 1], [532, 772, 2]),
    ("vllm_requests", VLLM_REQUESTS, [0, 0.25], [2361, 3], [532, 4]),
    ("aibrix", AIBRIX_FLAT, [0, 0.906], [178, 258], [8, 0]),
    ("aibrix", AIBRIX_NESTED, [0, 0, 2.5], [4, 6, 8], [5, 0, 9]),
    ("splitwise", SPLITWISE, [0, 1.25], [2162, 2399], [5, 6]),
    ("vidur", VIDUR, [0, 0.125], [100, 200], [7, 8]),
]


@pytest.mark.parametrize(("name", "text", "arrival_s", "prompt_tokens", "output_tokens"), SAMPLES)
def test_a_sample_is_detected_and_read_exactly(
    tmp_path, name, text, arrival_s, prompt_tokens, output_tokens
):
    file = tmp_path / "misleading-name.csv"
    file.write_bytes(text.encode())
    trace = load(file)
    assert trace.format == name
    assert trace.arrival_s.dtype == np.float64
    # One float64 rounding of the quotient is allowed, nothing else.
    np.testing.assert_allclose(trace.arrival_s, arrival_s, rtol=1e-12, atol=0)
    assert (trace.prompt_tokens.dtype, trace.output_tokens.dtype) == (np.int32, np.int32)
    assert trace.prompt_tokens.tolist() == prompt_tokens
    assert trace.output_tokens.tolist() == output_tokens
    named = load(file, format=name)
    assert named.arrival_s.tolist() == trace.arrival_s.tolist()


def test_every_format_has_a_sample():
    sampled = {name for name, *_ in SAMPLES} | {"parquet", "rate_curve"}  # in other test files
    assert sampled == set(plugins.names("traces"))


def test_integers_of_milliseconds_are_said_to_be_and_a_named_format_decides_S02(tmp_path):
    file = tmp_path / "t"
    rows_ms = [{"timestamp": t, "input_length": 9, "output_length": 9} for t in (0, 3000, 27000)]
    file.write_text(rows(*rows_ms))
    trace = load(file)
    assert trace.duration_s == 27.0
    (notice,) = trace.notices
    assert notice.startswith(f"{file}: timestamp is read as milliseconds, as Mooncake's is; ")
    assert notice.endswith("name the format bailian if these are seconds")
    assert load(file, format="mooncake").notices == ()
    assert load(file, format="bailian").duration_s == 27_000.0


def test_the_keys_decide_between_mooncake_and_bailian_and_not_the_magnitude_S02(tmp_path):
    file = tmp_path / "t"
    file.write_text(rows({"timestamp": 0.5, "input_length": 1, "output_length": 1},
                         {"timestamp": 1.5, "input_length": 1, "output_length": 1}))  # fmt: skip
    trace = load(file)
    assert (trace.format, trace.duration_s) == ("mooncake", 0.001)
    assert "milliseconds" in trace.notices[0]
    seconds = load(file, format="bailian")
    assert (seconds.format, seconds.duration_s, seconds.notices) == ("bailian", 1.0, ())


def test_failed_requests_of_burstgpt_are_counted_as_skipped_with_a_notice(tmp_path):
    file = tmp_path / "t"
    file.write_text(BURSTGPT)
    trace = load(file)
    assert trace.skipped_rows == 1
    assert trace.notices == (
        f"{file}: left out 1 rows: failed requests, which have 0 Response tokens",
    )


def test_unknown_keys_list_the_formats_and_the_keys(tmp_path):
    file = tmp_path / "t"
    file.write_text('{"when": 1, "how much": 2}\n')
    with pytest.raises(TraceError) as error:
        load(file)
    message = str(error.value)
    assert message.startswith(f"{file}:1: keys fit no trace format (")
    assert message.endswith("found 'how much', when")
    for name in plugins.names("traces"):
        assert f"{name}: " in message


def test_keys_of_two_formats_are_refused_until_one_is_named(tmp_path):
    file = tmp_path / "t"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens,arrival_s,prompt_tokens,"
                    "output_tokens\n1,2,3,4,5,6\n2,2,3,9,5,6\n")  # fmt: skip
    with pytest.raises(TraceError, match="the keys fit jsonl, vidur"):
        load(file)
    assert load(file, format="vidur").duration_s == 1
    assert load(file, format="jsonl").duration_s == 5


def test_a_named_format_without_its_keys_is_refused(tmp_path):
    file = tmp_path / "t"
    file.write_text(NATIVE)
    with pytest.raises(TraceError, match=r":1: format vidur needs the keys arrived_at, num_decode"):
        load(file, format="vidur")
    with pytest.raises(ConfigError, match=r"must be one of aibrix, azure, .*; got 'none'"):
        load(file, format="none")


TURNS = [
    {"session_id": "a", "timestamp": 1000, "input_length": 1, "output_length": 1},
    {"session_id": "b", "timestamp": 1500, "input_length": 2, "output_length": 1},
    {"session_id": "a", "delay": 700, "input_length": 3, "output_length": 1},
    {"session_id": "b", "delay": 0, "input_length": 4, "output_length": 1},
    {"session_id": "a", "delay": 100, "input_length": 5, "output_length": 1},
    {"session_id": "a", "timestamp": 9000, "input_length": 6, "output_length": 1},
    {"session_id": "a", "delay": 50, "input_length": 7, "output_length": 1},
]


def test_a_turn_with_a_delay_arrives_that_long_after_the_turn_before(tmp_path):
    file = tmp_path / "t"
    file.write_text(rows(*TURNS))
    trace = load(file)
    assert trace.arrival_s.tolist() == [0, 0.5, 0.5, 0.7, 0.8, 8.0, 8.05]
    assert trace.prompt_tokens.tolist() == [1, 2, 4, 3, 5, 6, 7]
    assert "4 turns have a delay" in trace.notices[1]


def test_a_turn_with_neither_timestamp_nor_a_turn_before_it_is_bad(tmp_path):
    file = tmp_path / "t"
    orphan = {"session_id": "c", "delay": 1, "input_length": 9, "output_length": 1}
    file.write_text(rows(*TURNS, orphan))
    with pytest.raises(TraceError, match=r"t:8: timestamp: missing, and delay must follow a turn"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (7, 1)


@pytest.mark.parametrize("text", [
    "2023-11-16 18:15:46.6805900+08:00", "2023-11-16", "18:15:46", "2023-13-16 18:15:46",
    "2023-11-16 18:15:46.", "2023-11-16 18:15:46.68 59", "2023-11-16 18:15:46-1", "yesterday", "",
])  # fmt: skip
def test_a_time_of_azure_that_is_not_utc_is_bad(tmp_path, text):
    file = tmp_path / "t"
    file.write_text(f"{AZURE_2024}{text},1,2\n")
    with pytest.raises(TraceError, match=r"t:6: TIMESTAMP: (must be a UTC time|missing)"):
        load(file)


def test_a_null_output_of_aibrix_is_bad_and_zero_is_not(tmp_path):
    file = tmp_path / "t"
    known = {"Prompt Length": 8, "Output Length": 1}
    bad = {"timestamp": 4000, "requests": [known, known | {"Output Length": None}]}
    file.write_text(AIBRIX_NESTED + rows(bad))
    with pytest.raises(TraceError, match="t:4: Output Length: missing"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (4, 1)


def test_formats_by_name_carry_the_name():
    assert [f.name for f in formats("aibrix")] == ["aibrix", "aibrix"]


SAMPLE_FILES = Path(__file__).parents[3] / "simulations" / "traces"


@pytest.mark.parametrize(("name", "fmt", "requests", "duration_s", "zero_outputs"), [
    ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366, 3501.721937, 0),
    ("mooncake-synthetic.jsonl.gz", "mooncake", 3_993, 1022.025, 0),
    ("aibrix-8min-up-and-down.jsonl", "aibrix", 2_026, 455.898, 2),
])  # fmt: skip
def test_the_real_samples_have_the_requests_they_should(
    name, fmt, requests, duration_s, zero_outputs
):
    trace = load(SAMPLE_FILES / name)
    assert (trace.format, trace.requests, trace.skipped_rows) == (fmt, requests, 0)
    assert trace.duration_s == pytest.approx(duration_s, abs=1e-9)
    assert int((trace.output_tokens == 0).sum()) == zero_outputs


class EntryPoint:
    name = "mine"
    value = "third_party.mine"

    def load(self):
        module = ModuleType("third_party.mine")
        module.FORMATS = (Format("t_us", "in", "out", units_per_s=1_000_000),)
        return module


def test_a_third_party_adds_a_format_by_an_entry_point(tmp_path, monkeypatch):
    monkeypatch.setattr(
        plugins,
        "entry_points",
        lambda group, name="mine": (
            [EntryPoint()] if (group, name) == ("autoscaler.traces", "mine") else []
        ),
    )
    file = tmp_path / "t"
    file.write_text("t_us,in,out\n500000,1,2\n1500000,3,4\n")
    assert (load(file).format, load(file).duration_s) == ("mine", 1.0)
    assert load(file, format="mine").prompt_tokens.tolist() == [1, 3]
