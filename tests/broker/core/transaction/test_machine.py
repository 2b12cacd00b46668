"""Producers that share a transactional id, over a network that delays and repeats, and coordinators that die.

The model knows whose turn it is and what was decided. It is told what the coordinator answers, and says what must
never be: a transaction that two decisions were told of, a request that ends another transaction than its own, a fenced
producer that is served, an epoch that falls.

Producers before transaction.version 2 keep their epoch, so what they sent for one transaction can end the next one
(KAFKA-17754): of them nothing stays in the network once they have gone on to another transaction with the same epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from raftlog.broker.core.transaction.records import TransactionRecord
from raftlog.broker.core.transaction.state import (
    EPOCH_BUMP_FROM,
    ProducerIdentity,
    TopicPartition,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode
from tests.broker.core.transaction.transaction_world import ID, P0, P1, P2, World, identity, loaded, metadata
from tests.effort import examples

S, E = TransactionState, ErrorCode
PRODUCERS = (0, 1)


@dataclass
class Transaction:
    """What the model knows of one: `decided` is None until somebody was told, or markers were written."""

    number: int
    owner: int
    partitions: set[TopicPartition] = field(default_factory=set)
    decided: bool | None = None


@dataclass
class Producer:
    version: int
    """The transaction.version that it speaks."""
    identity: ProducerIdentity | None = None
    transaction: Transaction | None = None
    # What it has asked for and not heard of.
    ending: bool | None = None


@dataclass(frozen=True)
class Message:
    """An EndTxn somewhere in the network."""

    producer: int
    identity: ProducerIdentity
    transaction: int
    committed: bool


class Life(RuleBasedStateMachine):
    """In a cluster with a version, and producers that speak theirs."""

    cluster_version = 2
    client_versions = (2, 2)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.cluster_version)
        self.producers = {number: Producer(self.client_versions[number]) for number in PRODUCERS}
        self.transactions: list[Transaction] = []
        self.network: list[Message] = []
        self.holder: int | None = None
        # The transaction that was decided last.
        self.decided: Transaction | None = None
        self.highest: dict[int, int] = {}

    @initialize(epoch=st.sampled_from([0, 32_760, 32_766]))
    def begin(self, epoch: int) -> None:
        """An id that has been used before, perhaps until its epochs are nearly used up."""
        if epoch:
            value = metadata(S.EMPTY, epoch=epoch, client_version=self.cluster_version)
            self.world.set(value)
            self.world.write(TransactionRecord(ID, value))

    def _decide(self, transaction: Transaction, committed: bool) -> None:
        assert transaction.decided is None, "a decision was made twice"
        transaction.decided = committed
        self.decided = transaction

    def _abort_of_holder(self) -> None:
        """The coordinator aborts what is under way."""
        assert self.holder is not None
        transaction = self.producers[self.holder].transaction
        assert transaction is not None
        self._decide(transaction, False)

    def _begin_transaction(self, number: int) -> None:
        transaction = Transaction(len(self.transactions), number)
        self.transactions.append(transaction)
        self.producers[number].transaction = transaction
        self.producers[number].ending = None

    @rule(number=st.sampled_from(PRODUCERS), names_its_epoch=st.booleans())
    def init(self, number: int, names_its_epoch: bool) -> None:
        producer = self.producers[number]
        expected = producer.identity if names_its_epoch else None
        was_ongoing = bool(self.world.shard.ongoing)
        initialized = self.world.init(expected)
        if was_ongoing and not self.world.shard.ongoing:
            assert initialized.error is E.CONCURRENT_TRANSACTIONS
            self._abort_of_holder()
        assert initialized.error in (E.NONE, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED)
        if initialized.error is E.PRODUCER_FENCED:
            assert expected is not None, "who begins anew is never fenced"
        if initialized.error is E.NONE:
            if expected is not None and self.holder not in (None, number):
                raise AssertionError("a zombie took the id back")
            self.holder = number
            producer.identity = identity(*initialized[1:])
            self._begin_transaction(number)

    @rule(number=st.sampled_from(PRODUCERS), partition=st.sampled_from([P0, P1, P2]))
    def add(self, number: int, partition: TopicPartition) -> None:
        producer = self.producers[number]
        if producer.identity is None or producer.transaction is None or producer.ending is not None:
            return
        error = self.world.add(producer.identity, partition, client_version=producer.version)
        if error is E.NONE:
            assert self.holder == number, "a zombie was served"
            assert producer.transaction.decided is None, "a transaction that has ended goes on"
            producer.transaction.partitions.add(partition)
        else:
            assert error in (E.PRODUCER_FENCED, E.CONCURRENT_TRANSACTIONS, E.INVALID_PRODUCER_ID_MAPPING)
            if self.holder == number and producer.transaction.decided is None:
                assert error is E.CONCURRENT_TRANSACTIONS, "who has the id was fenced"

    @rule(number=st.sampled_from(PRODUCERS), committed=st.booleans())
    def ask_to_end(self, number: int, committed: bool) -> None:
        producer = self.producers[number]
        if producer.identity is None or producer.transaction is None or producer.ending is not None:
            return
        if producer.version < EPOCH_BUMP_FROM and not producer.transaction.partitions:
            return  # there is nothing to end, and it keeps that to itself
        producer.ending = committed
        self.network.append(Message(number, producer.identity, producer.transaction.number, committed))

    @rule(number=st.sampled_from(PRODUCERS), partition=st.sampled_from([P0, P1]), committed=st.booleans())
    def transact(self, number: int, partition: TopicPartition, committed: bool) -> None:
        """The usual course up to the end, in one step."""
        if self.producers[number].identity is None:
            self.init(number, False)
        self.add(number, partition)
        self.ask_to_end(number, committed)

    @precondition(lambda self: self.network)
    @rule(data=st.data(), stays=st.booleans(), is_heard=st.booleans())
    def deliver(self, data: st.DataObject, stays: bool, is_heard: bool) -> None:
        """An answer that is not heard is asked for again."""
        message = data.draw(st.sampled_from(self.network))
        if is_heard and not stays:
            self.network.remove(message)
        transaction, producer = self.transactions[message.transaction], self.producers[message.producer]
        before = self.world.shard.transactions.get(ID)
        ended = self.world.end(message.identity, message.committed, producer.version)
        if self.world.shard.transactions.get(ID) != before:
            assert producer.transaction is transaction and self.holder == message.producer, "it ended another's"
            self._decide(transaction, message.committed)
        if ended.error is not E.NONE:
            return
        assert transaction.decided is message.committed, "somebody was told of another decision"
        if is_heard and producer.transaction is transaction and producer.ending is not None:
            if producer.version >= EPOCH_BUMP_FROM:
                producer.identity = identity(*ended[1:])
            else:
                self.network = [each for each in self.network if each.identity != message.identity]
            self._begin_transaction(message.producer)

    @precondition(lambda self: self.world.shard.ending)
    @rule()
    def write_markers(self) -> None:
        known, decided = self.world.known, self.decided
        assert decided is not None and decided.decided is (known.state is S.PREPARE_COMMIT)
        assert decided.partitions == known.partitions, "a partition gets no marker, or one of another transaction"
        self.world.complete()

    @rule()
    def take_too_long(self) -> None:
        self.world.pass_ms(120_000)
        if self.world.time_out():
            self._abort_of_holder()

    @rule()
    def fail_over(self) -> None:
        self.world.shard = loaded(self.world.log)

    @invariant()
    def epochs_only_rise(self) -> None:
        for known in self.world.shard.transactions.values():
            assert known.producer_epoch >= self.highest.get(known.producer_id, -1)
            self.highest[known.producer_id] = known.producer_epoch
        self.world.shard.check_invariants()


class LifeBefore2(Life):
    cluster_version, client_versions = 1, (1, 0)


class LifeBeforeAll(Life):
    cluster_version, client_versions = 0, (0, 0)


class LifeOfOldAndNew(Life):
    """librdkafka beside a Java client, while operators change the cluster's version."""

    client_versions = (2, 0)

    @rule(version=st.sampled_from([0, 1, 2]))
    def change_version(self, version: int) -> None:
        self.world.transaction_version = version


LIVES = [Life, LifeBefore2, LifeBeforeAll, LifeOfOldAndNew]


@pytest.mark.parametrize("life", LIVES)
def test_no_transaction_is_decided_twice_and_no_fenced_producer_is_served(life: type[Life]) -> None:
    run_state_machine_as_test(life, settings=settings(max_examples=examples(60), stateful_step_count=40))
