"""Produce (key 0), v3 to v13; advertised from v0.

acks 0, 1 and all; idempotent producers (KIP-98); record errors and messages (KIP-467, v8); where the leader is now
(KIP-951, v10); topic ids (KIP-516, v13). v0 to v2 are advertised and refused, because old librdkafka looks at the
lowest version to decide whether it may compress (KAFKA-18659).

Decoded and encoded by hand: this is the path whose cost is counted in microseconds. A test holds both equal to
the compiled codec. Nothing here looks at a record: the log checks each batch's header and CRC.
"""

from __future__ import annotations

from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.api.leader_hints import addresses_of, leader_of
from raftlog.broker.api.produce_encoding import (
    FLEXIBLE_FROM,
    IDS_FROM,
    LEADERS_FROM,
    Leaders,
    Outcome,
    Wanted,
    encode_outcome,
    encode_with_messages,
    parse,
)
from raftlog.broker.api.produce_templates import ProduceTemplate, TemplateCache
from raftlog.broker.core.connection.reply import PendingReply, Piece, frame
from raftlog.broker.core.connection.transport import Fault
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.validation import MAX_RECORD_ERRORS, check_api_version, is_transactional, producer_of
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.core.log.verification import VerificationGuard
    from raftlog.broker.runtime.partition import Partition

_ACKS_ALL = -1
_ACKS_NONE = 0
_ACKS = (-1, 0, 1)
_NO_TICK = -1
# Read a dozen times in a request; an enum's attribute costs as much as a call.
_NONE = ErrorCode.NONE

Waits: TypeAlias = "list[tuple[Partition, list[tuple[int, AppendResult]], int]]"
"""What was appended, and is not safe enough yet to be acknowledged: the partition, and its result's place in a list."""

Terms: TypeAlias = "tuple[int, int, bytes | None]"
"""Of a request: acks, its version, the transactional id."""

Appended: TypeAlias = "tuple[ProduceTemplate | None, Outcome, Waits]"
"""What became of a request so far, and what it is like."""

UNVERIFIED = AppendResult.refused(ErrorCode.INVALID_TXN_STATE)


class Unverified(NamedTuple):
    """A batch that begins a transaction in its partition (KIP-890), and its result's place in a list."""

    partition: Partition
    results: list[tuple[int, AppendResult]]
    place: int
    records: memoryview


Begins: TypeAlias = "tuple[bytes, list[Unverified]]"
"""The transactional id, and what begins its transaction in a partition."""


def serve(services: Services, raw: RawRequest) -> None:
    """Append to each partition's log and answer as acks asks."""
    templates = services.produce_templates
    if templates is None:
        templates = services.produce_templates = TemplateCache()
    template: ProduceTemplate | None = None
    topics: Wanted
    try:
        known = templates.find(raw.frame, raw.offset, raw.version)
        if known is not None:
            template, index, records = known
            transactional_id, acks, timeout_ms = template.transactional_id, template.acks, template.timeout_ms
            topics = [(template.key, [(index, records)])]
        else:
            transactional_id, acks, timeout_ms, topics = parse(raw.frame, raw.offset, raw.version)
    except (StructError, IndexError) as error:
        raise RemoteProtocolError(f"Produce v{raw.version}: the request ends too early") from error
    outcome, waits, unverified = _append(services, (acks, raw.version, transactional_id), topics)
    if known is None and len(outcome) == 1 and _has_error(outcome) is None:
        templates.learn(raw.frame, raw.offset, raw.version, (transactional_id, acks, timeout_ms, topics))
    if unverified:
        assert transactional_id is not None
        _verify(services, raw, (acks, timeout_ms), (transactional_id, unverified), (template, outcome, waits))
    elif waits:
        DelayedProduce(services, raw, (acks, timeout_ms), (template, outcome, waits)).begin()
    elif acks == _ACKS_NONE:
        _without_response(services, raw, outcome)
    else:
        raw.connection.reply(_response(services, raw, template, outcome))


# ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────


