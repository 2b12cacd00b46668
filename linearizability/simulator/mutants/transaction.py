"""Faults put back on purpose into transactions: their coordinator, the logs they are in, what readers get of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.log import verification
from raftlog.broker.core.log.producers import ProducerEntry, ProducerStates, Verdict
from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.core.log.verification import NOT_REQUIRED, VerificationGuard
from raftlog.broker.core.transaction import end, expiry, initialize
from raftlog.broker.core.transaction.markers import EndingTransaction
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import IS_ENDING, TransactionState
from raftlog.broker.runtime import transaction_host
from raftlog.broker.runtime.coordinator_host import CoordinatorHost
from raftlog.broker.runtime.transaction_markers import TransactionMarkers
from raftlog.broker.runtime.transaction_verifier import ClientAbility, TransactionVerifier
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.mutants.mutants import Mutant, patch
from raftlog.wire.errors import ErrorCode


def last_stable_offset_off_by_one() -> AbstractContextManager[None]:
    """The last stable offset is taken for one that may be read."""

    def last_stable_offset(self: ProducerStates, high_watermark: Any) -> Any:
        return min(real(self, high_watermark) + 1, high_watermark)

    real = ProducerStates.last_stable_offset
    return patch(ProducerStates, "last_stable_offset", last_stable_offset)


def aborted_is_read() -> AbstractContextManager[None]:
    """Readers are not told which transactions were aborted."""

    def none(self: PartitionLog, *_: object) -> list[Any]:
        return []

    return patch(PartitionLog, "aborted_transactions", none)


@contextmanager
def end_without_epoch_bump() -> Iterator[None]:
    """EndTxn leaves the producer its epoch: one that comes late ends the next transaction (KAFKA-17754)."""

    def raising(known: Any, committed: bool, now: Any, next_producer_id: Any) -> Any:
        return end._prepared(known, committed, now)._replace(client_version=0, next_producer_id=next_producer_id)

    def outcome(request: Any, known: Any) -> Any:
        found = real_sender(request, known)
        return end.Sender.CURRENT if found is end.Sender.REPEATS else found

    real_sender = end._sender
    outcomes = {
        (state, sender, committed): end._OUTCOMES_BEFORE_2[state, committed]
        for state, sender, committed in end._OUTCOMES
    }
    with (
        patch(end, "_end_raising_epoch", raising),
        patch(end, "_sender", outcome),
        patch(end, "_OUTCOMES", outcomes),
    ):
        yield


def initialize_without_fencing() -> AbstractContextManager[None]:
    """InitProducerId gives a second instance the epoch of the first."""

    def raised(request: Any, known: Any, now: Any) -> Any:
        return initialize._anew(request, known, now)

    return patch(initialize, "_raised", raised)


def coordinator_forgets_transactions() -> AbstractContextManager[None]:
    """A new coordinator takes a transaction that is under way for one that has not begun."""

    def load(self: TransactionCoordinatorShard, record: TransactionRecord) -> None:
        name, value = record
        if value is not None and value.state is TransactionState.ONGOING:
            record = TransactionRecord(name, value._replace(state=TransactionState.EMPTY, partitions=frozenset()))
        real(self, record)

    real = TransactionCoordinatorShard.load
    return patch(TransactionCoordinatorShard, "load", load)


def coordinator_forgets_to_end() -> AbstractContextManager[None]:
    """A new coordinator does not go on with the markers of what was decided."""

    def load(self: TransactionCoordinatorShard, record: TransactionRecord) -> None:
        name, value = record
        if value is not None and value.state in IS_ENDING:
            record = TransactionRecord(name, end._completed(value, Now(value.last_update_ms, 0)))
        real(self, record)

    real = TransactionCoordinatorShard.load
    return patch(TransactionCoordinatorShard, "load", load)


def decided_before_committed() -> AbstractContextManager[None]:
    """What a transaction is to come to is told, and marked, as soon as its coordinator has appended it."""

    def on_committed(self: CoordinatorHost[Any], callback: Callable[[ErrorCode], None]) -> None:
        callback(ErrorCode.NONE)

    return patch(CoordinatorHost, "on_committed", on_committed)


def completed_before_marked() -> AbstractContextManager[None]:
    """A coordinator completes a transaction as soon as its markers are on their way."""

    def begin(self: TransactionMarkers, transaction: EndingTransaction) -> None:
        real(self, transaction)
        self._written(transaction)

    real = TransactionMarkers.begin
    return patch(TransactionMarkers, "begin", begin)


def batches_not_verified() -> AbstractContextManager[None]:
    """Whether a partition belongs to the transaction is not asked for producers that have to say so themselves."""

    def verify(self: TransactionVerifier, transaction: Any, begin: Any, ability: Any, verified: Any) -> None:
        if ability is ClientAbility.ADDS_PARTITIONS:
            real(self, transaction, begin, ability, verified)
        else:
            verified(begin())

    real = TransactionVerifier.verify_patiently
    return patch(TransactionVerifier, "verify_patiently", verify)


def guard_outlives_its_transaction() -> AbstractContextManager[None]:
    """A batch that was being verified when its transaction ended is taken: its guard is still good."""
    guard = VerificationGuard()
    return patch(verification, "VerificationGuard", lambda: guard)


def ids_expire_in_use() -> AbstractContextManager[None]:
    """An id is forgotten though it has a transaction open."""
    return patch(expiry, "HAS_ENDED", frozenset(TransactionState))


def ids_expire_too_early() -> AbstractContextManager[None]:
    """Ids are forgotten after half the time."""

    def expire(config: Any, shard: Any, transactional_id: str, now: Now) -> Any:
        return real(config, shard, transactional_id, now._replace(wall_ms=now.wall_ms + config.id_expiration_ms // 2))

    real = expiry.expire_id
    return patch(transaction_host, "expire_id", expire)


def expired_id_is_forgotten_by_the_leader_alone() -> AbstractContextManager[None]:
    """An id that expires is gone from the coordinator's memory, and not from its log."""

    def expire(config: Any, shard: Any, transactional_id: str, now: Now) -> Any:
        for record in real(config, shard, transactional_id, now):
            shard.replay(record)
        return []

    real = expiry.expire_id
    return patch(transaction_host, "expire_id", expire)


