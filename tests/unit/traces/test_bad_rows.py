"""Every kind of bad row is found at its line, with rule and value; or counted and left out."""

import numpy as np
import pytest

from autoscaler.errors import TraceError
from autoscaler.traces import _blocks, load

GOOD = '{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3}'
JSON_BAD = {
    "not json": ("junk", r"must be one JSON object .*; got 'junk'"),
    "an array": ("[1, 2]", r"must be one JSON object; got '\[1, 2\]'"),
    "a number": ("7", "must be one JSON object; got '7'"),
    "two objects": (f"{GOOD} {GOOD}", "must be one JSON object"),
    "missing key": ('{"arrival_s": 1, "prompt_tokens": 2}', "output_tokens: missing"),
    "null": ('{"arrival_s": null, "prompt_tokens": 2, "output_tokens": 3}', "arrival_s: missing"),
    "text": (
        '{"arrival_s": 1, "prompt_tokens": "2", "output_tokens": 3}',
        "prompt_tokens: must be a number; got .*\"2\"",
    ),
    "boolean": (
        '{"arrival_s": 1, "prompt_tokens": true, "output_tokens": 3}',
        "prompt_tokens: must be a number",
    ),
    "object": (
        '{"arrival_s": {"a": 1}, "prompt_tokens": 2, "output_tokens": 3}',
        "arrival_s: must be a number",
    ),
    "negative tokens": (
        '{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": -3}',
        "output_tokens: must be from 0; got -3$",
    ),
    "negative time": (
        '{"arrival_s": -0.5, "prompt_tokens": 2, "output_tokens": 3}',
        "arrival_s: must be from 0; got -0.5$",
    ),
    "nan": (
        '{"arrival_s": NaN, "prompt_tokens": 2, "output_tokens": 3}',
        "arrival_s: must be finite",
    ),
    "infinite": (
        '{"arrival_s": 1, "prompt_tokens": 1e999, "output_tokens": 3}',
        "prompt_tokens: must be finite",
    ),
    "huge": (
        '{"arrival_s": 1, "prompt_tokens": 10000001, "output_tokens": 3}',
        "prompt_tokens: must be at most 10,000,000 tokens; got 10000001$",
    ),
    "very huge": (
        '{"arrival_s": 1, "prompt_tokens": 99999999999999999999999999, "output_tokens": 3}',
        "prompt_tokens: must be at most 10,000,000 tokens",
    ),
    "fraction of a token": (
        '{"arrival_s": 1, "prompt_tokens": 2.5, "output_tokens": 3}',
        "prompt_tokens: must be a whole number; got 2.5$",
    ),
    "time without end": (
        '{"arrival_s": 1e300, "prompt_tokens": 2, "output_tokens": 3}',
        "arrival_s: must be at most 1e\\+11 s; got 1e\\+300$",
    ),
    "cut off": ('{"arrival_s": 1, "prompt_tok', "must be one JSON object"),
    "nul": (GOOD + "\0", "must be one JSON object"),
    "not utf-8": (GOOD.encode().replace(b"}", b', "id": "\xff"}'), "must"),
    "deep": ('{"a":' + "[" * 100_000, "must be one JSON object"),
}  # fmt: skip
CSV_HEADER = "arrival_s,prompt_tokens,output_tokens,note\n"
CSV_GOOD = "1,2,3,x"
CSV_BAD = {
    "too few": ("1,2,3", "must have 4 fields, has 3; got '1,2,3'"),
    "too many": ("1,2,3,x,y", "must have 4 fields, has 5"),
    "missing": ("1,,3,x", "prompt_tokens: missing"),
    "text": ("1,two,3,x", "prompt_tokens: must be a number; got '1,two,3,x'"),
    "underscore": ("1,2_0,3,x", "prompt_tokens: must be finite|prompt_tokens: must be a number"),
    "negative": ("1,-2,3,x", "prompt_tokens: must be from 0; got '-2'"),
    "nan": ("nan,2,3,x", "arrival_s: must be finite; got 'nan'"),
    "infinite": ("1,inf,3,x", "prompt_tokens: must be finite; got 'inf'"),
    "huge": ("1,2,1e8,x", "output_tokens: must be at most 10,000,000 tokens; got '1e8'"),
    "nul": ("1,2,3,x\0", "must not contain NUL bytes"),
    "not utf-8": (b"1,2,3,\xff", "must be comma-separated text"),
    "open quote": ('1,2,3,"x', "must be comma-separated text|must have 4 fields"),
    "cut off": ("1,2", "must have 4 fields, has 2"),
}


def cases(table):
    return [pytest.param(*value, id=key) for key, value in table.items()]


def file_of(path, header, good, bad, before, after):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    lines = [good.encode()] * before + [bad] + [good.encode()] * after
    path.write_bytes(header.encode() + b"\n".join(lines) + (b"\n" if after else b""))


