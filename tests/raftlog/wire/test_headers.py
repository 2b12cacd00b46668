"""Headers have the version that the API's version asks for, and nothing in them is believed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader as TheirRequestHeader
from kafka.protocol.api_header import ResponseHeader as TheirResponseHeader

from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)

apis = st.sampled_from(list(APIS.values()))
correlation_ids = st.integers(-(2**31), 2**31 - 1)
client_ids = st.none() | st.text(max_size=20)


@given(apis, st.integers(0, 20), correlation_ids, client_ids, st.binary(max_size=5))
def test_a_request_header_comes_back_as_it_was(
    api: object, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> None:
    key = api.key  # type: ignore[attr-defined]
    header = encode_request_header(key, version, correlation_id, client_id)
    expected = RequestHeader(key, version, correlation_id, client_id, len(header))
    for frame in (header + body, memoryview(bytearray(header + body))):
        assert parse_request_header(frame) == expected


@given(apis, st.integers(0, 20), correlation_ids, client_ids)
def test_kafka_python_writes_the_same_headers(
    api: object, version: int, correlation_id: int, client_id: str | None
) -> None:
    key, flexible = api.key, api.is_flexible(version)  # type: ignore[attr-defined]
    theirs = TheirRequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    assert encode_request_header(key, version, correlation_id, client_id) == theirs.encode(flexible=flexible)
    with_tags = flexible and key != ApiKey.API_VERSIONS
    response = TheirResponseHeader(correlation_id=correlation_id).encode(flexible=with_tags)
    assert encode_response_header(key, version, correlation_id) == response


@given(apis, st.integers(0, 20), correlation_ids, st.binary(max_size=5))
def test_a_response_header_comes_back_as_it_was(api: object, version: int, correlation_id: int, body: bytes) -> None:
    key = api.key  # type: ignore[attr-defined]
    header = encode_response_header(key, version, correlation_id)
    assert parse_response_header(key, version, header + body) == (correlation_id, len(header))


def test_the_answer_to_api_versions_has_the_oldest_header_in_every_version() -> None:
    assert [len(encode_response_header(ApiKey.API_VERSIONS, version, 1)) for version in range(5)] == [4] * 5
    assert len(encode_response_header(ApiKey.METADATA, 9, 1)) == 5
    assert len(encode_response_header(ApiKey.METADATA, 8, 1)) == 4


def test_a_request_of_a_version_from_the_future_has_a_readable_header() -> None:
    frame = encode_request_header(ApiKey.API_VERSIONS, 99, 7, "c") + b"whatever"
    assert parse_request_header(frame)[:4] == (18, 99, 7, "c")


def test_unknown_tagged_fields_in_headers_are_skipped() -> None:
    request = encode_request_header(ApiKey.METADATA, 9, 7, "c")[:-1] + b"\x02\x00\x02ab\x85\x01\x01c"
    assert parse_request_header(request + b"body").body_offset == len(request)
    assert parse_response_header(ApiKey.METADATA, 9, bytes(4) + b"\x01\x00\x01x" + b"body") == (0, 8)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0",
        b"\0\x03\0\x09\0\0\0\x07\0\x05abc",  # the client id ends after the frame
        b"\0\x03\0\x09\0\0\0\x07\0\x02\xff\xff\0",  # and is not text
        b"\0\x03\0\x09\0\0\0\x07\xff\xff",  # no tagged fields
        b"\0\x03\0\x09\0\0\0\x07\xff\xff\x01\x00\x09abc",
        b"\0\x03\0\x09\0\0\0\x07\xff\xff\xff\xff\xff\xff\xff",
        b"\x03\xe7\0\0\0\0\0\x07\xff\xff",  # no such API
        b"\xff\xff\0\0\0\0\0\x07\xff\xff",
    ],
)
def test_a_malformed_request_header_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_request_header(frame)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", bytes(4), bytes(4) + b"\x01\x00\x09", bytes(4) + b"\x80" * 9])
def test_a_malformed_response_header_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_response_header(ApiKey.METADATA, 12, data)


def test_random_headers_are_read_or_refused() -> None:
    randomness = random.Random(7)
    for size in range(40):
        for key in APIS:
            frame = key.to_bytes(2, "big") + randomness.randbytes(size)
            try:
                header = parse_request_header(frame)
            except RemoteProtocolError:
                continue
            assert header.body_offset <= len(frame)
