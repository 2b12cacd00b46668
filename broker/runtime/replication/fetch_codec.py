"""A follower's Fetch requests and the answers to them, v17, as bytes.

Written by hand, because it is the path of every acknowledgement with acks=all; a test holds both directions equal to
the compiled codec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import RemoteProtocolError

VERSION = 17

_FRAME = Struct(">i")
_HEADER = Struct(">hhih")  # API key, version, correlation id, length of the client id
_TERMS = Struct(">iiibii")  # wait, least bytes, most bytes, isolation, session id, session epoch
_WANTED = Struct(">iiqiqiB")  # index, leader epoch, offset, last epoch, log start, most bytes, no tags
_INT32 = Struct(">i")
# No rack; one tagged field, number 1: replica state, of 13 bytes.
_REPLICA = Struct(">BBBBiqB")

_TOP = Struct(">iBihi")  # correlation id, no tags, throttle time, error, session id
_PARTITION = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_DIVERGING = Struct(">iq")
_UUID_BYTES = 16
_VARINT_BYTES_MAX = 5


class FetcherSettings(NamedTuple):
    """Kafka's names with underscores, without `replica`. Bytes and milliseconds."""

    fetch_max_bytes: int = 1_048_576
    fetch_min_bytes: int = 1
    fetch_response_max_bytes: int = 10_485_760
    fetch_wait_max_ms: int = 500
    fetch_backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000


class WantedPartition(NamedTuple):
    """Where a follower stands in one partition."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    log_start_offset: int
    bytes_max: int


class FetchTerms(NamedTuple):
    """What is the same in all requests of one follower. Milliseconds and bytes."""

    client_id: bytes
    replica_id: int
    replica_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int


class FetchedRecords(NamedTuple):
    """What the answer says of one partition. `records` lies in the answer's own buffer."""

    topic_id: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: memoryview


class FetchAnswer(NamedTuple):
    """A whole answer."""

    correlation_id: int
    error: int
    session_id: int
    partitions: list[FetchedRecords]


Wanted = Mapping[bytes, Sequence[WantedPartition]]
Forgotten = Mapping[bytes, Sequence[int]]


def encode_fetch(
    terms: FetchTerms, correlation_id: int, session: tuple[int, int], wanted: Wanted, forgotten: Forgotten
) -> bytearray:
    """A whole frame. `session` is its id and epoch; `wanted` and `forgotten` are by topic id."""
    client_id = terms.client_id
    out = bytearray(_FRAME.size)
    out += _HEADER.pack(ApiKey.FETCH, VERSION, correlation_id, len(client_id))
    out += client_id
    out.append(0)
    out += _TERMS.pack(terms.wait_ms_max, terms.bytes_min, terms.bytes_max, 0, *session)
    _put_count(out, len(wanted))
    for topic_id, partitions in wanted.items():
        out += topic_id
        _put_count(out, len(partitions))
        for partition in partitions:
            out += _WANTED.pack(*partition, 0)
        out.append(0)
    _put_count(out, len(forgotten))
    for topic_id, indexes in forgotten.items():
        out += topic_id
        _put_count(out, len(indexes))
        for index in indexes:
            out += _INT32.pack(index)
        out.append(0)
    out += _REPLICA.pack(1, 1, 1, 13, terms.replica_id, terms.replica_epoch, 0)
    _FRAME.pack_into(out, 0, len(out) - _FRAME.size)
    return out


def _put_count(out: bytearray, count: int) -> None:
    count += 1
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)


def decode_fetch_answer(frame: memoryview) -> FetchAnswer:
    """The answer in a frame without its length. Raises RemoteProtocolError when it is malformed."""
    try:
        return _decode(frame)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError(f"the answer to a fetch ends too early: {error}") from error


def _decode(frame: memoryview) -> FetchAnswer:
    correlation_id, tags, _, error, session_id = _TOP.unpack_from(frame)
    if tags:
        raise RemoteProtocolError("the answer to a fetch has tags in its header")
    topics, position = _varint(frame, _TOP.size)
    partitions: list[FetchedRecords] = []
    for _ in range(topics - 1):
        topic_id = bytes(frame[position : position + _UUID_BYTES])
        count, position = _varint(frame, position + _UUID_BYTES)
        for _ in range(count - 1):
            partition, position = _partition(frame, position, topic_id)
            partitions.append(partition)
        position = _skip_tags(frame, position)
    _skip_tags(frame, position)
    return FetchAnswer(correlation_id, error, session_id, partitions)


def _partition(frame: memoryview, position: int, topic_id: bytes) -> tuple[FetchedRecords, int]:
    index, error, high_watermark, _, log_start = _PARTITION.unpack_from(frame, position)
    aborted, position = _varint(frame, position + _PARTITION.size)
    if aborted > 1:
        raise RemoteProtocolError("a follower is told of aborted transactions")
    # A preferred read replica is nothing to a follower.
    size, position = _varint(frame, position + _INT32.size)
    end = position + max(size - 1, 0)
    if end >= len(frame):
        raise RemoteProtocolError(f"{size - 1} bytes of records in an answer of {len(frame)} bytes")
    records = frame[position:end]
    diverging = None
    if frame[end]:
        diverging, end = _tags(frame, end)
    else:
        end += 1
    return FetchedRecords(topic_id, index, error, high_watermark, log_start, diverging, records), end


def _tags(frame: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    """The diverging epoch, tag 0; the others are passed over."""
    diverging = None
    count, position = _varint(frame, position)
    for _ in range(count):
        number, position = _varint(frame, position)
        size, position = _varint(frame, position)
        if number == 0:
            diverging = _DIVERGING.unpack_from(frame, position)
        position += size
    return diverging, position


def _skip_tags(frame: memoryview, position: int) -> int:
    return position + 1 if frame[position] == 0 else _tags(frame, position)[1]


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value = shift = 0
    for at in range(position, position + _VARINT_BYTES_MAX):
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise RemoteProtocolError("a length of more than five bytes")