@pytest.mark.parametrize(("bad", "rule"), cases(JSON_BAD))
@pytest.mark.parametrize(("before", "after"), [(1, 0), (2, 3), (2000, 2000)])
def test_a_bad_line_of_jsonl_is_named_or_skipped(tmp_path, bad, rule, before, after):
    file = tmp_path / "t"
    file_of(file, "", GOOD, bad, before, after)
    with pytest.raises(TraceError, match=f"^{file}:{before + 1}: {rule}"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (before + after, 1)
    assert trace.notices == (f"{file}: skipped 1 bad rows",)


@pytest.mark.parametrize(("bad", "rule"), cases(CSV_BAD))
@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (2000, 2000)])
def test_a_bad_line_of_csv_is_named_or_skipped(tmp_path, bad, rule, before, after):
    file = tmp_path / "t"
    file_of(file, CSV_HEADER, CSV_GOOD, bad, before, after)
    with pytest.raises(TraceError, match=f"^{file}:{before + 2}: {rule}"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (before + after, 1)


def test_the_first_of_many_bad_lines_is_named_and_all_are_counted(tmp_path):
    file = tmp_path / "t"
    lines = [GOOD] * 5000
    for i, bad in enumerate(JSON_BAD.values()):
        lines[100 + 150 * i] = bad[0] if isinstance(bad[0], str) else "x"
    file.write_text("\n".join(lines))
    with pytest.raises(TraceError, match=f"^{file}:101: "):
        load(file)
    assert load(file, skip_bad_rows=True).skipped_rows == len(JSON_BAD)


@pytest.mark.parametrize("where", [0, 1, 2500, 5000])
def test_one_line_longer_than_all_the_others_does_not_matter(tmp_path, where):
    file = tmp_path / "t"
    lines = [GOOD] * 5000
    lines.insert(where, GOOD.replace("}", f', "id": "{"x" * 1_000_000}"}}'))
    lines.insert(4000, "junk")
    file.write_text("\n".join(lines))
    with pytest.raises(TraceError, match=f"^{file}:4001: .*junk"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (5001, 1)


def test_lines_are_counted_across_blocks_and_blank_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(_blocks.blocks, "__defaults__", (None, 200))
    file = tmp_path / "t"
    file.write_text("\n\n" + (GOOD + "\n\n") * 50 + "junk\n" + GOOD)
    with pytest.raises(TraceError, match=f"^{file}:103: .*junk"):
        load(file)
    trace = load(file, skip_bad_rows=True)
    assert (trace.requests, trace.skipped_rows) == (51, 1)


def test_a_line_longer_than_a_block_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_blocks.blocks, "__defaults__", (None, 200))
    file = tmp_path / "t"
    file.write_text(GOOD + "\n" + "x" * 1000)
    with pytest.raises(TraceError, match=f"^{file}:2: must be shorter than 200 bytes a line"):
        load(file)


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, content):
    file = tmp_path / "t"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=f"^{file}:1: .*the file is empty"):
        load(file)


def test_a_file_without_a_usable_request_is_refused(tmp_path):
    file = tmp_path / "t"
    file.write_text("arrival_s,prompt_tokens,output_tokens\n")
    with pytest.raises(TraceError, match=f"^{file}:1: must have at least one request; got none"):
        load(file)
    file.write_text("arrival_s,prompt_tokens,output_tokens\n1,2\n1,-2,3\n")
    with pytest.raises(TraceError, match="all 2 rows were left out"):
        load(file, skip_bad_rows=True)


@pytest.mark.parametrize(
    "content", [b"\0\1\2\n", b"hello", b"[{}]", b"{}", b'"', b"\xff\xfe{\0", b"{"]
)
def test_what_is_no_trace_is_refused_at_its_line(tmp_path, content):
    file = tmp_path / "t"
    file.write_bytes(content)
    for skip in (False, True):
        with pytest.raises(TraceError, match=f"^{file}:1: "):
            load(file, skip_bad_rows=skip)


def test_a_column_named_twice_is_refused(tmp_path):
    file = tmp_path / "t"
    file.write_text("arrival_s,prompt_tokens,output_tokens,output_tokens\n1,2,3,4\n")
    with pytest.raises(TraceError, match=f"^{file}:1: must name each column once"):
        load(file)


def test_a_bad_first_line_does_not_hide_the_format_when_skipping(tmp_path):
    file = tmp_path / "t"
    file.write_text(f"{{junk\n{GOOD}\n")
    with pytest.raises(TraceError, match=f"^{file}:1: must be one JSON object"):
        load(file)
    assert load(file, skip_bad_rows=True).skipped_rows == 1


def test_the_message_is_one_line_of_bounded_length(tmp_path):
    file = tmp_path / "t"
    file.write_text(f'{GOOD}\n{{"id": "{"x" * 10_000}"\n')
    with pytest.raises(TraceError) as error:
        load(file)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(str(file))


def test_missing_directories_and_forbidden_files_are_refused(tmp_path):
    with pytest.raises(TraceError, match=r"nothing:0: cannot be read: No such file"):
        load(tmp_path / "nothing")
    with pytest.raises(TraceError, match=r":0: cannot be read: Is a directory"):
        load(tmp_path)
    with pytest.raises(TraceError, match=r":0: cannot be read"):
        load(str(tmp_path) + "/nul\0")


def test_ids_in_another_type_do_not_matter(tmp_path):
    file = tmp_path / "t"
    file.write_text(f'{GOOD}\n{{"id": [1], "arrival_s": 2e0, "prompt_tokens": 2.0, '
                    '"output_tokens": 3E0}\n')  # fmt: skip
    assert load(file).arrival_s.tolist() == [0, 1]
    assert load(file).prompt_tokens.tolist() == np.array([2, 2]).tolist()
