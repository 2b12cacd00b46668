"""EndTxn, the abort of a transaction that took too long, and what comes when all markers are written.

KIP-98; KIP-890 for transaction.version 2: the epoch rises with every transaction, so that a delayed EndTxn cannot end
the next one (KAFKA-17754), and a transaction that nobody is sure to have begun can be aborted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.refusal import refused_producer, refused_state
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import (
    EPOCH_BUMP_FROM,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    IS_ENDING,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import ProducerEpoch, ProducerId


class EndTxn(NamedTuple):
    """The request. `client_version` is the transaction.version that the client speaks."""

    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    client_version: int


class EndedTransaction(NamedTuple):
    """The answer; the identity that the producer goes on with is told from transaction.version 2 on."""

    error: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class Sender(Enum):
    """Who sent an EndTxn, as far as id and epoch tell."""

    CURRENT = auto()
    """Has the epoch that is valid now."""
    REPEATS = auto()
    """Has the epoch before: it sends an EndTxn again that was carried out (transaction.version 2)."""
    FENCED = auto()
    """Has another epoch."""
    UNKNOWN = auto()
    """Has another producer id."""


class _Outcome(Enum):
    END = auto()
    """The transaction ends so."""
    REPEAT = auto()
    """It did end so: the answer is given again."""
    CONCURRENT = auto()
    """It is ending so: the client comes again."""
    INVALID = auto()
    """It ended otherwise, or there is none."""
    FENCED = auto()


_S, _O = TransactionState, _Outcome
_CURRENT, _REPEATS = Sender.CURRENT, Sender.REPEATS
_COMMIT, _ABORT = True, False

_OUTCOMES: Mapping[tuple[TransactionState, Sender, bool], _Outcome] = {
    (_S.EMPTY, _CURRENT, _COMMIT): _O.INVALID,
    (_S.EMPTY, _CURRENT, _ABORT): _O.END,
    (_S.EMPTY, _REPEATS, _COMMIT): _O.FENCED,
    (_S.EMPTY, _REPEATS, _ABORT): _O.FENCED,
    (_S.ONGOING, _CURRENT, _COMMIT): _O.END,
    (_S.ONGOING, _CURRENT, _ABORT): _O.END,
    (_S.ONGOING, _REPEATS, _COMMIT): _O.FENCED,
    (_S.ONGOING, _REPEATS, _ABORT): _O.FENCED,
    (_S.PREPARE_COMMIT, _CURRENT, _COMMIT): _O.CONCURRENT,
    (_S.PREPARE_COMMIT, _CURRENT, _ABORT): _O.CONCURRENT,
    (_S.PREPARE_COMMIT, _REPEATS, _COMMIT): _O.CONCURRENT,
    (_S.PREPARE_COMMIT, _REPEATS, _ABORT): _O.INVALID,
    (_S.PREPARE_ABORT, _CURRENT, _COMMIT): _O.CONCURRENT,
    (_S.PREPARE_ABORT, _CURRENT, _ABORT): _O.CONCURRENT,
    (_S.PREPARE_ABORT, _REPEATS, _COMMIT): _O.INVALID,
    (_S.PREPARE_ABORT, _REPEATS, _ABORT): _O.CONCURRENT,
    (_S.COMPLETE_COMMIT, _CURRENT, _COMMIT): _O.INVALID,
    (_S.COMPLETE_COMMIT, _CURRENT, _ABORT): _O.END,
    (_S.COMPLETE_COMMIT, _REPEATS, _COMMIT): _O.REPEAT,
    (_S.COMPLETE_COMMIT, _REPEATS, _ABORT): _O.INVALID,
    (_S.COMPLETE_ABORT, _CURRENT, _COMMIT): _O.INVALID,
    (_S.COMPLETE_ABORT, _CURRENT, _ABORT): _O.END,
    (_S.COMPLETE_ABORT, _REPEATS, _COMMIT): _O.INVALID,
    (_S.COMPLETE_ABORT, _REPEATS, _ABORT): _O.REPEAT,
}
"""What becomes of an EndTxn of transaction.version 2, by state, sender, and whether it commits.

