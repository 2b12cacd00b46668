"""InitProducerId with a transactional id: who asks gets an epoch that fences everybody who had the id before.

KIP-98; KIP-360 for a producer that names the id and epoch that it has; KIP-890.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.config import TransactionConfig
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.end import abort_ongoing
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.refusal import refused_producer
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import (
    EPOCH_EXHAUSTED,
    IS_ENDING,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId


class InitializedProducer(NamedTuple):
    """What a producer goes on with, or why not."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class InitProducerId(NamedTuple):
    """The request; `expected` is what the producer believes to have, None when it has just begun."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None


def check_initialize(config: TransactionConfig, request: InitProducerId) -> ErrorCode:
    """What is wrong with the request itself, whoever coordinates the id."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialize(
    shard: TransactionCoordinatorShard,
    request: InitProducerId,
    now: Now,
    *,
    transaction_version: int,
    new_producer_id: ProducerId | None = None,
) -> Decision[InitializedProducer] | Undecided:
    """Decide an InitProducerId. A transaction that is under way is aborted first, with a raised epoch; the client is
    told to come again. `transaction_version` is the cluster's.
    """
    known = shard.transactions.get(request.transactional_id)
    expected = request.expected
    if known is None:
        if new_producer_id is None:
            return Undecided.NEEDS_PRODUCER_ID
        return _initialized(request, _first(request, new_producer_id, now))
    if expected is not None and not _is_of(expected, known) and not known.will_be(expected):
        return _fenced(request.transactional_id, known, expected)
    if known.state in IS_ENDING:
        return _refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        if expected is not None and expected != (known.producer_id, known.producer_epoch):
            # Whoever began the transaction knows its identity. Kafka aborts it first, and then fences who asked.
            return _fenced(request.transactional_id, known, expected)
        aborted = abort_ongoing(
            request.transactional_id,
            known,
            now,
            transaction_version=transaction_version,
            new_producer_id=new_producer_id,
        )
        if isinstance(aborted, Undecided):
            return aborted
        return Decision(InitializedProducer(ErrorCode.CONCURRENT_TRANSACTIONS), [aborted])
    if known.is_exhausted and (expected is None or expected.epoch == known.producer_epoch):
        if new_producer_id is None:
            return Undecided.NEEDS_PRODUCER_ID
        return _initialized(request, _rotated(request, known, new_producer_id, now))
    if expected is not None and expected.epoch not in (known.producer_epoch, known.last_producer_epoch):
        return _fenced(request.transactional_id, known, expected)
    return _initialized(request, _raised(request, known, now))


def _is_of(expected: ProducerIdentity, known: TransactionMetadata) -> bool:
    """Whether this is the producer that has the id, or had it until the epochs ran out and did not hear the answer."""
    return expected.producer_id == known.producer_id or (
        expected.producer_id == known.previous_producer_id and expected.epoch >= EPOCH_EXHAUSTED
    )


def _first(request: InitProducerId, producer_id: ProducerId, now: Now) -> TransactionMetadata:
    return TransactionMetadata(
        state=TransactionState.EMPTY,
        producer_id=producer_id,
        previous_producer_id=producer_id,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=ProducerEpoch(0),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=request.timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIME,
        last_update_ms=now.wall_ms,
        client_version=0,
    )


def _rotated(
    request: InitProducerId, known: TransactionMetadata, producer_id: ProducerId, now: Now
) -> TransactionMetadata:
    return _anew(request, known, now)._replace(
        producer_id=producer_id,
        previous_producer_id=known.producer_id,
        producer_epoch=ProducerEpoch(0),
        last_producer_epoch=NO_PRODUCER_EPOCH if request.expected is None else known.producer_epoch,
    )


def _raised(request: InitProducerId, known: TransactionMetadata, now: Now) -> TransactionMetadata:
    """The same id with the next epoch, or with the same one when it is a repetition."""
    expected = request.expected
    if expected is None or expected.epoch == known.producer_epoch:
        return _anew(request, known, now)._replace(
            previous_producer_id=known.producer_id,
            producer_epoch=ProducerEpoch(known.producer_epoch + 1),
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else known.producer_epoch,
        )
    # The previous id stays, so that the repetition can be repeated.
    return _anew(request, known, now)


def _anew(request: InitProducerId, known: TransactionMetadata, now: Now) -> TransactionMetadata:
    return known._replace(
        state=TransactionState.EMPTY,
        timeout_ms=request.timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIME,
        last_update_ms=now.wall_ms,
    )


def _initialized(request: InitProducerId, value: TransactionMetadata) -> Decision[InitializedProducer]:
    answer = InitializedProducer(ErrorCode.NONE, value.producer_id, value.producer_epoch)
    return Decision(answer, [TransactionRecord(request.transactional_id, value)])


def _refused(error: ErrorCode) -> Decision[InitializedProducer]:
    return Decision(InitializedProducer(error), [])


def _fenced(
    transactional_id: str, known: TransactionMetadata, expected: ProducerIdentity
) -> Decision[InitializedProducer]:
    return refused_producer(InitializedProducer(ErrorCode.PRODUCER_FENCED), transactional_id, known, expected)
