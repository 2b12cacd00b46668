"""Which transactions have taken too long, and which transactional ids nobody has used for long."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.config import TransactionConfig
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.end import abort_ongoing
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import HAS_ENDED, TransactionMetadata, TransactionState
from raftlog.wire.ids import ProducerId


def has_timed_out(known: TransactionMetadata | None, now: Now) -> bool:
    """Whether a transaction is open for longer than its producer wanted."""
    return (
        known is not None
        and known.state is TransactionState.ONGOING
        and known.start_ms + known.timeout_ms < now.wall_ms
    )


def abort_timed_out(
    shard: TransactionCoordinatorShard,
    transactional_id: str,
    now: Now,
    *,
    transaction_version: int,
    new_producer_id: ProducerId | None,
) -> Decision[bool] | Undecided:
    """Whether a transaction has taken too long; then it is aborted. `transaction_version` is the cluster's."""
    known = shard.transactions.get(transactional_id)
    if known is None or not has_timed_out(known, now):
        return Decision(False, [])
    record = abort_ongoing(
        transactional_id, known, now, transaction_version=transaction_version, new_producer_id=new_producer_id
    )
    return record if isinstance(record, Undecided) else Decision(True, [record])


def expire_id(
    config: TransactionConfig, shard: TransactionCoordinatorShard, transactional_id: str, now: Now
) -> list[TransactionRecord]:
    """The record that removes an id that was not used for transactional.id.expiration.ms; nothing for any other."""
    known = shard.transactions.get(transactional_id)
    if known is None or known.state not in HAS_ENDED or known.last_update_ms > now.wall_ms - config.id_expiration_ms:
        return []
    return [TransactionRecord(transactional_id, None)]
