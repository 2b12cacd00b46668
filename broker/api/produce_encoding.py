"""How produce requests and responses lie on the wire, by hand: a path whose cost is counted in microseconds.

Knows the fields of v3 to v13, and how to see that a request is an earlier one of its connection with another batch in
it. A test holds both directions equal to the compiled codec.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.core.connection.reply import frame
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.server.limits import (
    PRODUCE_ENTRIES_MAX,
    REMEMBERED_REQUEST_BYTES_MAX,
    REMEMBERED_REQUESTS_MAX,
)
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.primitives import TAGGED_FIELDS_MAX
from raftlog.wire.varint import encode_unsigned_varint, read_unsigned_varint

if TYPE_CHECKING:
    from raftlog.broker.api.leader_hints import NodeAddress

FLEXIBLE_FROM = 9
LEADERS_FROM = 10
IDS_FROM = 13

# A topic as the request names it (UTF-8 name or 16-byte id), with (partition index, records) for each partition.
Wanted: TypeAlias = "list[tuple[bytes, list[tuple[int, memoryview | None]]]]"
# The same with what became of each.
Outcome: TypeAlias = "list[tuple[bytes, list[tuple[int, AppendResult]]]]"
# (leader, leader epoch) of partitions that are led elsewhere.
Leaders: TypeAlias = "dict[tuple[bytes, int], tuple[int, int]]"

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_TIMEOUT = Struct(">hi")
_INDEX_LENGTH = Struct(">ii")
# index, error, base offset, log append time, log start offset; then no record errors, no message, no tags
_DONE_FLEXIBLE = Struct(">ihqqqBBB")
_DONE_V8 = Struct(">ihqqqih")
_DONE_V5 = Struct(">ihqqq")
_DONE_V3 = Struct(">ihqq")
# Where a response has its correlation id: behind its size.
_CORRELATION_AT = 4
# What follows the batch of a flexible request: no tagged fields of the partition, the topic and the request.
_NO_TAGS = b"\x00\x00\x00"


class OneBatch:
    """A request of one batch for one partition, and what others like it share with it.

    A producer sends many of them to a topic. All that lies before the partition's number is the same in each, and so
    is the reply but for five numbers.
    """

    __slots__ = ("_length", "_numbers_at", "_replied", "_start", "_version", "acks", "by_id", "key", "timeout_ms")

    def __init__(self, start: bytes, version: int, acks: int, timeout_ms: int, key: bytes) -> None:
        """`start`: the body up to the partition's number."""
        self._start, self._length, self._version = start, len(start), version
        self.acks, self.timeout_ms, self.key = acks, timeout_ms, key
        self.by_id = version >= IDS_FROM
        self._replied = b""
        self._numbers_at = 0

    def _prepare_reply(self) -> bytes:
        """Not before there is something to acknowledge: that may never come."""
        done = AppendResult(ErrorCode.NONE, 0, 0, 0, 0)
        flexible = self._version >= FLEXIBLE_FROM
        body = encode_outcome([(self.key, [(0, done)])], self._version)
        (whole,) = frame(0, body, flexible=flexible)
        assert isinstance(whole, bytes)
        self._replied = whole
        # Behind the partition: the throttle time, and the tags of the topic and of the response.
        behind = 6 if flexible else 4
        self._numbers_at = len(self._replied) - behind - len(_encode_partition(0, done, self._version))
        return self._replied

    @classmethod
    def of(cls, request: memoryview, offset: int, version: int, parsed: tuple[int, int, Wanted]) -> OneBatch | None:
        """From a request whose body begins at `offset`, and what was parsed of it; None if it is not so simple."""
        acks, timeout_ms, topics = parsed
        if len(topics) != 1 or len(topics[0][1]) != 1:
            return None
        key, [(index, records)] = topics[0]
        if records is None:
            return None
        size = len(records)
        if version >= FLEXIBLE_FROM:
            before, behind = _INT32.pack(index) + _count(size, True), _NO_TAGS
        else:
            before, behind = _INDEX_LENGTH.pack(index, size), b""
        at = len(request) - len(behind) - size
        start = at - len(before)
        simple = request[start:at] == before and request[at + size :] == behind
        if not simple or start - offset > REMEMBERED_REQUEST_BYTES_MAX:
            # Tagged fields, bytes behind the request, a length in more bytes than it needs: all that is the parser's.
            return None
        return cls(bytes(request[offset:start]), version, acks, timeout_ms, key)

    def find(self, request: memoryview, offset: int, version: int) -> tuple[int, memoryview] | None:
        """The partition's number and its records, if this is such a request; what it says else is not looked at.

        Raises IndexError or struct.error when the request is cut.
        """
        at = offset + self._length
        if version != self._version or request[offset:at].tobytes() != self._start:
            return None
        if version >= FLEXIBLE_FROM:
            (index,) = _INT32.unpack_from(request, at)
            size, at = read_unsigned_varint(request, at + 4)
            end = at + size - 1
            return (index, request[at:end]) if size and request[end:] == _NO_TAGS else None
        index, size = _INDEX_LENGTH.unpack_from(request, at)
        at += _INDEX_LENGTH.size
        return (index, request[at:]) if size == len(request) - at else None

    def reply(self, correlation_id: int, index: int, done: AppendResult) -> bytearray:
        """The whole response that acknowledges what was appended."""
        response = bytearray(self._replied or self._prepare_reply())
        _INT32.pack_into(response, _CORRELATION_AT, correlation_id)
        numbers = (index, 0, done.base_offset, done.log_append_time_ms)
        if self._version >= 5:
            _DONE_V5.pack_into(response, self._numbers_at, *numbers, done.log_start_offset)
        else:
            _DONE_V3.pack_into(response, self._numbers_at, *numbers)
        return response


