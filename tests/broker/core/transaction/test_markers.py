"""Where markers wait, to whom they go, and what each answer means."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raftlog.broker.core.coordinator.shared import NEVER
from raftlog.broker.core.transaction.markers import (
    MARKERS_PER_REQUEST_MAX,
    NO_LEADER,
    REQUESTS_PER_BROKER_MAX,
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    EndingTransaction,
    MarkerQueues,
    MarkerRequest,
    Sent,
)
from raftlog.broker.core.transaction.state import TopicPartition
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId, ProducerEpoch, ProducerId
from tests.broker.core.transaction.transaction_world import P0, P1, P2
from tests.effort import examples

E = ErrorCode
ONE, TWO = BrokerId(1), BrokerId(2)


def ending(*partitions: TopicPartition, producer_id: int = 7, index: int = 0) -> EndingTransaction:
    return EndingTransaction(
        index,
        f"id-{producer_id}",
        partitions,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(1),
        committed=True,
        coordinator_epoch=3,
        transaction_version=2,
    )


class Queues(MarkerQueues):
    def __init__(self, **leaders: int) -> None:
        self.leaders: dict[TopicPartition, BrokerId] = {P0: ONE, P1: ONE, P2: TWO}
        super().__init__(self.leaders.get)

        self.sent: dict[BrokerId, list[MarkerRequest]] = {ONE: [], TWO: []}

    def send(self, broker: BrokerId) -> list[Sent]:
        request = self.take(broker)
        self.sent[broker].append(request)
        return request.sent

    def send_all(self) -> dict[BrokerId, list[Sent]]:
        return {broker: self.send(broker) for broker in self.ready()}

    def fail(self, broker: BrokerId) -> None:
        self.failed(self.sent[broker].pop(0), 0)

    def answer(self, broker: BrokerId, *errors: tuple[int, TopicPartition, ErrorCode], now_ms: int = 0) -> None:
        """Answer the oldest request."""
        by_producer: dict[ProducerId, dict[TopicPartition, ErrorCode]] = {}
        for producer_id, partition, error in errors:
            by_producer.setdefault(ProducerId(producer_id), {})[partition] = error
        self.answered(self.sent[broker].pop(0), by_producer, now_ms)
        self.check_invariants()


def test_each_leader_is_asked_once_and_the_transaction_is_done_when_all_have_written() -> None:
    queues, transaction = Queues(), ending(P2, P1, P0)
    queues.add(transaction, 0)
    assert queues.send_all() == {ONE: [Sent(transaction, [P0, P1])], TWO: [Sent(transaction, [P2])]}
    assert not queues.ready() and not queues.drain_written()
    queues.answer(ONE, (7, P0, E.NONE), (7, P1, E.NONE))
    assert not queues.drain_written()
    queues.answer(TWO, (7, P2, E.NONE))
    assert queues.drain_written() == [transaction]
    assert not queues.drain_written() and len(queues) == 0


def test_a_transaction_without_partitions_is_done_at_once() -> None:
    queues, transaction = Queues(), ending()
    queues.add(transaction, 0)
    assert queues.drain_written() == [transaction] and not queues.ready()


def test_what_comes_up_together_goes_into_one_request() -> None:
    queues, transactions = Queues(), [ending(P0, producer_id=number) for number in range(3)]
    for transaction in transactions:
        queues.add(transaction, 0)
    assert queues.send(ONE) == [Sent(transaction, [P0]) for transaction in transactions]
    assert not queues.ready()


def test_a_slow_request_holds_up_no_other_until_there_are_many() -> None:
    queues = Queues()
    for number in range(REQUESTS_PER_BROKER_MAX):
        queues.add(ending(P0, producer_id=number), 0)
        queues.send(ONE)
    late = [ending(P0, producer_id=100), ending(P1, producer_id=101)]
    for transaction in late:
        queues.add(transaction, 0)
    assert not queues.ready()
    queues.answer(ONE, (0, P0, E.NONE))
    assert queues.send(ONE) == [Sent(late[0], [P0]), Sent(late[1], [P1])]


def test_a_request_has_a_limit_and_a_transaction_may_need_several() -> None:
    queues = Queues()
    many = [("wide", index) for index in range(MARKERS_PER_REQUEST_MAX + 5)]
    queues.leaders.update(dict.fromkeys(many, ONE))
    transaction = ending(*many)
    queues.add(transaction, 0)
    assert queues.send(ONE) == [Sent(transaction, many[:MARKERS_PER_REQUEST_MAX])]
    queues.answer(ONE, *((7, partition, E.NONE) for partition in many[:MARKERS_PER_REQUEST_MAX]))
    assert queues.send(ONE) == [Sent(transaction, many[MARKERS_PER_REQUEST_MAX:])]


@pytest.mark.parametrize(
    "error",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_partition_that_cannot_write_now_is_asked_again_where_it_is_led_then(error: ErrorCode) -> None:
    queues, transaction = Queues(), ending(P0, P1)
    queues.add(transaction, 0)
    queues.send(ONE)
    queues.answer(ONE, (7, P0, error), (7, P1, E.NONE), now_ms=100)
    assert not queues.ready() and queues.next_retry_ms() == 100 + RETRY_MS_MIN
    queues.leaders[P0] = TWO
    queues.retry(100 + RETRY_MS_MIN - 1)
    assert not queues.ready()
    queues.retry(100 + RETRY_MS_MIN)
    assert queues.send_all() == {TWO: [Sent(transaction, [P0])]}
    queues.answer(TWO, (7, P0, E.NONE))
    assert queues.drain_written() == [transaction] and queues.next_retry_ms() == NEVER


def test_who_fails_again_and_again_is_asked_less_often() -> None:
    queues = Queues()
    queues.add(ending(P0), 0)
    waits = []
    for _ in range(8):
        queues.send(ONE)
        queues.fail(ONE)
        waits.append(queues.next_retry_ms())
        queues.retry(waits[-1])
    assert waits == [20, 40, 80, 160, 320, 640, RETRY_MS_MAX, RETRY_MS_MAX]


def test_an_answer_that_leaves_a_partition_out_is_no_answer_for_it() -> None:
    queues = Queues()
    queues.add(ending(P0), 0)
    queues.send(ONE)
    queues.answer(ONE)
    assert queues.next_retry_ms() == RETRY_MS_MIN and not queues.drain_written()


def test_who_is_fenced_sends_no_more_markers_of_the_transaction() -> None:
    error = E.TRANSACTION_COORDINATOR_FENCED
    queues, transaction, other = Queues(), ending(P0, P1, P2), ending(P1, producer_id=8)
    queues.add(transaction, 0)
    queues.send(ONE)
    queues.add(other, 0)
    queues.answer(ONE, (7, P0, E.NONE), (7, P1, error))
    assert queues.drain_fenced() == [(transaction, P1, error)]
    assert queues.send_all() == {ONE: [Sent(other, [P1])]}
    assert not queues.drain_written() and len(queues) == 1


def test_a_partition_that_refuses_its_marker_keeps_no_other_from_its_own() -> None:
    queues, transaction = Queues(), ending(P0, P1, P2)
    queues.add(transaction, 0)
    assert queues.send(ONE) == [Sent(transaction, [P0, P1])]
    queues.leaders[P1] = TWO
    queues.answer(ONE, (7, P0, E.INVALID_PRODUCER_EPOCH), (7, P1, E.NOT_LEADER_OR_FOLLOWER))
    assert queues.drain_fenced() == [(transaction, P0, E.INVALID_PRODUCER_EPOCH)]
    queues.retry(RETRY_MS_MAX)
    queues.leaders_changed(RETRY_MS_MAX)
    assert queues.send_all() == {TWO: [Sent(transaction, [P2, P1])]}
    queues.answer(TWO, (7, P1, E.NONE), (7, P2, E.NONE))
    queues.check_invariants()
    # It is decided, and not done: whoever coordinates it next tries again.
    assert not queues.drain_written() and list(transaction.remaining) == [P0]


def test_a_partition_that_takes_no_transactions_has_nothing_of_them() -> None:
    queues, transaction = Queues(), ending(P0)
    queues.add(transaction, 0)
    queues.send(ONE)
    queues.answer(ONE, (7, P0, E.UNSUPPORTED_FOR_MESSAGE_FORMAT))
    assert queues.drain_written() == [transaction]


def test_a_deleted_topic_drops_out_wherever_its_marker_waits() -> None:
    queues = Queues()
    queued, retried, only_there = ending(P0, P2), ending(P1, P0, producer_id=8), ending(P2, producer_id=9)
    queues.leaders[P0] = NO_LEADER
    for transaction in (queued, retried, only_there):
        queues.add(transaction, 0)
    del queues.leaders[P2]
    queues.leaders_changed(0)
    assert queues.drain_written() == [only_there]
    del queues.leaders[P0]
    queues.retry(RETRY_MS_MIN)
    queues.check_invariants()
    assert queues.drain_written() == [queued]
    assert queues.send_all() == {ONE: [Sent(retried, [P1])]}
    # On its way when it was deleted.
    del queues.leaders[P1]
    queues.answer(ONE, (8, P1, E.UNKNOWN_TOPIC_OR_PARTITION))
    queues.retry(RETRY_MS_MIN)
    assert queues.drain_written() == [retried]


def test_a_new_leader_is_asked_as_soon_as_it_is_known() -> None:
    queues, transaction = Queues(), ending(P0)
    queues.leaders[P0] = NO_LEADER
    queues.add(transaction, 0)
    assert not queues.ready()
    queues.leaders[P0] = TWO
    queues.leaders_changed(1)
    assert queues.send_all() == {TWO: [Sent(transaction, [P0])]}


def test_what_another_coordinator_goes_on_with_is_forgotten() -> None:
    queues, mine, lost = Queues(), ending(P0, P2, index=1), ending(P0, P2, producer_id=8, index=2)
    queues.add(lost, 0)
    queues.send(ONE)
    queues.add(mine, 0)
    queues.cancel(2)
    queues.answer(ONE, (8, P0, E.INVALID_PRODUCER_EPOCH))
    assert queues.send_all() == {ONE: [Sent(mine, [P0])], TWO: [Sent(mine, [P2])]}
    assert not queues.drain_written() and not queues.drain_fenced()
    assert queues.remaining("id-7", 1) == mine.remaining and queues.remaining("id-8", 2) is None


@settings(max_examples=examples(60), stateful_step_count=30)
class Life(RuleBasedStateMachine):
    """Whatever happens, each marker is in one place, and every transaction gets done in the end."""

    partitions = (P0, P1, P2, ("accounts", 2))

    def __init__(self) -> None:
        super().__init__()
        self.leaders: dict[TopicPartition, BrokerId] = dict.fromkeys(self.partitions, ONE)
        self.queues = MarkerQueues(self.leaders.get)
        self.sent: list[MarkerRequest] = []
        self.now_ms = 0
        self.next_id = 0
        self.expected: dict[EndingTransaction, None] = {}

    @rule(partitions=st.lists(st.sampled_from(partitions), unique=True), index=st.integers(0, 1))
    def begin(self, partitions: list[TopicPartition], index: int) -> None:
        self.next_id += 1
        transaction = ending(*partitions, producer_id=self.next_id, index=index)
        self.expected[transaction] = None
        self.queues.add(transaction, self.now_ms)

    @rule(index=st.integers(0, 1))
    def lose(self, index: int) -> None:
        self.collect()
        self.queues.cancel(index)
        self.expected = {transaction: None for transaction in self.expected if transaction.index != index}

    @rule(partition=st.sampled_from(partitions), leader=st.sampled_from([ONE, TWO, NO_LEADER]), told=st.booleans())
    def lead(self, partition: TopicPartition, leader: BrokerId, told: bool) -> None:
        self.leaders[partition] = leader
        if told:
            self.queues.leaders_changed(self.now_ms)

    @rule(partition=st.sampled_from(partitions))
    def delete(self, partition: TopicPartition) -> None:
        self.leaders.pop(partition, None)

    @rule()
    def send(self) -> None:
        for broker in self.queues.ready():
            self.sent.append(self.queues.take(broker))

    @precondition(lambda self: self.sent)
    @rule(error=st.sampled_from([E.NONE, E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.TRANSACTION_COORDINATOR_FENCED, None]))
    def hear(self, error: ErrorCode | None) -> None:
        request = self.sent.pop()
        if error is None:
            self.queues.failed(request, self.now_ms)
        else:
            answers = {each.transaction.producer_id: dict.fromkeys(each.partitions, error) for each in request.sent}
            self.queues.answered(request, answers, self.now_ms)

    @rule(milliseconds=st.integers(1, 2000))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.queues.retry(self.now_ms)
        assert self.queues.next_retry_ms() > self.now_ms

    def collect(self) -> None:
        for transaction in self.queues.drain_written():
            assert not transaction.remaining
            del self.expected[transaction]
        for transaction, _, _ in self.queues.drain_fenced():
            del self.expected[transaction]

    @invariant()
    def every_marker_is_somewhere(self) -> None:
        self.queues.check_invariants()

    def teardown(self) -> None:
        """Everything works again: whatever was not lost is done."""
        self.leaders.update((partition, ONE) for partition, leader in self.leaders.items() if leader == NO_LEADER)
        while self.sent:
            self.hear(E.NONE)
        for _ in range(50):
            self.wait(RETRY_MS_MAX)
            self.send()
            while self.sent:
                self.hear(E.NONE)
        self.collect()
        assert not self.expected and len(self.queues) == 0


TestLife = Life.TestCase
