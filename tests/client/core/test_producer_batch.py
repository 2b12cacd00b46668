"""What a record may be made of."""

from __future__ import annotations

import time
from array import array
from typing import Any

import pytest

from raftlog.client.core.producer_batch import check_record

GOOD: dict[str, Any] = {"value": b"v", "key": None, "headers": (), "partition": None, "timestamp": None}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "text"}, r"value is bytes or None, not str: \.encode\(\)"),
        ({"value": 5}, "value is bytes or None, not int"),
        ({"key": "k"}, "key is bytes or None"),
        ({"headers": {"a": b"1"}}, "headers are a list of pairs"),
        ({"headers": ["ab"]}, "headers are a list of pairs"),
        ({"value": memoryview(array("I", [1, 2]))}, r"value is a memoryview of 'I', not of bytes: \.cast"),
        ({"headers": [("\ud800", b"1")]}, "header .* is no text: surrogates not allowed"),
        ({"headers": [("a", "1")]}, "header 'a' is bytes or None"),
        ({"partition": "0"}, "partition is a whole number, not '0'"),
        ({"timestamp": time.time()}, "milliseconds since 1970"),
        ({"timestamp": 1 << 63}, "milliseconds since 1970"),
    ],
)
def test_what_is_no_part_of_a_record_is_told_in_words(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_record(**GOOD | wrong)


def test_all_that_has_bytes_or_a_whole_number_is_taken() -> None:
    check_record(**GOOD)
    check_record(bytearray(b"v"), memoryview(b"k"), [["a", None], ("b", b"1")], True, 5)