class Known:
    """The last few such requests of a connection, each to another topic."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: list[OneBatch] = []

    def find(self, request: memoryview, offset: int, version: int) -> tuple[OneBatch, int, memoryview] | None:
        """What a request asks for, if it is like one of them. Raises as `OneBatch.find`."""
        for kind in self._kinds:
            found = kind.find(request, offset, version)
            if found is not None:
                return (kind, *found)
        return None

    def learn(self, request: memoryview, offset: int, version: int, parsed: tuple[int, int, Wanted]) -> None:
        """Take up a request that was parsed, if the next ones may be like it; the oldest gives way."""
        kind = OneBatch.of(request, offset, version, parsed)
        if kind is not None:
            self._kinds = [kind, *self._kinds[: REMEMBERED_REQUESTS_MAX - 1]]


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────


def parse_classic(request: memoryview, position: int, version: int) -> tuple[int, int, Wanted]:
    """v3 to v8: (acks, time-out in ms, topics). Raises IndexError or struct.error when the request is cut."""
    (length,) = _INT16.unpack_from(request, position)
    position += 2 + max(length, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(request, position)
    (topic_count,) = _INT32.unpack_from(request, position + 6)
    position += 10
    topics: Wanted = []
    entries = _admitted(topic_count)
    for _ in range(_plausible(topic_count, request, position)):
        (length,) = _INT16.unpack_from(request, position)
        if length < 0:
            raise RemoteProtocolError(f"Produce v{version}: a topic without a name")
        name = bytes(request[position + 2 : position + 2 + length])
        position += 2 + length
        (partition_count,) = _INT32.unpack_from(request, position)
        position += 4
        entries = _admitted(entries + partition_count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(_plausible(partition_count, request, position)):
            index, size = _INDEX_LENGTH.unpack_from(request, position)
            position += 8
            if size < 0:
                partitions.append((index, None))
                continue
            partitions.append((index, request[position : position + size]))
            position += size
        topics.append((name, partitions))
    _check_end(request, position, version)
    return acks, timeout_ms, topics


def parse_flexible(request: memoryview, position: int, version: int) -> tuple[int, int, Wanted]:
    """v9 to v13: (acks, time-out in ms, topics). Raises IndexError or struct.error when the request is cut."""
    length, position = read_unsigned_varint(request, position)
    position += max(length - 1, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(request, position)
    topic_count, position = read_unsigned_varint(request, position + 6)
    topics: Wanted = []
    entries = _admitted(topic_count)
    for _ in range(_plausible(topic_count - 1, request, position)):
        if version >= IDS_FROM:
            key = bytes(request[position : position + 16])
            position += 16
        else:
            length, position = read_unsigned_varint(request, position)
            if length == 0:
                raise RemoteProtocolError(f"Produce v{version}: a topic without a name")
            key = bytes(request[position : position + length - 1])
            position += length - 1
        partition_count, position = read_unsigned_varint(request, position)
        entries = _admitted(entries + partition_count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(_plausible(partition_count - 1, request, position)):
            (index,) = _INT32.unpack_from(request, position)
            size, position = read_unsigned_varint(request, position + 4)
            if size == 0:
                partitions.append((index, None))
            else:
                partitions.append((index, request[position : position + size - 1]))
                position += size - 1
            position = _skip_tags(request, position)
        position = _skip_tags(request, position)
        topics.append((key, partitions))
    _check_end(request, _skip_tags(request, position), version)
    return acks, timeout_ms, topics


def _skip_tags(request: memoryview, position: int) -> int:
    if request[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(request, position)
    if count > TAGGED_FIELDS_MAX:
        raise RemoteProtocolError(f"Produce: {count} tagged fields")
    for _ in range(_plausible(count, request, position)):
        _, position = read_unsigned_varint(request, position)
        size, position = read_unsigned_varint(request, position)
        position += size
    return position


def _admitted(entries: int) -> int:
    """The number of topics and partitions so far, if a request may have so many."""
    if entries > PRODUCE_ENTRIES_MAX:
        raise RemoteProtocolError(f"Produce: {entries} topics and partitions, above {PRODUCE_ENTRIES_MAX}")
    return entries


def _plausible(count: int, request: memoryview, position: int) -> int:
    """An element takes at least one byte: a count that lies is refused before anything is made of it."""
    if count < 0 or count > len(request) - position:
        raise RemoteProtocolError(f"Produce: an array of {count} elements in {len(request) - position} bytes")
    return count


def _check_end(request: memoryview, position: int, version: int) -> None:
    # Bytes behind the fields are passed over, as Kafka does.
    if position > len(request):
        raise RemoteProtocolError(
            f"Produce v{version}: the fields end at byte {position} of a request of {len(request)} bytes"
        )


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────


def encode_outcome(outcome: Outcome, version: int) -> bytes:
    """The response's body, from v3."""
    if any(result.message is not None or result.record_errors for _, results in outcome for _, result in results):
        return encode_with_messages(outcome, version, {}, [])
    flexible = version >= FLEXIBLE_FROM
    body = bytearray(_count(len(outcome), flexible))
    for key, results in outcome:
        if version >= IDS_FROM:
            body += key
        else:
            body += _count(len(key), flexible) if flexible else _INT16.pack(len(key))
            body += key
        body += _count(len(results), flexible)
        for index, result in results:
            body += _encode_partition(index, result, version)
        if flexible:
            body.append(0)
    body += b"\x00\x00\x00\x00\x00" if flexible else b"\x00\x00\x00\x00"
    return bytes(body)


