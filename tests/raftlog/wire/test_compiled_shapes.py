"""The compiler handles every shape a definition can have, also those that no message of Kafka's has today."""

from __future__ import annotations

import pytest

from raftlog.wire.codec import decode, encode, encode_parts
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.schema import (
    Bytes,
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from tests.raftlog.wire.message_values import samples


class Empty(Struct):
    pass


class Inner(Struct):
    flag: bool = boolean()
    blob: Bytes | None = binary(nullable="1+", default=None)
    numbers: list[int] | None = array(int16, nullable="0+", default=None)
    note: str = string("2+", tag=5)
    deep: Empty = struct(Empty)


class Outer(Message, versions=(0, 3), flexible=2):
    small: int = int8()
    booleans: list[bool] = array(boolean)
    shorts: list[int] = array(int16)
    ports: list[int] = array(uint16)
    longs: list[int] = array(int64)
    floats: list[float] = array(float64)
    ids: list[bytes] = array(uuid)
    names: list[str] = array(string)
    blobs: list[Bytes] = array(binary)
    first: Inner = struct(Inner)
    maybe: Inner | None = struct(Inner, nullable="1+", default=None)
    inners: list[Inner] | None = array(Inner, nullable="1+")
    big: Bytes = binary("2+", tag=300)
    tagged: Inner = struct(Inner, "3+", tag=2)
    words: list[str] | None = array(string, "2+", nullable="2+", default=None, tag=1)
    ratio: float = float64("2+", default=0.5, tag=0)
    last: int = int32("0-1", default=-1, ignorable=True)


class Hollow(Message, versions=(0, 1), flexible=1):
    nothings: list[Empty] = array(Empty)


@pytest.mark.parametrize("version", range(4))
def test_every_shape_comes_back_as_it_was(version: int) -> None:
    for message in samples(Outer, version, 60):
        data = encode(message, version)
        assert decode(Outer, version, data) == decode(Outer, version, memoryview(data)) == message
        for end in range(0, len(data), 1 + len(data) // 20):
            with pytest.raises(RemoteProtocolError):
                decode(Outer, version, data[:end])


def test_bytes_inside_a_tagged_field_stay_inside_it() -> None:
    message = Outer(big=bytes(100_000), tagged=Inner(blob=memoryview(bytes(50_000))), first=Inner(blob=bytes(9_000)))
    assert decode(Outer, 3, encode(message, 3)) == message
    head, field, rest = encode_parts(message, 3)
    assert field is message.first.blob
    assert len(head) < 100 < 150_000 < len(rest)


def test_elements_that_take_no_bytes_are_bounded_by_the_bytes_that_are_left() -> None:
    assert encode(Hollow(nothings=[Empty(), Empty()]), 0) == b"\0\0\0\x02"
    with pytest.raises(RemoteProtocolError, match="nothings: an array of 2147483647 elements"):
        decode(Hollow, 0, b"\x7f\xff\xff\xff")
    assert decode(Hollow, 1, encode(Hollow(nothings=[Empty(), Empty()]), 1)).nothings == [Empty(), Empty()]
