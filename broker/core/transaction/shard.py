"""The transactional ids of one partition of `__transaction_state`."""

from __future__ import annotations

from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.state import (
    HAS_ENDED,
    IS_ENDING,
    TransactionMetadata,
    TransactionState,
    check_transition,
)
from raftlog.wire.errors import InvariantViolation

# Looked for by identity: to hash the member of an enum is a call.
_ENDING = tuple(IS_ENDING)


class TransactionCoordinatorShard:
    """Transactional ids and what is known of them.

    All of it is durable, and changes in `replay` alone. A record is replayed as soon as it is appended, so that what
    follows is decided on what the log says; answers wait until it is committed, and so does all that others see of a
    decision (markers). If the broker loses the partition before that, the shard is thrown away, and the next leader
    loads what was committed.

    Invariants: `ongoing` and `ending` are the ids in such a state, in the order in which they came to be so.
    """

    __slots__ = ("ending", "ongoing", "transactions")

    def __init__(self) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.ongoing: dict[str, None] = {}
        self.ending: dict[str, None] = {}

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record that is in the log. Raises InvariantViolation for one that cannot follow what is there."""
        transactional_id, value = record
        before = self.transactions.get(transactional_id)
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            check_transition(transactional_id, before, value)
            self.transactions[transactional_id] = value
        self._file(transactional_id, None if value is None else value.state)

    def load(self, record: TransactionRecord) -> None:
        """Take the last record of an id from a log that is read."""
        transactional_id, value = record
        if value is not None:
            self.transactions[transactional_id] = value
            self._file(transactional_id, value.state)

    def _file(self, transactional_id: str, state: TransactionState | None) -> None:
        if state is TransactionState.ONGOING:
            self.ongoing.setdefault(transactional_id)
            return
        self.ongoing.pop(transactional_id, None)
        if state in IS_ENDING:
            self.ending.setdefault(transactional_id)
        else:
            self.ending.pop(transactional_id, None)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if the shard contradicts itself."""
        for name, value in self.transactions.items():
            listed = (name in self.ongoing, name in self.ending)
            if listed != (value.state is TransactionState.ONGOING, value.state in _ENDING):
                raise InvariantViolation(f"{name} is listed as (ongoing, ending) {listed}: {value}")
            if value.producer_id < 0 or value.producer_epoch < 0 or value.timeout_ms <= 0:
                raise InvariantViolation(f"{name} has no producer id, epoch or time-out: {value}")
            if value.partitions and value.state in HAS_ENDED:
                raise InvariantViolation(f"{name} has ended, and has partitions: {value}")
        unknown = (self.ongoing.keys() | self.ending.keys()) - self.transactions.keys()
        if unknown:
            raise InvariantViolation(f"{unknown} are listed, and not known")