def _append(services: Services, terms: Terms, topics: Wanted) -> tuple[Outcome, Waits, list[Unverified]]:
    """What became of each partition's records, which of them must wait, and which begin a transaction there."""
    acks, version, _ = terms
    partitions = services.partitions
    find = partitions.find_by_id if version >= IDS_FROM else partitions.find_by_name
    now_ms = services.clock.now_ms()
    # For the whole request: a hundred bytes of compressed batch can hold a thousand records that are refused.
    record_errors_left = MAX_RECORD_ERRORS
    outcome: Outcome = []
    waits: Waits = []
    unverified: list[Unverified] = []
    for key, wanted in topics:
        results: list[tuple[int, AppendResult]] = []
        outcome.append((key, results))
        for index, records in wanted:
            partition = find(key, index)
            result = append_to(partition, records, terms, now_ms)
            if result is UNVERIFIED:
                assert records is not None and not isinstance(partition, ErrorCode)
                unverified.append(Unverified(partition, results, len(results), records))
            elif result.record_errors:
                result = result._replace(record_errors=result.record_errors[:record_errors_left])
                record_errors_left -= len(result.record_errors)
            elif (
                result.error is _NONE
                and not isinstance(partition, ErrorCode)
                and partition.log.high_watermark <= result.last_offset
                and (acks == _ACKS_ALL or partition.flushing)
            ):
                waits.append((partition, results, len(results)))
            results.append((index, result))
    return outcome, waits, unverified