def _forgetting(is_idle: Callable[[ProducerEntry, int, int], bool]) -> AbstractContextManager[None]:
    def expire(self: ProducerStates, now_ms: int, expiration_ms: int) -> Any:
        for entry in [entry for entry in self.entries.values() if is_idle(entry, now_ms, expiration_ms)]:
            self.open_transactions.pop(entry.transaction_start, None)
            del self.entries[entry.producer_id]
        return []

    return patch(ProducerStates, "expire", expire)


def producers_expire_in_transactions() -> AbstractContextManager[None]:
    """A partition forgets a producer that has a transaction open there for long."""
    return _forgetting(lambda entry, now_ms, expiration_ms: now_ms - entry.last_timestamp >= expiration_ms)


def producers_expire_too_early() -> AbstractContextManager[None]:
    """A partition forgets a producer within a second."""
    return _forgetting(lambda entry, now_ms, _: entry.transaction_start < 0 and now_ms - entry.last_timestamp >= 1000)


def forgotten_producers_begin_anew() -> AbstractContextManager[None]:
    """A producer of which a partition knows nothing has to begin with sequence 0, as before KIP-360."""

    def check(self: ProducerStates, header: Any, origin: Any, guard: Any = NOT_REQUIRED) -> Any:
        if origin is AppendOrigin.CLIENT and header.producer_id not in self.entries and header.base_sequence > 0:
            return Verdict(ErrorCode.UNKNOWN_PRODUCER_ID, "nothing is known of this producer")
        return real(self, header, origin, guard)

    real = ProducerStates.check
    return patch(ProducerStates, "check", check)


_ALL: Sequence[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = (
    ("lso-off-by-one", "transfers", last_stable_offset_off_by_one),
    ("aborted-is-read", "transfers", aborted_is_read),
    ("end-without-epoch-bump", "transfers", end_without_epoch_bump),
    ("init-without-fencing", "transfers", initialize_without_fencing),
    ("coordinator-forgets", "transfers", coordinator_forgets_transactions),
    ("markers-not-resumed", "transfers", coordinator_forgets_to_end),
    ("decided-before-committed", "transfers", decided_before_committed),
    ("completed-before-marked", "transfers", completed_before_marked),
    ("batches-not-verified", "stragglers", batches_not_verified),
    ("guard-outlives-transaction", "stragglers", guard_outlives_its_transaction),
    ("ids-expire-in-use", "expiries", ids_expire_in_use),
    ("ids-expire-too-early", "expiries", ids_expire_too_early),
    ("expired-by-leader-alone", "expiries", expired_id_is_forgotten_by_the_leader_alone),
    ("producers-expire-in-transactions", "expiries", producers_expire_in_transactions),
    ("producers-expire-too-early", "expiries", producers_expire_too_early),
    ("forgotten-producers-begin-anew", "expiries", forgotten_producers_begin_anew),
)
TRANSACTION_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, ("cluster",), str(put.__doc__), put, workload) for name, workload, put in _ALL
)
