"""How produce requests and responses lie on the wire, by hand: a path whose cost is counted in microseconds.

v3 to v13. A test holds both directions equal to the compiled codec.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.server.limits import REQUEST_ENTRIES_MAX
from raftlog.wire.codec import encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.ids import BrokerId, LeaderEpoch
from raftlog.wire.primitives import TAGGED_FIELDS_MAX
from raftlog.wire.varint import encode_unsigned_varint, read_unsigned_varint

if TYPE_CHECKING:
    from raftlog.broker.api.leader_hints import NodeAddress

FLEXIBLE_FROM = 9
LEADERS_FROM = 10
IDS_FROM = 13

# A topic as the request names it (UTF-8 name or 16-byte id), with (partition index, records) for each partition.
Wanted: TypeAlias = "list[tuple[bytes, list[tuple[int, memoryview | None]]]]"
# A request: (transactional id, acks, time-out in ms, topics).
ParsedProduce: TypeAlias = "tuple[bytes | None, int, int, Wanted]"
# Topics and partitions with what became of each.
Outcome: TypeAlias = "list[tuple[bytes, list[tuple[int, AppendResult]]]]"
# (leader, leader epoch) of partitions that are led elsewhere.
Leaders: TypeAlias = "dict[tuple[bytes, int], tuple[BrokerId, LeaderEpoch]]"

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_TIMEOUT = Struct(">hi")
_INDEX_LENGTH = Struct(">ii")
# index, error, base offset, log append time, log start offset; then no record errors, no message, no tags
_DONE_FLEXIBLE = Struct(">ihqqqBBB")
_DONE_V8 = Struct(">ihqqqih")
_DONE_V5 = Struct(">ihqqq")
_DONE_V3 = Struct(">ihqq")


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────


def parse(request: memoryview, position: int, version: int) -> ParsedProduce:
    """A request whose body begins at `position`. Raises RemoteProtocolError, IndexError or struct.error."""
    return (_parse_flexible if version >= FLEXIBLE_FROM else _parse_classic)(request, position, version)


def _parse_classic(request: memoryview, position: int, version: int) -> ParsedProduce:
    """v3 to v8."""
    (length,) = _INT16.unpack_from(request, position)
    position += 2
    transactional_id = None if length < 0 else bytes(request[position : position + length])
    position += max(length, 0)
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
    return transactional_id, acks, timeout_ms, topics


def _parse_flexible(request: memoryview, position: int, version: int) -> ParsedProduce:
    """v9 to v13."""
    length, position = read_unsigned_varint(request, position)
    transactional_id = bytes(request[position : position + length - 1]) if length else None
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
            position, entries = _skip_tags(request, position, entries)
        position, entries = _skip_tags(request, position, entries)
        topics.append((key, partitions))
    position, _ = _skip_tags(request, position, entries)
    _check_end(request, position, version)
    return transactional_id, acks, timeout_ms, topics


def _skip_tags(request: memoryview, position: int, entries: int) -> tuple[int, int]:
    """The position behind them, and the number of entries so far: they count, too."""
    if request[position] == 0:
        return position + 1, entries
    count, position = read_unsigned_varint(request, position)
    if count > TAGGED_FIELDS_MAX:
        raise RemoteProtocolError(f"Produce: {count} tagged fields")
    entries = _admitted(entries + count)
    for _ in range(_plausible(count, request, position)):
        _, position = read_unsigned_varint(request, position)
        size, position = read_unsigned_varint(request, position)
        position += size
    return position, entries


def _admitted(entries: int) -> int:
    """The number of topics, partitions and tagged fields so far, if a request may have so many."""
    if entries > REQUEST_ENTRIES_MAX:
        raise RemoteProtocolError(f"Produce: {entries} topics and partitions, above {REQUEST_ENTRIES_MAX}")
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
    body = bytearray(encode_count(len(outcome), flexible))
    for key, results in outcome:
        if version >= IDS_FROM:
            body += key
        else:
            body += encode_count(len(key), flexible) if flexible else _INT16.pack(len(key))
            body += key
        body += encode_count(len(results), flexible)
        for index, result in results:
            body += encode_partition(index, result, version)
        if flexible:
            body.append(0)
    body += b"\x00\x00\x00\x00\x00" if flexible else b"\x00\x00\x00\x00"
    return bytes(body)


def encode_partition(index: int, result: AppendResult, version: int) -> bytes:
    fields = (index, result.error, result.base_offset, result.log_append_time_ms)
    if version >= FLEXIBLE_FROM:
        return _DONE_FLEXIBLE.pack(*fields, result.log_start_offset, 1, 0, 0)
    if version == 8:
        return _DONE_V8.pack(*fields, result.log_start_offset, 0, -1)
    if version >= 5:
        return _DONE_V5.pack(*fields, result.log_start_offset)
    return _DONE_V3.pack(*fields)


def encode_count(count: int, flexible: bool) -> bytes:
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