def append_to(
    partition: Partition | ErrorCode,
    records: memoryview | None,
    terms: Terms,
    now_ms: int,
    guard: VerificationGuard | None = None,
) -> AppendResult:
    """Append what one partition gets, if a client may; `partition` may be why there is none. UNVERIFIED: nothing is
    appended or refused yet; it begins a transaction, and needs a guard.
    """
    if isinstance(partition, ErrorCode):
        return AppendResult.refused(partition)
    acks, version, transactional_id = terms
    if records is not None and is_transactional(records) and guard is None:
        if transactional_id is None:
            return AppendResult.refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        producer_id, epoch, _ = producer_of(records)
        if producer_id >= 0 and not partition.has_open_transaction(producer_id, epoch):
            return UNVERIFIED
    if acks not in _ACKS:
        return AppendResult.refused(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.internal:
        return AppendResult.refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if acks == _ACKS_ALL and partition.isr_size < partition.min_isr:
        return AppendResult.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    if records is None:
        return AppendResult.refused(ErrorCode.INVALID_RECORD)
    refusal = check_api_version(records, version)
    if refusal is not None:
        return AppendResult.refused(refusal.error, refusal.message)
    return partition.append_from_client(records, now_ms, guard)


def _verify(services: Services, raw: RawRequest, terms: tuple[int, int], begins: Begins, appended: Appended) -> None:
    """Append what begins a transaction once the coordinator agrees (KIP-890), and answer then as ever.

    Until that is done nothing more that this client asks is looked at: its batches shall not pass each other.
    """
    # Imported here: a broker without transactions starts without it.
    from raftlog.broker.api.produce_verification import verify

    transactional_id, unverified = begins
    # What was received into is used again as soon as this request was looked at.
    batches = [(each.partition, memoryview(bytearray(each.records))) for each in unverified]
    raw.frame = memoryview(b"")
    connection, place = raw.connection, raw.connection.park()
    connection.hold()
    template, outcome, waits = appended
    acks = terms[0]

    def verified(guards: list[VerificationGuard | AppendResult]) -> None:
        now_ms = services.clock.now_ms()
        for each, (partition, records), guard in zip(unverified, batches, guards, strict=True):
            if isinstance(guard, AppendResult):
                result = guard
            else:
                current = partition if partition.error is _NONE else partition.error
                result = append_to(current, records, (acks, raw.version, transactional_id), now_ms, guard)
            each.results[each.place] = (each.results[each.place][0], result)
            if result.error is _NONE and _must_wait(partition, result, acks):
                waits.append((partition, each.results, each.place))
        if waits:
            DelayedProduce(services, raw, terms, (template, outcome, waits), place).begin()
        elif acks == _ACKS_NONE:
            place.complete([])
            _without_response(services, raw, outcome)
        else:
            place.complete(_response(services, raw, template, outcome))
        connection.release()

    verify(services, raw.version, transactional_id, batches, verified)


def _must_wait(partition: Partition, result: AppendResult, acks: int) -> bool:
    return partition.log.high_watermark <= result.last_offset and (acks == _ACKS_ALL or partition.flushing)


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────


class DelayedProduce:
    """A produce request that is answered when all that it appended is committed, or its time-out ends the waiting."""

    __slots__ = ("_acks", "_missing", "_outcome", "_place", "_raw", "_services", "_template", "_tick", "_waits")

    def __init__(
        self,
        services: Services,
        raw: RawRequest,
        terms: tuple[int, int],
        appended: Appended,
        place: PendingReply | None = None,
    ) -> None:
        """`place`: where the response goes, if that is known already."""
        self._services = services
        self._raw = raw
        raw.frame = memoryview(b"")  # it is valid no longer, and would keep a large request's memory
        self._acks, timeout_ms = terms
        self._template, self._outcome, self._waits = appended
        self._missing = len(self._waits)
        self._place = place or raw.connection.park()
        self._tick = _NO_TICK
        if timeout_ms > 0:
            self._tick = services.timers.add_after(self, timeout_ms / 1000)

    def begin(self) -> None:
        """Wait for each partition."""
        for partition, results, place in self._waits:
            self._wait_for(partition, results, place)

    def _wait_for(self, partition: Partition, results: list[tuple[int, AppendResult]], place: int) -> None:
        index, result = results[place]

        def committed(error: ErrorCode) -> None:
            if error is not _NONE:
                results[place] = (index, AppendResult.refused(error))
            self._missing -= 1
            if self._missing == 0:
                self._finish()

        # With acks=1 the leader's disk is enough, and the followers may take their time.
        is_flush_enough = self._acks != _ACKS_ALL and partition.leadership is not None
        mark = Mark.FLUSHED if is_flush_enough else Mark.HIGH_WATERMARK
        partition.wait(mark, result.last_offset + 1, committed)

    def expire(self) -> None:
        """The time-out has passed."""
        self._tick = _NO_TICK
        for partition, results, place in self._waits:
            index, result = results[place]
            if result.error is _NONE and partition.log.high_watermark <= result.last_offset:
                results[place] = (index, AppendResult.refused(ErrorCode.REQUEST_TIMED_OUT))
        self._finish()

    def _finish(self) -> None:
        if self._tick != _NO_TICK:
            self._services.timers.remove(self, self._tick)
            self._tick = _NO_TICK
        if self._acks == _ACKS_NONE:
            self._place.complete([])
            _without_response(self._services, self._raw, self._outcome)
        else:
            self._place.complete(_response(self._services, self._raw, self._template, self._outcome))


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────


def _has_error(outcome: Outcome) -> tuple[int, AppendResult] | None:
    """The first partition, by its number, whose records were refused, and why."""
    for _, results in outcome:
        for index, result in results:
            if result.error is not _NONE:
                return index, result
    return None


def _without_response(services: Services, raw: RawRequest, outcome: Outcome) -> None:
    """acks=0 has no response to carry an error, so an error ends the connection, as the client expects."""
    failed = _has_error(outcome)
    if failed is not None:
        index, result = failed
        services.counts.count_error(ApiKey.PRODUCE, result.error)
        reason = f"acks=0 leaves no other way to tell of {result.error.name} in partition {index}"
        raw.connection.close(reason, fault=Fault.THE_PEERS)


def _response(services: Services, raw: RawRequest, template: ProduceTemplate | None, outcome: Outcome) -> list[Piece]:
    if template is not None:
        index, result = outcome[0][1][0]
        if result.error is _NONE:
            return [template.response(raw.correlation_id, index, result)]
    version = raw.version
    errors = [result.error for _, results in outcome for _, result in results if result.error is not _NONE]
    for error in errors:
        services.counts.count_error(ApiKey.PRODUCE, error)
    if version >= LEADERS_FROM and ErrorCode.NOT_LEADER_OR_FOLLOWER in errors:
        body = _with_leaders(services, raw, outcome)
    else:
        body = encode_outcome(outcome, version)
    return frame(raw.correlation_id, body, flexible=version >= FLEXIBLE_FROM)


def _with_leaders(services: Services, raw: RawRequest, outcome: Outcome) -> bytes:
    leaders: Leaders = {}
    image = services.controller.image
    by_id = raw.version >= IDS_FROM
    for key, results in outcome:
        for index, result in results:
            if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                name, topic_id = ("", key) if by_id else (key.decode(), None)
                leaders[key, index] = leader_of(image, name, topic_id, index)
    nodes = addresses_of(image, raw.connection, [leader for leader, _ in leaders.values()])
    return encode_with_messages(outcome, raw.version, leaders, nodes)
