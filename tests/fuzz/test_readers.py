"""Foreign bytes: what fuzzing has found, and what nests deeper than any parser goes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .readers import READERS, seeds


@pytest.mark.parametrize("name", READERS)
def test_what_is_well_formed_and_what_was_found_is_read_or_refused(name):
    for data in seeds(name):
        READERS[name](data)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("name", READERS)
def test_deep_nesting_is_refused_and_no_crash(name, opening):
    READERS[name](opening * 100_000)
    READERS[name](opening * 100_000 + b"\n")


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_bytes_changed_anywhere_are_read_or_refused(name, data):
    whole = bytearray(data.draw(st.sampled_from(seeds(name))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(whole) - 1, 0)))
        whole[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    READERS[name](bytes(whole))
