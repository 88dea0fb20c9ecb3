"""An engine's command line, read as its own parser reads it."""

import pytest

from autoscaler.errors import ConfigError
from autoscaler.targets._arguments import MAX_WIDTH, TENSOR_PARALLEL, number


@pytest.mark.parametrize(
    ("arguments", "tp"),
    [
        ([], None),
        (["--tensor-parallel-size", "2"], 2),
        (["--tensor-parallel-size=2"], 2),
        (["--tensor_parallel_size", "2"], 2),
        (["--tensor_parallel_size=2"], 2),
        (["--tensor-parallel=2"], 2),
        (["--tensor", "2"], 2),
        (["-tp", "2"], 2),
        (["-tp=2"], 2),
        (["--tensor-parallel-size=2", "-tp", "4"], 4),
        (["--model", "--tensor-parallel-sizes", "--max-model-len=9", "--seed", "1"], None),
        (["--elastic-ep-max-dp-size", "8", "--trust-remote-code"], None),
        (["--tensor-parallel-size", "2", "--tokenizer", "x"], 2),
    ],
)
def test_reads_the_tensor_parallel_size_in_every_spelling(
    arguments: list[str], tp: int | None
) -> None:
    assert number(arguments, TENSOR_PARALLEL) == tp


@pytest.mark.parametrize(
    "arguments",
    [
        ["--elastic-ep-max-dp-size=4"],
        ["--elastic-ep-max-dp-size", "4"],
        ["--elastic_ep_max_dp_size", "4"],
        ["--elastic-ep-max", "4"],
        ["--elastic-ep-max-dp-size=8", "--elastic-ep-max-dp-size=4"],
        ["--enable-elastic-ep", "--elastic-ep-max-dp-size=4"],
    ],
)
def test_reads_the_largest_width_in_every_spelling(arguments: list[str]) -> None:
    assert number(arguments, MAX_WIDTH) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tensor-parallel-size"],
        ["--tensor-parallel-size="],
        ["--tensor-parallel-size", "--enable-eplb"],
        ["--tensor-parallel-size", "$(TP)"],
        ["-tp", "2.0"],
        ["-tp", "0"],
        ["-tp", "-2"],
        ["-tp", "²"],
        ["-tp", "2", "-tp", "two"],
        [2],
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_guess_A15(arguments: list[object]) -> None:
    with pytest.raises(ConfigError, match="extraArgs"):
        number(arguments, TENSOR_PARALLEL)
