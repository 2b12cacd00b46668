from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.cli.failure import UsageError
from raftlog.cli.record_format import compile_format, from_json, to_json, unescape
from raftlog.client.core.fetched import ConsumerRecord
from raftlog.wire.batch import Headers, Record


def fetched(key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = ()) -> ConsumerRecord:
    return ConsumerRecord(7, 1700000000123, key, value, headers, "orders", 2)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t[%p]@%o %k=%s\\n", b"orders[2]@7 k=v\n"),
        ("%T %S %K", b"1700000000123 1 1"),
        ("%R", b"\0\0\0\x01"),
        ("100%% \\x41\\t\\\\", b"100% A\t\\"),
        ("%h", b"a=1,b=NULL"),
        ("", b""),
    ],
)
def test_a_format_is_read_as_kcat_reads_it(text: str, printed: bytes) -> None:
    assert compile_format(text)(fetched(headers=(("a", b"1"), ("b", None)))) == printed


def test_a_missing_key_or_value_has_length_minus_one_and_prints_as_told() -> None:
    assert compile_format("%k|%s|%K|%S|%R")(fetched(None, None)) == b"||-1|-1|\xff\xff\xff\xff"
    assert compile_format("%k|%s", null=b"NULL")(fetched(None, None)) == b"NULL|NULL"


@pytest.mark.parametrize("text", ["%s%", "%s\\"])
def test_a_format_that_ends_in_the_middle_of_something_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match="ends with a lone"):
        compile_format(text)


def test_a_header_whose_name_is_no_text_is_printed_as_it_is() -> None:
    record = fetched(headers=(("\udcffn", b"1"),))
    assert compile_format("%h")(record) == b"\xffn=1"
    line = to_json(record)
    assert '"\\udcffn"' in line.decode()
    assert from_json(line, 0)[0].headers == record.headers


def test_bytes_that_are_no_text_are_printed_as_they_were_typed() -> None:
    # What Python makes of the bytes FF and FE of a command line.
    assert compile_format("\udcff%s\\\udcfe")(fetched()) == b"\xffv\xfe"
    assert unescape("\udcff") == b"\xff"


def test_an_unknown_directive_is_refused_with_the_list_of_known_ones() -> None:
    with pytest.raises(UsageError, match="no directive %q") as failure:
        compile_format("%q")
    assert "%s" in str(failure.value.hint)


def test_a_percent_sign_at_the_end_is_refused() -> None:
    with pytest.raises(UsageError):
        compile_format("%s %")


def test_delimiters_are_unescaped() -> None:
    assert unescape("\\n\\t\\x1f\\0|ä") == b"\n\t\x1f\0|" + "ä".encode()


def test_bytes_that_are_no_text_are_shown_as_base64() -> None:
    document = json.loads(to_json(fetched(value=b"\xff\x00")))
    assert document["value"] == {"base64": "/wA="}
    assert (document["topic"], document["partition"], document["offset"]) == ("orders", 2, 7)


values = st.none() | st.binary(max_size=20)


@given(values, values, st.lists(st.tuples(st.text(max_size=5), values), max_size=3), st.integers(-1, 2**63 - 1))
def test_what_consume_prints_as_json_produce_reads_back_unchanged(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    record = Record(offset=0, timestamp=timestamp, key=key, value=value, headers=tuple(headers))
    line = to_json(ConsumerRecord(*record, "t", 5))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert from_json(line, now_ms=1) == (record, 5)


def test_json_from_people_needs_only_what_they_care_for() -> None:
    record, partition = from_json(b'{"payload": {"a": 1}, "headers": {"h": "x"}}', now_ms=99)
    assert record == Record(offset=0, timestamp=99, key=None, value=b'{"a": 1}', headers=(("h", b"x"),))
    assert partition is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b"{",
        b'{"timestamp": "x"}',
        b'{"timestamp": true}',
        b'{"timestamp": -2}',
        b'{"timestamp": 9223372036854775808}',
        b'{"partition": -1}',
        b'{"partition": false}',
        b'{"partition": 2147483648}',
        b'{"headers": [1]}',
        b'{"headers": [["\\ud800", "half a sign"]]}',
        b'{"value": {"base64": "!"}}',
    ],
)
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(line, now_ms=1)
