"""Produce (key 0), v3 to v13; advertised from v0.

acks 0, 1 and all; idempotent producers (KIP-98); record errors and messages (KIP-467, v8); where the leader is now
(KIP-951, v10); topic ids (KIP-516, v13). v0 to v2 are advertised and refused, because old librdkafka looks at the
lowest version to decide whether it may compress (KAFKA-18659).

Decoded and encoded by hand: this is the path whose cost is counted in microseconds. A test holds both equal to
the compiled codec. Nothing here looks at a record: the log checks each batch's header and CRC.
"""

from __future__ import annotations

from functools import partial
from struct import error as StructError
from typing import TYPE_CHECKING, TypeAlias

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.api.leader_hints import addresses_of, leader_of
from raftlog.broker.api.produce_appending import ACKS_ALL, UNVERIFIED, Postponed, Terms, Waits, append_to, must_wait
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
from raftlog.broker.core.log.refused_firsts import REMEMBERED_MS
from raftlog.broker.core.log.results import TAKES_LONG, AppendResult
from raftlog.broker.core.log.validation import MAX_RECORD_ERRORS
from raftlog.broker.runtime.delayed_operation import Mark, OffsetWait
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode, RemoteProtocolError

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition import Partition

_ACKS_NONE = 0
_NO_TICK = -1
# Read a dozen times in a request; an enum's attribute costs as much as a call.
_NONE = ErrorCode.NONE

Appended: TypeAlias = "tuple[ProduceTemplate | None, Outcome, Waits]"
"""What became of a request so far, and what it is like."""


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
    terms = acks, raw.version, transactional_id
    outcome, waits, postponed = _append(services, terms, topics)
    if known is None and len(outcome) == 1 and _has_error(outcome) is None:
        templates.learn(raw.frame, raw.offset, raw.version, (transactional_id, acks, timeout_ms, topics))
    if postponed:
        # Imported here: most brokers never need it.
        from raftlog.broker.api.produce_postponed import PostponedProduce

        answer = partial(_answer, services, raw, (acks, timeout_ms), (template, outcome, waits))
        PostponedProduce(services, raw, terms, waits, answer).begin(postponed)
    elif waits:
        DelayedProduce(services, raw, (acks, timeout_ms), (template, outcome, waits)).begin()
    elif acks == _ACKS_NONE:
        _without_response(services, raw, outcome)
    else:
        raw.connection.reply(_response(services, raw, template, outcome))


# ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────


def _append(services: Services, terms: Terms, topics: Wanted) -> tuple[Outcome, Waits, list[Postponed]]:
    """What became of each partition's records, which of them must wait, and which are not appended yet."""
    acks, version, _ = terms
    partitions, refused_firsts = services.partitions, services.refused_firsts
    find = partitions.find_by_id if version >= IDS_FROM else partitions.find_by_name
    now_ms = services.clock.now_ms()
    # For the whole request: a hundred bytes of compressed batch can hold a thousand records that are refused.
    record_errors_left = MAX_RECORD_ERRORS
    outcome: Outcome = []
    waits: Waits = []
    postponed: list[Postponed] = []
    for key, wanted in topics:
        results: list[tuple[int, AppendResult]] = []
        outcome.append((key, results))
        for index, records in wanted:
            partition = find(key, index)
            if refused_firsts and _comes_too_early(services, partition, (key, index, records), now_ms):
                partition = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            result = append_to(partition, records, terms, now_ms)
            if result is UNVERIFIED or result is TAKES_LONG:
                assert records is not None and not isinstance(partition, ErrorCode)
                begins = result is UNVERIFIED
                postponed.append(Postponed(partition, results, len(results), records, key, begins=begins))
            elif result.record_errors:
                result = result._replace(record_errors=result.record_errors[:record_errors_left])
                record_errors_left -= len(result.record_errors)
            elif result.error is _NONE and not isinstance(partition, ErrorCode) and must_wait(partition, result, acks):
                waits.append((partition, results, len(results)))
            elif result.error is not _NONE:
                refused_firsts.note(key, index, records, result.error, now_ms)
            results.append((index, result))
    return outcome, waits, postponed


def _comes_too_early(
    services: Services, partition: Partition | ErrorCode, wanted: tuple[bytes, int, memoryview | None], now_ms: int
) -> bool:
    since_ms = now_ms - min(REMEMBERED_MS, services.logs.settings.producer_expiration_ms)
    return not isinstance(partition, ErrorCode) and services.refused_firsts.comes_before(
        *wanted, partition.knows_producer, since_ms
    )


def _answer(
    services: Services, raw: RawRequest, terms: tuple[int, int], appended: Appended, place: PendingReply
) -> None:
    """Answer in its place, once what had to be postponed is appended, too."""
    _, _, waits = appended
    if waits:
        DelayedProduce(services, raw, terms, appended, place).begin()
    else:
        _complete(services, raw, terms[0], appended, place)


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────


class DelayedProduce:
    """A produce request that is answered when all that it appended is committed, or its time-out ends the waiting."""

    __slots__ = ("_acks", "_appended", "_missing", "_place", "_raw", "_services", "_tick", "_waits", "_watched")

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
        self._appended = appended
        self._waits = appended[2]
        self._missing = len(self._waits)
        self._place = place or raw.connection.reserve_place()
        self._watched: list[tuple[Partition, Mark, OffsetWait]] = []
        self._tick = _NO_TICK
        # Who gives followers no time is told at once, as by Kafka; a flush is waited for, which Kafka does in any case.
        if timeout_ms > 0 or (self._acks == ACKS_ALL and any(p.leadership is not None for p, _, _ in self._waits)):
            self._tick = services.timers.add_after(self, max(timeout_ms, 0) / 1000)

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
        is_flush_enough = self._acks != ACKS_ALL and partition.leadership is not None
        mark = Mark.FLUSHED if is_flush_enough else Mark.HIGH_WATERMARK
        self._watched.append((partition, mark, partition.wait(mark, result.last_offset + 1, committed)))

    def expire(self) -> None:
        """The time-out has passed."""
        self._tick = _NO_TICK
        # What comes later is too late.
        for partition, mark, operation in self._watched:
            partition.unwatch(mark, operation)
        for partition, results, place in self._waits:
            index, result = results[place]
            if result.error is _NONE and partition.log.high_watermark <= result.last_offset:
                results[place] = (index, AppendResult.refused(ErrorCode.REQUEST_TIMED_OUT))
        self._finish()

    def _finish(self) -> None:
        if self._tick != _NO_TICK:
            self._services.timers.remove(self, self._tick)
            self._tick = _NO_TICK
        _complete(self._services, self._raw, self._acks, self._appended, self._place)


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────


def _complete(services: Services, raw: RawRequest, acks: int, appended: Appended, place: PendingReply) -> None:
    """Fill the place of the response; with acks=0 nothing comes there."""
    template, outcome, _ = appended
    if acks == _ACKS_NONE:
        place.complete([])
        _without_response(services, raw, outcome)
    else:
        place.complete(_response(services, raw, template, outcome))


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
        raw.connection.fail(RemoteProtocolError(reason))


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
