"""Produce (key 0), v3 to v13; advertised from v0.

acks 0, 1 and all; idempotent producers (KIP-98); record errors and messages (KIP-467, v8); where the leader is now
(KIP-951, v10); topic ids (KIP-516, v13). v0 to v2 are advertised and refused, because old librdkafka looks at the
lowest version to decide whether it may compress (KAFKA-18659).

Decoded and encoded by hand: this is the path whose cost is counted in microseconds. A test holds both equal to
the compiled codec. Nothing here looks at a record: the log checks each batch's header and CRC.
"""

from __future__ import annotations

import logging
from struct import error as StructError
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.api.produce_encoding import (
    FLEXIBLE_FROM,
    IDS_FROM,
    LEADERS_FROM,
    Known,
    Leaders,
    OneBatch,
    Outcome,
    encode_outcome,
    encode_with_messages,
    parse_classic,
    parse_flexible,
)
from raftlog.broker.core.connection.reply import Piece, frame
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.validation import MAX_RECORD_ERRORS, check_api_version, is_transactional
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.errors import ErrorCode, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.core.connection.reply import PendingReply
    from raftlog.broker.runtime.partition import Partition

log = logging.getLogger("raftlog.produce")

_ACKS_ALL = -1
_ACKS_NONE = 0
_ACKS = (-1, 0, 1)
_NO_TICK = -1
# Read a dozen times in a request; an enum's attribute costs as much as a call.
_NONE = ErrorCode.NONE


def serve(services: Services, raw: RawRequest) -> None:
    """Append to each partition's log and answer as acks asks."""
    version = raw.version
    known = raw.connection.produce_templates
    if not isinstance(known, Known):
        known = raw.connection.produce_templates = Known()
    try:
        again = known.find(raw.frame, raw.offset, version)
        if again is None:
            parse = parse_flexible if version >= FLEXIBLE_FROM else parse_classic
            acks, timeout_ms, topics = parse(raw.frame, raw.offset, version)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError(f"Produce v{version}: the request ends too early") from error
    if again is not None:
        _serve_again(services, raw, *again)
        return
    known.learn(raw.frame, raw.offset, version, (acks, timeout_ms, topics))
    produced = Produced(services, raw, acks, timeout_ms)
    for key, partitions in topics:
        produced.append_topic(key, partitions)
    produced.answer()


def _serve_again(services: Services, raw: RawRequest, kind: OneBatch, index: int, records: memoryview) -> None:
    """Serve a request of a known kind; the usual outcome is answered without all that others need."""
    find = services.partitions.find_by_id if kind.by_id else services.partitions.find_by_name
    partition = find(kind.key, index)
    result = append_to(partition, records, kind.acks, raw.version, services.clock.now_ms())
    if result.error is _NONE and kind.acks != _ACKS_NONE and not must_wait(partition, result, kind.acks):
        raw.connection.reply([kind.reply(raw.correlation_id, index, result)])
        return
    produced = Produced(services, raw, kind.acks, kind.timeout_ms)
    produced.take(kind, index, partition, result)
    produced.answer()