def _encode_partition(index: int, result: AppendResult, version: int) -> bytes:
    fields = (index, result.error, result.base_offset, result.log_append_time_ms)
    if version >= FLEXIBLE_FROM:
        return _DONE_FLEXIBLE.pack(*fields, result.log_start_offset, 1, 0, 0)
    if version == 8:
        return _DONE_V8.pack(*fields, result.log_start_offset, 0, -1)
    if version >= 5:
        return _DONE_V5.pack(*fields, result.log_start_offset)
    return _DONE_V3.pack(*fields)


def _count(count: int, flexible: bool) -> bytes:
    return encode_unsigned_varint(count + 1) if flexible else _INT32.pack(count)


def encode_with_messages(outcome: Outcome, version: int, leaders: Leaders, nodes: list[NodeAddress]) -> bytes:
    from raftlog.wire.messages.produce import (
        BatchIndexAndErrorMessage,
        LeaderIdAndEpoch,
        NodeEndpoint,
        PartitionProduceResponse,
        ProduceResponse,
        TopicProduceResponse,
    )

    topics = []
    for key, results in outcome:
        partitions = []
        for index, result in results:
            leader_id, leader_epoch = leaders.get((key, index), (-1, -1))
            partition = PartitionProduceResponse(
                index=index,
                error_code=result.error,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
                    for place, text in result.record_errors
                ],
                error_message=result.message,
                current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
            )
            partitions.append(partition)
        if version >= IDS_FROM:
            topics.append(TopicProduceResponse(topic_id=key, partition_responses=partitions))
        else:
            topics.append(TopicProduceResponse(name=key.decode(), partition_responses=partitions))
    endpoints = [NodeEndpoint(**node._asdict()) for node in nodes]
    return encode(ProduceResponse(responses=topics, node_endpoints=endpoints), version)