Who has the new epoch already may end the next transaction before the markers of the last one are written, for instance
one that was aborted before anything was sent: Kafka lets it come again, as any request in that time.
"""

_OUTCOMES_BEFORE_2: Mapping[tuple[TransactionState, bool], _Outcome] = {
    (_S.EMPTY, _COMMIT): _O.INVALID,
    (_S.EMPTY, _ABORT): _O.INVALID,
    (_S.ONGOING, _COMMIT): _O.END,
    (_S.ONGOING, _ABORT): _O.END,
    (_S.PREPARE_COMMIT, _COMMIT): _O.CONCURRENT,
    (_S.PREPARE_COMMIT, _ABORT): _O.INVALID,
    (_S.PREPARE_ABORT, _COMMIT): _O.INVALID,
    (_S.PREPARE_ABORT, _ABORT): _O.CONCURRENT,
    (_S.COMPLETE_COMMIT, _COMMIT): _O.REPEAT,
    (_S.COMPLETE_COMMIT, _ABORT): _O.INVALID,
    (_S.COMPLETE_ABORT, _COMMIT): _O.INVALID,
    (_S.COMPLETE_ABORT, _ABORT): _O.REPEAT,
}
"""The same for older clients, whose epoch stays: what is sent again looks like what is sent for the first time."""

_ERRORS: Mapping[_Outcome, ErrorCode] = {
    _O.CONCURRENT: ErrorCode.CONCURRENT_TRANSACTIONS,
    _O.FENCED: ErrorCode.PRODUCER_FENCED,
}


def end_transaction(
    shard: TransactionCoordinatorShard, request: EndTxn, now: Now, *, new_producer_id: ProducerId | None = None
) -> Decision[EndedTransaction] | Undecided:
    """Decide an EndTxn."""
    if not request.transactional_id:
        return Decision(EndedTransaction(ErrorCode.INVALID_REQUEST), [])
    known = shard.transactions.get(request.transactional_id)
    if known is not None and known.will_be(request.producer):
        return Decision(EndedTransaction(ErrorCode.CONCURRENT_TRANSACTIONS), [])
    sender = Sender.UNKNOWN if known is None else _sender(request, known)
    if known is None or sender is Sender.UNKNOWN:
        unknown = EndedTransaction(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return refused_producer(unknown, request.transactional_id, known, request.producer)
    if sender is Sender.FENCED:
        fenced = EndedTransaction(ErrorCode.PRODUCER_FENCED)
        return refused_producer(fenced, request.transactional_id, known, request.producer)
    raises_epoch = request.client_version >= EPOCH_BUMP_FROM
    if raises_epoch:
        outcome = _OUTCOMES[known.state, sender, request.committed]
    else:
        outcome = _OUTCOMES_BEFORE_2[known.state, request.committed]
    if outcome is _O.INVALID:
        return refused_state(EndedTransaction(ErrorCode.INVALID_TXN_STATE), request.transactional_id, known)
    if outcome in _ERRORS:
        return Decision(EndedTransaction(_ERRORS[outcome]), [])
    if outcome is _O.REPEAT:
        return Decision(_answer(known, raises_epoch), [])
    if raises_epoch:
        next_producer_id = _next_producer_id(known, new_producer_id)
        if next_producer_id is None:
            return Undecided.NEEDS_PRODUCER_ID
        after = _end_raising_epoch(known, request.committed, now, next_producer_id)
    else:
        after = _prepared(known, request.committed, now)._replace(client_version=0, next_producer_id=NO_PRODUCER_ID)
    # The producer may go on before the markers are written, with the identity that it will have then.
    completed = _completed(after, now)
    return Decision(_answer(completed, raises_epoch), [TransactionRecord(request.transactional_id, after)])


def _sender(request: EndTxn, known: TransactionMetadata) -> Sender:
    producer_id, epoch = request.producer
    if request.client_version < EPOCH_BUMP_FROM:
        if producer_id != known.producer_id:
            return Sender.UNKNOWN
        return Sender.CURRENT if epoch == known.producer_epoch else Sender.FENCED
    # Otherwise the epoch rose when another producer took the transactional id over, and left off with an older client.
    end_raised_epoch = known.client_version >= EPOCH_BUMP_FROM
    is_exhausted = producer_id == known.previous_producer_id and epoch == EPOCH_EXHAUSTED and known.producer_epoch == 0
    if end_raised_epoch and is_exhausted:
        # The last epoch of the id before.
        return Sender.REPEATS
    if producer_id != known.producer_id:
        return Sender.UNKNOWN
    if epoch == known.producer_epoch:
        return Sender.CURRENT
    return Sender.REPEATS if end_raised_epoch and epoch + 1 == known.producer_epoch else Sender.FENCED


def _answer(known: TransactionMetadata, raises_epoch: bool) -> EndedTransaction:
    if not raises_epoch:
        return EndedTransaction(ErrorCode.NONE)
    return EndedTransaction(ErrorCode.NONE, known.producer_id, known.producer_epoch)


def _next_producer_id(known: TransactionMetadata, new_producer_id: ProducerId | None) -> ProducerId | None:
    """The id that the producer goes on with: NO_PRODUCER_ID for the one that it has; None if a new one is needed."""
    return new_producer_id if known.is_exhausted else NO_PRODUCER_ID


def _end_raising_epoch(
    known: TransactionMetadata, committed: bool, now: Now, next_producer_id: ProducerId
) -> TransactionMetadata:
    return _prepared(known, committed, now)._replace(
        next_producer_id=next_producer_id,
        producer_epoch=ProducerEpoch(min(known.producer_epoch + 1, EPOCH_MAX)),
        last_producer_epoch=known.producer_epoch,
        client_version=EPOCH_BUMP_FROM,
    )


def _prepared(known: TransactionMetadata, committed: bool, now: Now) -> TransactionMetadata:
    return known._replace(
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        previous_producer_id=known.producer_id,
        # Of an abort without partitions nobody knows when it began.
        start_ms=known.start_ms if known.state is TransactionState.ONGOING else now.wall_ms,
        last_update_ms=now.wall_ms,
    )


def abort_ongoing(
    transactional_id: str,
    known: TransactionMetadata,
    now: Now,
    *,
    transaction_version: int,
    new_producer_id: ProducerId | None,
) -> TransactionRecord | Undecided:
    """End a transaction that its producer does not end, so that the producer is fenced. `transaction_version` is the
    cluster's.
    """
    if known.state is not TransactionState.ONGOING:
        raise InvariantViolation(f"transactional id {transactional_id}: no transaction to abort in {known}")
    if transaction_version >= EPOCH_BUMP_FROM:
        next_producer_id = _next_producer_id(known, new_producer_id)
        if next_producer_id is None:
            return Undecided.NEEDS_PRODUCER_ID
        return TransactionRecord(transactional_id, _end_raising_epoch(known, False, now, next_producer_id))
    after = _prepared(known, False, now)._replace(
        producer_epoch=ProducerEpoch(min(known.producer_epoch + 1, EPOCH_MAX)),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        client_version=0,
    )
    return TransactionRecord(transactional_id, after)


def complete(transactional_id: str, known: TransactionMetadata, now: Now) -> TransactionRecord:
    """All partitions have their markers."""
    if known.state not in IS_ENDING:
        raise InvariantViolation(f"transactional id {transactional_id}: nothing to complete in {known}")
    return TransactionRecord(transactional_id, _completed(known, now))


def _completed(known: TransactionMetadata, now: Now) -> TransactionMetadata:
    committed = known.state is TransactionState.PREPARE_COMMIT
    after = known._replace(
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=NO_PARTITIONS,
        last_update_ms=now.wall_ms,
    )
    if known.client_version >= EPOCH_BUMP_FROM and known.next_producer_id != NO_PRODUCER_ID:
        return after._replace(producer_id=known.next_producer_id, producer_epoch=ProducerEpoch(0))
    return after
