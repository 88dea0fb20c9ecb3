"""Whatever the bytes, ``load`` gives a Trace or a TraceError."""

import gzip

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.errors import TraceError
from autoscaler.traces import MAX_TOKENS, load

HEADERS = [
    b"", b"arrival_s,prompt_tokens,output_tokens\n", b"TIMESTAMP,ContextTokens,GeneratedTokens\n",
    b'{"arrival_s":1,"prompt_tokens":2,"output_tokens":3}\n',
    b'{"timestamp":1,"input_length":2,"output_length":3}\n', b"start_s,arrival_rps\n",
    b'{"timestamp":1,"requests":[{"Prompt Length":1,"Output Length":2}]}\n', b"PAR1", b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf",
]  # fmt: skip
CSV_ALPHABET = st.text('0123456789.,-+eE"\n\r :nainf\0_', max_size=80).map(str.encode)
JSON_VALUE = st.sampled_from([
    "0", "1", "7.0", "2.5", "-1", "-0.0", "1e3", "1e400", "1e-400", "10000001", "9" * 18, "9" * 30,
    "9" * 400, "NaN", "Infinity", "null", "true", '"1"', '""', "[1]", "[]", "{}", '{"a":1}', "01",
    '"\\ud800"', '"\x01"', "",
])  # fmt: skip
PACKING = st.sampled_from([bytes, gzip.compress, zstandard.compress])


def check(path, content, **arguments):
    path.write_bytes(content)
    try:
        trace = load(path, **arguments)
    except TraceError as error:
        message = str(error)
        assert message.startswith(f"{path}:")
        assert message[len(f"{path}:") :].split(":")[0].isdigit()
        assert "\n" not in message
        return None
    assert trace.requests > 0
    assert trace.arrival_s[0] == 0
    assert np.all(np.isfinite(trace.arrival_s))
    assert np.all(np.diff(trace.arrival_s) >= 0)
    for tokens in (trace.prompt_tokens, trace.output_tokens):
        assert tokens.min() >= 0
        assert tokens.max() <= MAX_TOKENS
    return trace


@given(head=st.sampled_from(HEADERS), tail=st.binary() | CSV_ALPHABET, packing=PACKING,
       skip=st.booleans())  # fmt: skip
@example(head=HEADERS[1], tail=b'1,2,3\n"4,5,6', packing=bytes, skip=True)
@example(head=HEADERS[5], tail=b"0,1\n1e11,1\n", packing=bytes, skip=False)
@settings(deadline=None)  # a shared machine
def test_random_bytes_give_a_trace_or_a_trace_error(tmp_path_factory, head, tail, packing, skip):
    path = tmp_path_factory.getbasetemp() / "random"
    check(path, packing(head + tail), skip_bad_rows=skip, rate_scale=1e-6)


COMPLETE = {"arrival_s": "3", "prompt_tokens": "4", "output_tokens": "5"}
KEYS = ("arrival_s", "prompt_tokens", "output_tokens", "id")


@given(
    rows=st.lists(st.lists(st.tuples(st.sampled_from(KEYS), JSON_VALUE), max_size=5), max_size=5)
)
@settings(max_examples=40, deadline=None)
def test_random_objects_are_kept_or_skipped_one_by_one(tmp_path_factory, rows):
    """A row's fate does not depend on its neighbours: fast and slow path follow the same rules."""
    path = tmp_path_factory.getbasetemp() / "objects"
    first = b'{"arrival_s":0,"prompt_tokens":1,"output_tokens":1}\n'
    lines = [
        b"{" + ",".join(f'"{k}":{v}' for k, v in {**COMPLETE, **dict(row)}.items()).encode() + b"}"
        for row in rows
    ]
    alone = [check(path, first + line, skip_bad_rows=True).requests - 1 for line in lines]
    trace = check(path, first + b"\n".join(lines), skip_bad_rows=True)
    assert trace.requests == 1 + sum(alone)
    assert trace.skipped_rows == len(rows) - sum(alone)


@given(rows=st.lists(CSV_ALPHABET.map(lambda b: b.replace(b"\n", b"")), max_size=6))
@settings(max_examples=40, deadline=None)
def test_random_csv_rows_are_kept_or_skipped_one_by_one(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "rows"
    first = b"arrival_s,note,prompt_tokens,output_tokens\n0,,1,1\n"
    alone = [check(path, first + row, skip_bad_rows=True).requests - 1 for row in rows]
    trace = check(path, first + b"\n".join(rows), skip_bad_rows=True)
    assert trace.requests == 1 + sum(alone)


@pytest.mark.parametrize("seed", range(20))
def test_a_real_file_with_flipped_bytes_gives_a_trace_or_a_trace_error(tmp_path, seed):
    rng = np.random.default_rng(seed)
    lines = [b'{"timestamp":%d,"input_length":%d,"output_length":3}' % (i, i) for i in range(2000)]
    content = np.frombuffer(b"\n".join(lines), np.uint8).copy()
    content[rng.integers(0, len(content), 200)] = rng.integers(0, 256, 200)
    check(tmp_path / "t", content.tobytes(), skip_bad_rows=True)
    check(tmp_path / "t", content.tobytes())
