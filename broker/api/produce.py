"""Produce (key 0), v3 to v13; advertised from v0.

acks 0, 1 and all; idempotent producers (KIP-98); record errors and messages (KIP-467, v8); where the leader is now
(KIP-951, v10); topic ids (KIP-516, v13). v0 to v2 are advertised and refused, because old librdkafka looks at the
lowest version to decide whether it may compress (KAFKA-18659).

Decoded and encoded by hand: this is the path whose cost is counted in microseconds. A test holds both equal to
the compiled codec. Nothing here looks at a record: the log checks each batch's header and CRC.
"""

from __future__ import annotations

import logging
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.validation import MAX_RECORD_ERRORS, check_api_version, is_transactional
from raftlog.broker.server.limits import PRODUCE_ENTRIES_MAX
from raftlog.broker.server.reply import Piece, frame
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.primitives import TAGGED_FIELDS_MAX

if TYPE_CHECKING:
    from raftlog.broker.api.leader_hints import NodeAddress
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.server.reply import PendingReply

log = logging.getLogger("raftlog.produce")

_FLEXIBLE_FROM = 9
_LEADERS_FROM = 10
_IDS_FROM = 13
_ACKS_ALL = -1
_ACKS_NONE = 0
_ACKS = (-1, 0, 1)
_NO_TICK = -1

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


def serve(services: Services, raw: RawRequest) -> None:
    """Append to each partition's log and answer as acks asks."""
    version = raw.version
    try:
        parse = parse_flexible if version >= _FLEXIBLE_FROM else parse_classic
        acks, timeout_ms, topics = parse(raw.frame, raw.offset, version)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError(f"Produce v{version}: the request ends too early") from error
    produced = Produced(services, raw, acks, timeout_ms)
    for key, partitions in topics:
        produced.append_topic(key, partitions)
    produced.answer()


class Produced:
    """One produce request: what was appended, and for which partitions the answer still waits."""

    __slots__ = (
        "_acks",
        "_connection",
        "_correlation_id",
        "_missing",
        "_now_ms",
        "_outcome",
        "_place",
        "_record_errors_left",
        "_services",
        "_tick",
        "_timeout_ms",
        "_version",
        "_waits",
    )

    def __init__(self, services: Services, raw: RawRequest, acks: int, timeout_ms: int) -> None:
        self._services = services
        self._connection = raw.connection
        self._version = raw.version
        self._correlation_id = raw.correlation_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._now_ms = services.clock.now_ms()
        self._outcome: Outcome = []
        # For the whole request: a hundred bytes of compressed batch can hold a thousand records that are refused.
        self._record_errors_left = MAX_RECORD_ERRORS
        # Appended, but not yet safe enough to be acknowledged: (partition, topic's and partition's place, result).
        self._waits: list[tuple[Partition, list[tuple[int, AppendResult]], int]] = []
        self._missing = 0
        self._place: PendingReply | None = None
        self._tick = _NO_TICK

    def append_topic(self, key: bytes, partitions: list[tuple[int, memoryview | None]]) -> None:
        """Append each partition's records."""
        manager = self._services.partitions
        results: list[tuple[int, AppendResult]] = []
        self._outcome.append((key, results))
        by_id = self._version >= _IDS_FROM
        for index, records in partitions:
            partition = manager.find_by_id(key, index) if by_id else manager.find_by_name(key, index)
            if isinstance(partition, ErrorCode):
                results.append((index, refused(partition)))
            elif self._acks not in _ACKS:
                results.append((index, refused(ErrorCode.INVALID_REQUIRED_ACKS)))
            elif partition.internal:
                results.append((index, refused(ErrorCode.INVALID_TOPIC_EXCEPTION)))
            elif self._acks == _ACKS_ALL and partition.isr_size < partition.min_isr:
                results.append((index, refused(ErrorCode.NOT_ENOUGH_REPLICAS)))
            elif records is None:
                results.append((index, refused(ErrorCode.INVALID_RECORD)))
            elif is_transactional(records):
                # There is no coordinator that could ever end the transaction, and its readers would wait for ever.
                results.append((index, refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)))
            elif (refusal := check_api_version(records, self._version)) is not None:
                results.append((index, refused(refusal.error, refusal.message)))
            else:
                result = partition.append_from_client(records, self._now_ms)
                if result.record_errors:
                    result = result._replace(record_errors=result.record_errors[: self._record_errors_left])
                    self._record_errors_left -= len(result.record_errors)
                must_wait = self._acks == _ACKS_ALL or partition.flushing
                if must_wait and partition.log.high_watermark <= result.last_offset:
                    self._waits.append((partition, results, len(results)))
                results.append((index, result))

    def answer(self) -> None:
        """Answer now, or when all that was appended is committed, or when the time-out ends the waiting."""
        if self._waits:
            self._wait()
        elif self._acks == _ACKS_NONE:
            self._without_reply()
        else:
            self._connection.reply(self._pieces())

    def _without_reply(self) -> None:
        """acks=0 has no reply to carry an error, so an error ends the connection, as the client expects."""
        for _, results in self._outcome:
            for index, result in results:
                if result.error is not ErrorCode.NONE:
                    reason = f"acks=0 leaves no other way to tell of {result.error.name} in partition {index}"
                    self._connection.close(reason, level=logging.WARNING)
                    return

    def _wait(self) -> None:
        self._missing = len(self._waits)
        self._place = self._connection.park()
        if self._timeout_ms > 0:
            due = self._services.loop.time() + self._timeout_ms / 1000
            self._tick = self._services.partitions.deadlines.add(self, due)
        for partition, results, place in self._waits:
            self._wait_for(partition, results, place)

    def _wait_for(self, partition: Partition, results: list[tuple[int, AppendResult]], place: int) -> None:
        index, result = results[place]

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                results[place] = (index, refused(error))
            self._missing -= 1
            if self._missing == 0:
                self._finish()

        if self._acks == _ACKS_ALL or partition.leadership is None:
            partition.when_committed(result.last_offset + 1, committed)
        else:
            # The leader's disk is enough, and the followers may take their time.
            partition.when_flushed(lambda: committed(partition.error))

    def expire(self) -> None:
        """The time-out has passed."""
        self._tick = _NO_TICK
        for partition, results, place in self._waits:
            index, result = results[place]
            if result.error is ErrorCode.NONE and partition.log.high_watermark <= result.last_offset:
                results[place] = (index, refused(ErrorCode.REQUEST_TIMED_OUT))
        self._finish()

    def _finish(self) -> None:
        if self._tick != _NO_TICK:
            self._services.partitions.deadlines.remove(self, self._tick)
            self._tick = _NO_TICK
        if self._place is not None:
            if self._acks == _ACKS_NONE:
                self._place.complete([])
                self._without_reply()
            else:
                self._place.complete(self._pieces())

    def _pieces(self) -> list[Piece]:
        if self._version >= _LEADERS_FROM and any(
            result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER for _, results in self._outcome for _, result in results
        ):
            body = self._with_leaders()
        else:
            body = encode_outcome(self._outcome, self._version)
        return frame(self._correlation_id, body, flexible=self._version >= _FLEXIBLE_FROM)

    def _with_leaders(self) -> bytes:
        from raftlog.broker.api.leader_hints import addresses_of

        leaders: Leaders = {}
        by_id = self._version >= _IDS_FROM
        for key, results in self._outcome:
            for index, result in results:
                if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name, topic_id = ("", key) if by_id else (key.decode(), None)
                    leaders[key, index] = self._services.partitions.leader_of(name, topic_id, index)
        nodes = addresses_of(self._services, self._connection, [leader for leader, _ in leaders.values()])
        return _encode_with_messages(self._outcome, self._version, leaders, nodes)


