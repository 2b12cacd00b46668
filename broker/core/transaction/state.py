"""The states of a transactional id, which of them follows which, and what is known of an id in its state.

KIP-98; numbers and names as Kafka stores and tells them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import ProducerEpoch, ProducerId


class TransactionState(IntEnum):
    """As `__transaction_state` numbers them."""

    EMPTY = 0
    """No transaction yet since the id was initialized."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided, and every partition has yet to get its marker."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired. Kafka's, for the time until the removal is written; here an id is gone at once."""
    PREPARE_EPOCH_FENCE = 7
    """About to be aborted with a raised epoch. Kafka's, in memory only; here the abort is written at once."""


STATE_NAMES: Mapping[TransactionState, str] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}
"""As ListTransactions and DescribeTransactions name them."""

STATES_BY_NAME: Mapping[str, TransactionState] = {name: state for state, name in STATE_NAMES.items()}

_S = TransactionState

IS_ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""Decided, but not in all partitions yet."""

HAS_ENDED = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is under way: a new one may begin, and the id may expire."""

PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: HAS_ENDED,
    _S.ONGOING: HAS_ENDED | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From a state without a transaction: an empty one is aborted, which raises the epoch (KIP-890).
    _S.PREPARE_ABORT: HAS_ENDED | {_S.ONGOING},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""From which states each may follow."""

NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_TIME = -1

EPOCH_MAX = 32_767
"""The highest epoch that can be stored. It is kept for ending the last transaction of a producer id."""

EPOCH_EXHAUSTED = EPOCH_MAX - 1
"""From this epoch on, who needs another epoch gets another producer id."""

EPOCH_BUMP_FROM = 2
"""From this transaction.version on the epoch rises with every transaction (KIP-890)."""

TopicPartition = tuple[str, int]
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class ProducerIdentity(NamedTuple):
    """A producer id with one of its epochs."""

    producer_id: ProducerId
    epoch: ProducerEpoch


class TransactionMetadata(NamedTuple):
    """What is known of one transactional id. A value: every change makes another one.

    `previous_producer_id` is the producer id before the last change, `last_producer_epoch` the epoch that a client may
    still name when it asks for the same thing once more; that one is not stored. `next_producer_id` follows when the
    transaction that is ending used up the epochs. Times in ms since 1970; `start_ms` is NO_TIME before the first
    transaction. `client_version` is the transaction.version that the client spoke when it last changed the state.
    """

    state: TransactionState
    producer_id: ProducerId
    previous_producer_id: ProducerId
    next_producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_producer_epoch: ProducerEpoch
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int
    client_version: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no more epochs to give."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    def will_be(self, producer: ProducerIdentity) -> bool:
        """Whether this is the identity that the producer goes on with, and was told, when the transaction that is
        ending has used up the epochs of the id before."""
        return self.state in IS_ENDING and self.next_producer_id == producer.producer_id and producer.epoch == 0


def check_transition(transactional_id: str, before: TransactionMetadata | None, after: TransactionMetadata) -> None:
    """Raise InvariantViolation when one cannot follow the other: an epoch never falls, a decision is never undone.

    What is known may be written once more.
    """
    if after == before:
        return
    if before is None:
        if after.state is not _S.EMPTY:
            raise InvariantViolation(f"transactional id {transactional_id}: it begins with {after}")
        return
    valid = before.state in PREVIOUS_STATES[after.state]
    if after.producer_id == before.producer_id:
        valid = valid and after.producer_epoch in (before.producer_epoch, before.producer_epoch + 1)
    else:
        valid = valid and after.producer_epoch == 0 and after.previous_producer_id == before.producer_id
    if after.state is _S.ONGOING or after.state in IS_ENDING:
        valid = valid and after.partitions >= before.partitions
    else:
        valid = valid and not after.partitions
    if not valid:
        raise InvariantViolation(f"transactional id {transactional_id}: {after} follows {before}")