def append_to(
    partition: Partition | ErrorCode, records: memoryview | None, acks: int, version: int, now_ms: int
) -> AppendResult:
    """Append what one partition gets, if a client may; `partition` may be why there is none."""
    if isinstance(partition, ErrorCode):
        return refused(partition)
    if acks not in _ACKS:
        return refused(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.internal:
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if acks == _ACKS_ALL and partition.isr_size < partition.min_isr:
        return refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    if records is None:
        return refused(ErrorCode.INVALID_RECORD)
    if is_transactional(records):
        # There is no coordinator that could ever end the transaction, and its readers would wait for ever.
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refusal = check_api_version(records, version)
    if refusal is not None:
        return refused(refusal.error, refusal.message)
    return partition.append_from_client(records, now_ms)


def must_wait(partition: Partition | ErrorCode, result: AppendResult, acks: int) -> bool:
    """Whether it was appended, and is not safe enough yet to be acknowledged."""
    if isinstance(partition, ErrorCode) or result.error is not _NONE:
        return False
    return (acks == _ACKS_ALL or partition.flushing) and partition.log.high_watermark <= result.last_offset


class Produced:
    """One produce request: what was appended, and for which partitions the answer still waits."""

    __slots__ = (
        "_acks",
        "_connection",
        "_correlation_id",
        "_kind",
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
        self._kind: OneBatch | None = None
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
        self._outcome.append((key, []))
        find = manager.find_by_id if self._version >= IDS_FROM else manager.find_by_name
        for index, records in partitions:
            partition = find(key, index)
            self._take(index, partition, append_to(partition, records, self._acks, self._version, self._now_ms))

    def take(self, kind: OneBatch, index: int, partition: Partition | ErrorCode, result: AppendResult) -> None:
        """Take the outcome of a request of a known kind."""
        self._kind = kind
        self._outcome.append((kind.key, []))
        self._take(index, partition, result)

    def _take(self, index: int, partition: Partition | ErrorCode, result: AppendResult) -> None:
        results = self._outcome[-1][1]
        if result.record_errors:
            result = result._replace(record_errors=result.record_errors[: self._record_errors_left])
            self._record_errors_left -= len(result.record_errors)
        if not isinstance(partition, ErrorCode) and must_wait(partition, result, self._acks):
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
                if result.error is not _NONE:
                    reason = f"acks=0 leaves no other way to tell of {result.error.name} in partition {index}"
                    self._connection.close(reason, fault=Fault.THE_PEERS)
                    return

    def _wait(self) -> None:
        self._missing = len(self._waits)
        self._place = self._connection.park()
        if self._timeout_ms > 0:
            due = self._services.loop.time() + self._timeout_ms / 1000
            self._tick = self._services.timers.add(self, due)
        for partition, results, place in self._waits:
            self._wait_for(partition, results, place)

    def _wait_for(self, partition: Partition, results: list[tuple[int, AppendResult]], place: int) -> None:
        index, result = results[place]

        def committed(error: ErrorCode) -> None:
            if error is not _NONE:
                results[place] = (index, refused(error))
            self._missing -= 1
            if self._missing == 0:
                self._finish()

        if self._acks == _ACKS_ALL or partition.leadership is None:
            partition.wait(Mark.HIGH_WATERMARK, result.last_offset + 1, committed)
        else:
            # The leader's disk is enough, and the followers may take their time.
            partition.wait(Mark.FLUSHED, result.last_offset + 1, committed)

    def expire(self) -> None:
        """The time-out has passed."""
        self._tick = _NO_TICK
        for partition, results, place in self._waits:
            index, result = results[place]
            if result.error is _NONE and partition.log.high_watermark <= result.last_offset:
                results[place] = (index, refused(ErrorCode.REQUEST_TIMED_OUT))
        self._finish()

    def _finish(self) -> None:
        if self._tick != _NO_TICK:
            self._services.timers.remove(self, self._tick)
            self._tick = _NO_TICK
        if self._place is not None:
            if self._acks == _ACKS_NONE:
                self._place.complete([])
                self._without_reply()
            else:
                self._place.complete(self._pieces())

    def _pieces(self) -> list[Piece]:
        if self._kind is not None:
            index, result = self._outcome[0][1][0]
            if result.error is _NONE:
                return [self._kind.reply(self._correlation_id, index, result)]
        if self._version >= LEADERS_FROM and any(
            result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER for _, results in self._outcome for _, result in results
        ):
            body = self._with_leaders()
        else:
            body = encode_outcome(self._outcome, self._version)
        return frame(self._correlation_id, body, flexible=self._version >= FLEXIBLE_FROM)

    def _with_leaders(self) -> bytes:
        from raftlog.broker.api.leader_hints import addresses_of

        leaders: Leaders = {}
        by_id = self._version >= IDS_FROM
        for key, results in self._outcome:
            for index, result in results:
                if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    name, topic_id = ("", key) if by_id else (key.decode(), None)
                    leaders[key, index] = self._services.partitions.leader_of(name, topic_id, index)
        nodes = addresses_of(self._services, self._connection, [leader for leader, _ in leaders.values()])
        return encode_with_messages(self._outcome, self._version, leaders, nodes)


def refused(error: ErrorCode, message: str | None = None) -> AppendResult:
    """A partition's result when nothing reached its log."""
    return AppendResult.refused(error, message)
