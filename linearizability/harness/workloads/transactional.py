"""Workloads in which everything is written in transactions: `transactions`, `list-append`, `bank`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlog.linearizability.harness.journal import by_key, key_of
from raftlog.linearizability.harness.libraries.ports import ProducerChoice, ProducerPort, Record, TopicPartition
from raftlog.linearizability.harness.outcomes import CallFailed, Refused, Uncertain
from raftlog.linearizability.harness.workloads.sessions import POLL_SECONDS, LogSession, polled_output

ABORT_PROBABILITY = 0.1
MOST_STEPS = 4
READ_POLLS_MAX = 40
READ_RECORDS = 200
"""Lists that are longer are read less often, so that a second of a long run costs as much as one of a short one."""


class TransactionSession(LogSession):
    """One transactional id for each client. What a transaction that came to nothing has polled is polled again."""

    def producer_choice(self) -> ProducerChoice:
        """See LogSession."""
        number = self.work.number if self.work.stand_in_for is None else self.work.stand_in_for
        return ProducerChoice(transactional_id=self.named(f"verify-{number}"))

    def transactional_producer(self) -> ProducerPort:
        """The producer. One that cannot be made leaves no trace in the history: nothing was asked yet."""
        return self.connections.producer(self.producer_choice())

    def step(self) -> None:
        """See Session."""
        self.mixed()

    def mixed(self) -> None:
        """A transaction of some sends and polls."""
        producer, consumer = self.transactional_producer(), self.consumer()
        partitions = self.all_partitions()
        given: list[list[Any]] = []
        for _ in range(self.random.randint(1, MOST_STEPS)):
            if self.random.random() < 0.5:
                given.append(["send", key_of(self.random.choice(partitions)), self.value()])
            else:
                given.append(["poll"])
        where = {key_of(each): each for each in partitions}
        first: dict[TopicPartition, int] = {}
        done: list[list[Any]] = []

        def body() -> None:
            for step in given:
                if step[0] == "send":
                    offset = producer.send(Record(*where[step[1]], step[2]))
                    done.append(["send", step[1], [offset, step[2]]])
                    continue
                polled = consumer.poll(POLL_SECONDS)
                for each in polled.records:
                    first.setdefault((each.topic, each.partition), each.offset)
                done.append(["poll", by_key(polled)])

        try:
            self.transaction(given, done, body)
        except CallFailed:
            if first and self.connections.has_consumer:
                self.rewind(first)
            raise

    def rewind(self, first: dict[TopicPartition, int]) -> None:
        """Read again what a transaction that failed has read."""
        consumer = self.consumer()
        offsets = {key_of(each): offset for each, offset in first.items()}
        try:
            self.journal.did("seek", offsets, lambda: consumer.seek(first))
        except CallFailed:
            self.connections.drop_consumer()

    def transaction(self, given: list[list[Any]], done: list[list[Any]], body: Callable[[], None]) -> None:
        """Do `body`, which fills `done`, in a transaction, recorded. Raises CallFailed when it came to nothing.

        Nothing of a transaction is ever seen whose commit was not asked for; of one whose commit was asked for and not
        answered nobody knows, and it must not be aborted then.
        """
        producer = self.transactional_producer()
        operation = self.journal.invoke("txn", given)
        is_commit_asked = False
        try:
            producer.begin()
            body()
            if self.random.random() < ABORT_PROBABILITY:
                raise Refused("aborted on purpose")
            is_commit_asked = True
            producer.commit()
        except CallFailed as failed:
            if is_commit_asked and isinstance(failed, Uncertain):
                operation.failed(failed, done)
                self.note_fenced(failed)
                self.connections.drop()
                raise
            self._abort(producer, failed)
            refused = Refused(str(failed))
            operation.failed(refused, done)
            if failed.is_fatal:
                self.note_fenced(failed)
            raise refused from None
        operation.ok(done)

    def _abort(self, producer: ProducerPort, why: CallFailed) -> None:
        """Abort; a producer that cannot is thrown away, and the coordinator ends the transaction in its time."""
        if why.is_fatal:
            self.connections.drop_producer()
            return
        try:
            producer.abort()
        except CallFailed:
            self.connections.drop_producer()

    def note_fenced(self, failed: CallFailed) -> None:
        """Tell of a producer that was fenced off."""
        # Kafka's names of the errors, or aiokafka's: ProducerFenced.
        if "FENCED" in str(failed).upper() or "EPOCH" in str(failed):
            self.journal.note("fenced")


class ListAppendSession(TransactionSession):
    """Transactions of appends to lists, the partitions, and of reads of whole lists from beginning to end."""

    _records = 0
    """That the last read of lists has found."""

    def step(self) -> None:
        """See Session."""
        if self.random.random() > 0.5 * min(1.0, READ_RECORDS / (self._records + 1)):
            self.append()
        else:
            self.read_lists(self.random.sample(self.all_partitions(), 2))

    def append(self) -> None:
        """A transaction of some appends."""
        producer = self.transactional_producer()
        chosen = [self.random.choice(self.all_partitions()) for _ in range(self.random.randint(1, MOST_STEPS))]
        given: list[list[Any]] = [["send", key_of(each), self.value()] for each in chosen]
        done: list[list[Any]] = []

        def body() -> None:
            for partition, (_, key, value) in zip(chosen, given, strict=True):
                done.append(["send", key, [producer.send(Record(*partition, value)), value]])

        self.transaction(given, done, body)

    def read_lists(self, partitions: list[TopicPartition]) -> None:
        """Read partitions from their beginning to their ends, as one operation, where the client tells the end."""
        consumer = self.consumer()
        self.assign(consumer, partitions, beginning=True)
        operation = self.journal.invoke("poll", [["poll"]])
        output: list[Any] = []
        ends: dict[TopicPartition, int] = {}
        self._records = 0
        try:
            for _ in range(READ_POLLS_MAX):
                polled = consumer.poll(POLL_SECONDS)
                output += polled_output(polled)
                self._records += len(polled.records)
                ends |= polled.ends
                if set(ends) >= set(partitions) or (not polled.records and not self.connections.library.has_ends):
                    break
        except CallFailed as failed:
            operation.failed(failed, output)
            self.connections.drop_consumer()
            raise
        operation.ok(output)


class BankSession(ListAppendSession):
    """Transfers between accounts, the partitions: a transaction takes an amount from one and gives it to another."""

    def append(self) -> None:
        """A transfer."""
        producer = self.transactional_producer()
        debited, credited = self.random.sample(self.all_partitions(), 2)
        amount = self.random.randint(1, 100)
        name = self.value()
        legs = [(debited, f"{name}:{-amount}"), (credited, f"{name}:{amount}")]
        given = [["send", key_of(account), value] for account, value in legs]
        done: list[list[Any]] = []

        def body() -> None:
            for account, value in legs:
                done.append(["send", key_of(account), [producer.send(Record(*account, value)), value]])

        self.transaction(given, done, body)
