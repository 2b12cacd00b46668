"""AddPartitionsToTxn: a transaction begins, or takes in more partitions; and whether it has them, for brokers.

KIP-98; KIP-890 for the question of a partition's leader, and for leaders that ask for their producers. AddOffsetsToTxn
takes in the partition of `__consumer_offsets` that keeps a group.
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.decision import Decision
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.refusal import refused_producer
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import (
    IS_ENDING,
    ProducerIdentity,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode


def add_partitions(
    shard: TransactionCoordinatorShard,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    now: Now,
    *,
    client_version: int,
) -> Decision[ErrorCode]:
    """Decide an AddPartitionsToTxn that adds. `client_version`: see TransactionMetadata."""
    known = _find(shard, transactional_id, producer)
    if not isinstance(known, TransactionMetadata):
        return known
    added = known.partitions.union(partitions)
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and len(added) == len(known.partitions):
        return Decision(ErrorCode.NONE, [])
    after = known._replace(
        state=TransactionState.ONGOING,
        previous_producer_id=known.producer_id,
        partitions=added,
        start_ms=known.start_ms if is_ongoing else now.wall_ms,
        last_update_ms=now.wall_ms,
        client_version=client_version,
    )
    return Decision(ErrorCode.NONE, [TransactionRecord(transactional_id, after)])


def verify_partitions(
    shard: TransactionCoordinatorShard,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
) -> Decision[dict[TopicPartition, ErrorCode]]:
    """Decide whether the producer's transaction has the partitions, for a leader that is asked to append to it."""
    known = _find(shard, transactional_id, producer)
    if not isinstance(known, TransactionMetadata):
        return Decision(dict.fromkeys(partitions, known.response), known.records)
    errors = {
        partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }
    return Decision(errors, [])


def _find(
    shard: TransactionCoordinatorShard, transactional_id: str, producer: ProducerIdentity
) -> TransactionMetadata | Decision[ErrorCode]:
    """What is known of the producer's transaction, or why it is refused."""
    known = shard.transactions.get(transactional_id)
    if not transactional_id:
        return Decision(ErrorCode.INVALID_REQUEST, [])
    if known is not None and known.will_be(producer):
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, [])
    if known is None or known.producer_id != producer.producer_id:
        return refused_producer(ErrorCode.INVALID_PRODUCER_ID_MAPPING, transactional_id, known, producer)
    if known.producer_epoch != producer.epoch:
        return refused_producer(ErrorCode.PRODUCER_FENCED, transactional_id, known, producer)
    return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, []) if known.state in IS_ENDING else known
