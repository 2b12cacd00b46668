"""One producer's transactions as a state machine (KIP-98, 360, 447, 890), without I/O.

Version 1: partitions and groups are added to the transaction before they are written to; an epoch lasts until the
producer asks for another. Version 2 (KIP-890): what is written to is part of the transaction by that, and each end of a
transaction brings a new epoch, so that what is late from one transaction can never get into the next.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from raftlog.client.core.errors import KafkaError, ProducerFenced, Rejected, TransactionFailed, WrongState
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.producer_batch import ProducerIdentity
from raftlog.wire.errors import ErrorCode, InvariantViolation


class State(Enum):
    NEW = "new"
    READY = "ready"
    OPEN = "open"
    BROKEN = "to be aborted"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FATAL = "failed for good"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.READY, State.FATAL}),
    State.READY: frozenset({State.OPEN, State.NEW, State.FATAL}),
    State.OPEN: frozenset({State.BROKEN, State.PREPARED, State.COMMITTING, State.ABORTING, State.FATAL}),
    State.PREPARED: frozenset({State.FATAL}),
    State.BROKEN: frozenset({State.ABORTING, State.FATAL}),
    State.COMMITTING: frozenset({State.READY, State.BROKEN, State.NEW, State.FATAL}),
    State.ABORTING: frozenset({State.READY, State.NEW, State.FATAL}),
    State.FATAL: frozenset(),
}

FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""From a coordinator: this producer cannot go on."""
FATAL_OF_A_RECORD = FATAL - {ErrorCode.INVALID_TXN_STATE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
"""From a leader, which knows of this transaction only: brokers before 3.8 say INVALID_TXN_STATE of one that is over."""


class PreparedTransaction(NamedTuple):
    """A transaction whose records are all stored, and that waits for its end, which any process may tell."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """Of transactions, 1 or 2, that its producer speaks."""


class Step(Enum):
    """What an error was the answer to: a record, or a request to the coordinator."""

    PRODUCE = "produce"
    COORDINATE = "coordinate"
    INITIALIZE = "initialize"


class Transaction:
    """The transaction of a producer that is open, was last, or comes next."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = State.NEW
        self.identity: ProducerIdentity | None = None
        self.version = 1
        self.failure: KafkaError | None = None
        """Why the transaction has to be aborted, or the producer is done."""
        self.to_add: set[TopicPartition] = set()
        """Partitions that the coordinator has to hear of before anything is written to them (version 1)."""
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._needs_epoch = False
        self._may_be_committed = False

    @property
    def is_open(self) -> bool:
        return self.state in (State.OPEN, State.BROKEN)

    @property
    def is_begun(self) -> bool:
        """Whether the coordinator may know of it, so that it has to be told the end."""
        return bool(self._partitions or self._groups)

    def initialized(self, identity: ProducerIdentity, version: int) -> None:
        """The coordinator gave an id and an epoch; earlier producers with this transactional id are fenced."""
        self._go(State.READY)
        self.identity = identity
        self.version = version
        self._forget()

    def begin(self) -> None:
        """Raises WrongState, or the failure that ended this producer."""
        self.check_usable()
        if self.state is not State.READY:
            raise WrongState(f"a transaction cannot begin: the last one is {self.state.value}")
        self._go(State.OPEN)

    def check_usable(self) -> None:
        if self.state is State.FATAL and self.failure is not None:
            raise self.failure

    def check_can_send(self) -> None:
        """Raises WrongState outside a transaction, TransactionFailed in one that has to be aborted."""
        self.check_usable()
        if self.state is State.BROKEN and self.failure is not None:
            raise TransactionFailed(self.failure)
        if self.state is State.PREPARED:
            raise WrongState("the transaction is prepared: it takes no more records, and this producer does not end it")
        if self.state is not State.OPEN:
            raise WrongState("this producer has a transactional_id: send inside `async with producer.transaction()`")

    def touch(self, partition: TopicPartition) -> None:
        """A record goes to this partition."""
        if partition in self._partitions or partition in self.to_add:
            return
        if self.version >= 2:
            self._partitions.add(partition)
        else:
            self.to_add.add(partition)

    def added(self, partitions: set[TopicPartition]) -> None:
        """The coordinator knows them now."""
        self.to_add -= partitions
        self._partitions |= partitions

    def maybe_added(self, partitions: set[TopicPartition]) -> None:
        """They were sent to the coordinator: whatever comes back, it has to hear of the end."""
        self._partitions |= partitions

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def group_added(self, group: str) -> None:
        self._groups.add(group)

    def prepare(self) -> PreparedTransaction:
        """All of it is stored; nothing more is sent. Raises what `check_can_send` raises."""
        self.check_can_send()
        assert self.identity is not None
        if not self.is_begun or self.to_add:
            raise WrongState("nothing was sent in this transaction, so that its coordinator does not know it")
        self._go(State.PREPARED)
        return PreparedTransaction(self.transactional_id, *self.identity, self.version)

    def end(self, *, committed: bool) -> bool:
        """Begin to end it; says whether the coordinator has to be told. Raises what `check_can_send` raises."""
        if committed:
            self.check_can_send()
            if self.to_add:
                raise InvariantViolation(f"{self.to_add} were written to before the coordinator knew")
            self._go(State.COMMITTING)
        else:
            self.check_usable()
            if not self.is_open:
                raise WrongState(f"there is no transaction to abort: it is {self.state.value}")
            self._go(State.ABORTING)
        return self.is_begun

    def end_unanswered(self) -> None:
        """The coordinator was asked to end it, and may do so: whether it has is not known."""
        self._may_be_committed |= self.state is State.COMMITTING

    def ended(self, identity: ProducerIdentity | None) -> bool:
        """It is over, with the identity for the next one if the coordinator gave it.

        Returns whether another epoch has to be asked for (`initialized`) before the next one begins.
        """
        changed = identity is not None and identity != self.identity
        needs_epoch = self._needs_epoch and not changed
        self._go(State.NEW if needs_epoch else State.READY)
        if changed:
            self.identity = identity
        self._forget()
        self._needs_epoch = needs_epoch
        return needs_epoch

    def failed(
        self, error: KafkaError, step: Step, *, gap: bool = False, overdue: str | None = None
    ) -> KafkaError:
        """Something of it failed for good: it has to be aborted, or the producer is done. Returns what to raise.

        `overdue`: what to say where the transaction has lasted longer than its time-out, which fences a producer too.
        """
        failure = self._failed(error, step, gap, overdue)
        failure.in_doubt = self._may_be_committed
        return failure

    def _failed(self, error: KafkaError, step: Step, gap: bool, overdue: str | None) -> KafkaError:
        code = error.code
        self._needs_epoch = self._needs_epoch or gap
        if self.state is State.FATAL:
            return self.failure or error
        # A leader that knows a newer epoch says so too late to be the judge: the coordinator is (KIP-588).
        ended = overdue is not None and code is ErrorCode.INVALID_TXN_STATE
        if code is not None and (code in FENCED or ended) and step is not Step.PRODUCE:
            return self._fail_for_good(ProducerFenced(code, f"transactional id {self.transactional_id!r}", overdue))
        fatal = FATAL_OF_A_RECORD if step is Step.PRODUCE else FATAL
        if code in fatal or (step is Step.INITIALIZE and isinstance(error, Rejected) and not error.retriable):
            return self._fail_for_good(error)
        if self.state is State.OPEN or (self.state is State.COMMITTING and step is Step.COORDINATE):
            if code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                self._needs_epoch = True
            self._go(State.BROKEN)
            self.failure = error
            return TransactionFailed(error)
        if self.state is State.BROKEN:
            return TransactionFailed(self.failure or error)
        return error

    def check_invariants(self) -> None:
        if (self.state is State.NEW) != (self.identity is None) and not self._needs_epoch:
            raise InvariantViolation("a producer that is ready has an id, and no other")
        if self.version >= 2 and self.to_add:
            raise InvariantViolation("version 2 adds no partitions beforehand")
        if self.state is State.READY and (self._partitions or self._groups or self.to_add):
            raise InvariantViolation("the last transaction left something behind")

    def _fail_for_good(self, error: KafkaError) -> KafkaError:
        self._go(State.FATAL)
        error.fatal = True
        self.failure = error
        return error

    def _forget(self) -> None:
        self.failure = None
        self.to_add = set()
        self._partitions = set()
        self._groups = set()
        self._needs_epoch = False
        self._may_be_committed = False

    def _go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"a transaction cannot go from {self.state.value} to {state.value}")
        self.state = state
