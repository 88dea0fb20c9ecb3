"""What reads foreign bytes: one function each, which may raise what it says and nothing else."""

import gzip
import json
import math
import tempfile
from contextlib import suppress
from pathlib import Path

from autoscaler import memory, traces
from autoscaler.cluster.answers import _status_object
from autoscaler.cluster.connection import _object
from autoscaler.errors import ObservationError, TargetError, TraceError
from autoscaler.sources import _promql as promql
from autoscaler.sources._page import parse
from autoscaler.sources._presets import ENGINES
from autoscaler.targets._engine import Reply
from autoscaler.targets._observation import observed, operation
from autoscaler.wiring import decision_file

NAMES = next(iter(ENGINES.values())).names()


def metrics_page(data):
    with suppress(ObservationError):
        parse(data.decode("utf-8", "replace"), NAMES, 1000)


def prometheus_answer(data):
    for read in (
        lambda kind, result: promql.matrix(kind, result, 1000),
        promql.single,
        lambda kind, result: promql.label_values(kind, result, "model_name"),
    ):
        with suppress(ObservationError):
            kind, result, _ = promql.envelope(data)
            read(kind, result)
    promql.refusal(data)


def operator_document(data):
    text = data.decode("utf-8", "replace")
    with suppress(TargetError):
        found = observed("here", {"data": {"observation.json": text}})
        assert found.effective is None or found.effective != 0
    with suppress(TargetError):
        assert operation("here", {"data": {"operation.json": text}}).detail


def api_answer(data):
    with suppress(TargetError):
        assert isinstance(_object("GET", data), dict)
    _status_object(data)


def engine_reply(data):
    reply = Reply(500, data.decode("utf-8", "replace"))
    assert isinstance(reply.json(), dict)
    assert len(reply.said) < 1_000


def memory_text(data):
    found = memory.decode(data.decode("utf-8", "replace"), 1_000.0, 1.7e9)
    assert all(math.isfinite(at_s) and at_s <= 1_000.0 for at_s in found.reversals)
    again = memory.decode(memory.encode(found, 1.7e9), 1_000.0, 1.7e9)
    assert found.finding or not again.finding, again.finding


def decision_log(data):
    with suppress(TraceError), _file(data) as path:
        for _number, entry in decision_file.read(path, lambda _notice: None):
            json.dumps(decision_file.encode(entry), allow_nan=False)


def trace_file(data):
    with suppress(TraceError), _file(data) as path:
        assert len(traces.load(path).arrival_s) > 0


class _file:  # noqa: N801  # reads as what it is
    """A file with these bytes."""

    def __init__(self, data):
        self._data = data

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="fuzz")
        path = Path(self._folder.name) / "file"
        path.write_bytes(self._data)
        return path

    def __exit__(self, *_):
        self._folder.cleanup()


READERS = {
    reader.__name__: reader
    for reader in (
        metrics_page,
        prometheus_answer,
        operator_document,
        api_answer,
        engine_reply,
        memory_text,
        decision_log,
        trace_file,
    )
}

_LAYER = {"Known": True, "Value": 4, "Reason": ""}
_OBSERVATION = {
    "deploymentUID": "u",
    "observedGeneration": 2,
    **dict.fromkeys(("desired", "admitted", "allocated", "ray", "effective"), _LAYER),
    "stableWidth": 4,
}
_OPERATION = {"width": {"old": 2, "target": 4}, "state": "CommandSent", "scaleAttempts": 1}
_MEMORY = {
    "v": 1,
    "desired": 4,
    "state": "resizing",
    "resize": [2, 4, 1700000900.0],
    "in_flight": True,
    "ours": True,
    "over_at_s": 1700000900.0,
    "direction": 1,
    "reversals": [1700000000.0],
}
_SERIES = {"metric": {"model_name": "m"}, "values": [[1.7e9, "1"], [1.7e9 + 5, "NaN"]]}
_POINT = {"metric": {}, "value": [1.7e9, "2"]}


def _answer(kind, *result):
    data = {"resultType": kind, "result": list(result)}
    return json.dumps({"status": "success", "data": data}).encode()


def seeds(name):
    """What is well-formed, to begin from."""
    data = Path(__file__).parents[1] / "data"
    known = {
        "metrics_page": [
            b'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n',
            b'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 3\n',
        ],
        "prometheus_answer": [_answer("matrix", _SERIES), _answer("vector", _POINT)],
        "operator_document": [json.dumps(one).encode() for one in (_OBSERVATION, _OPERATION)],
        "api_answer": [b'{"kind": "Status", "code": 409, "reason": "Conflict", "message": "no"}'],
        "engine_reply": [b'{"error": {"message": "no", "code": 400}}'],
        "memory_text": [
            json.dumps(_MEMORY).encode(),
        ],
        "decision_log": [_decision()],
        "trace_file": [
            b'{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3}\n',
            b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
            gzip.compress(b'{"timestamp": 1, "input_length": 2, "output_length": 3}\n'),
        ],
    }
    found = sorted((data.parent / "fuzz" / "found").glob(f"{name}-*"))
    return [*known[name], *(path.read_bytes() for path in found)]


def _decision():
    from autoscaler.decisions import Entry, encode
    from autoscaler.model import Decision
    from autoscaler.testing import observation

    decision = Decision(3, 5.0, 4, 2, "high", "it hurts")
    return json.dumps(encode(Entry(decision, observation(3), None, {}, {}))).encode() + b"\n"