def refused(error: ErrorCode, message: str | None = None) -> AppendResult:
    """A partition's result when nothing reached its log."""
    return AppendResult(error, -1, -1, -1, -1, message)


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
    length, position = _varint(request, position)
    position += max(length - 1, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(request, position)
    topic_count, position = _varint(request, position + 6)
    topics: Wanted = []
    entries = _admitted(topic_count)
    for _ in range(_plausible(topic_count - 1, request, position)):
        if version >= _IDS_FROM:
            key = bytes(request[position : position + 16])
            position += 16
        else:
            length, position = _varint(request, position)
            if length == 0:
                raise RemoteProtocolError(f"Produce v{version}: a topic without a name")
            key = bytes(request[position : position + length - 1])
            position += length - 1
        partition_count, position = _varint(request, position)
        entries = _admitted(entries + partition_count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(_plausible(partition_count - 1, request, position)):
            (index,) = _INT32.unpack_from(request, position)
            size, position = _varint(request, position + 4)
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


def _varint(request: memoryview, position: int) -> tuple[int, int]:
    byte = request[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = request[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
        if shift > 28:
            raise RemoteProtocolError("Produce: a length of more than five bytes")


def _skip_tags(request: memoryview, position: int) -> int:
    if request[position] == 0:
        return position + 1
    count, position = _varint(request, position)
    if count > TAGGED_FIELDS_MAX:
        raise RemoteProtocolError(f"Produce: {count} tagged fields")
    for _ in range(_plausible(count, request, position)):
        _, position = _varint(request, position)
        size, position = _varint(request, position)
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
        return _encode_with_messages(outcome, version, {}, [])
    flexible = version >= _FLEXIBLE_FROM
    body = bytearray(_count(len(outcome), flexible))
    for key, results in outcome:
        if version >= _IDS_FROM:
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
    if version >= _FLEXIBLE_FROM:
        return _DONE_FLEXIBLE.pack(*fields, result.log_start_offset, 1, 0, 0)
    if version == 8:
        return _DONE_V8.pack(*fields, result.log_start_offset, 0, -1)
    if version >= 5:
        return _DONE_V5.pack(*fields, result.log_start_offset)
    return _DONE_V3.pack(*fields)


def _count(count: int, flexible: bool) -> bytes:
    if not flexible:
        return _INT32.pack(count)
    count += 1
    out = bytearray()
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    out.append(count)
    return bytes(out)


def _encode_with_messages(outcome: Outcome, version: int, leaders: Leaders, nodes: list[NodeAddress]) -> bytes:
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
        if version >= _IDS_FROM:
            topics.append(TopicProduceResponse(topic_id=key, partition_responses=partitions))
        else:
            topics.append(TopicProduceResponse(name=key.decode(), partition_responses=partitions))
    endpoints = [NodeEndpoint(**node._asdict()) for node in nodes]
    return encode(ProduceResponse(responses=topics, node_endpoints=endpoints), version)
