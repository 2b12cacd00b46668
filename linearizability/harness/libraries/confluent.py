"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition

from raftlog.linearizability.harness.libraries.ports import (
    CALL_SECONDS,
    REQUEST_SECONDS,
    SESSION_SECONDS,
    TRANSACTION_SECONDS,
    ConsumerChoice,
    ConsumerPort,
    Library,
    Polled,
    ProducerChoice,
    Read,
    Record,
    TopicPartition,
    text,
)
from raftlog.linearizability.harness.outcomes import CallFailed, Refused, Uncertain, by_code, of_end

QUICK = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
    "log_level": 3,
}
LONGEST_POLL_SECONDS = 0.1


def _failed(error: KafkaError) -> CallFailed:
    name = error.name().removeprefix("_") if error.code() >= 0 else error.name()
    known = {"UNKNOWN_TOPIC_OR_PART": "UNKNOWN_TOPIC_OR_PARTITION", "_FENCED": "PRODUCER_FENCED"}
    if error.code() == KafkaError._PURGE_QUEUE:
        return Refused("purged before it was sent")
    if error.code() == KafkaError._STATE:
        return Refused(error.str(), is_fatal=True)
    return by_code(known.get(name, name), error.str(), is_fatal=error.fatal())


class ConfluentProducer:
    """See ProducerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ProducerChoice) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "acks": choice.acks,
            "enable.idempotence": choice.idempotent,
            "delivery.timeout.ms": int(CALL_SECONDS * 1000),
            "request.timeout.ms": int(REQUEST_SECONDS * 1000),
            "linger.ms": 0,
            **QUICK,
        }
        self._is_transactional = choice.transactional_id is not None
        if self._is_transactional:
            settings |= {
                "transactional.id": choice.transactional_id,
                "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
            }
        self._producer = Producer(settings)
        if self._is_transactional:
            self._call(self._producer.init_transactions, CALL_SECONDS)

    def send(self, record: Record) -> int | None:
        """See ProducerPort."""
        answers: list[Any] = []
        value = None if record.value is None else record.value.encode()
        key = None if record.key is None else record.key.encode()
        self._call(
            self._producer.produce, record.topic, value, key, record.partition,
            on_delivery=lambda error, message: answers.append(error or message),
        )  # fmt: skip
        deadline = time.monotonic() + CALL_SECONDS + 1.0
        while not answers and time.monotonic() < deadline:
            self._call(self._producer.poll, LONGEST_POLL_SECONDS)
        if not answers:
            raise Uncertain("no answer in time", is_fatal=True)
        if isinstance(answers[0], KafkaError):
            raise _failed(answers[0])
        offset: int = answers[0].offset()
        return offset if offset >= 0 else None

    def begin(self) -> None:
        """See ProducerPort."""
        self._call(self._producer.begin_transaction)

    def commit(self) -> None:
        """See ProducerPort."""
        self._retried(self._producer.commit_transaction)

    def abort(self) -> None:
        """See ProducerPort."""
        self._retried(self._producer.abort_transaction)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: ConsumerPort) -> None:
        """See ProducerPort."""
        assert isinstance(consumer, ConfluentConsumer)
        positions = [Partition(topic, index, offset) for (topic, index), offset in offsets.items()]
        member = consumer.inner.consumer_group_metadata()
        self._call(self._producer.send_offsets_to_transaction, positions, member, CALL_SECONDS)

    def close(self) -> None:
        """See ProducerPort."""
        self._producer.purge(blocking=False)

    def _retried(self, call: Any) -> None:
        """librdkafka wants commit and abort to be called again while it is not known what became of them."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            try:
                call(max(1.0, deadline - time.monotonic()))
                return
            except KafkaException as failed:
                error = failed.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise _ended(error) from None

    @staticmethod
    def _call(call: Any, *arguments: Any, **named: Any) -> None:
        try:
            call(*arguments, **named)
        except KafkaException as failed:
            raise _failed(failed.args[0]) from None
        except BufferError as full:
            raise Refused(str(full)) from None


def _ended(error: KafkaError) -> CallFailed:
    """How a commit or an abort failed: what a broker refused for good did not happen, anything else may have."""
    if error.txn_requires_abort():
        return Refused(f"{error.name()}: {error.str()}")
    return of_end(_failed(error))


def _of_commit(error: KafkaError) -> CallFailed:
    """How a commit of a group failed: one that is not answered is sent again, and nobody says so if that is refused."""
    failed = _failed(error)
    return Uncertain(str(failed), is_fatal=failed.is_fatal)


class ConfluentConsumer:
    """See ConsumerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ConsumerChoice) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": choice.group or f"{client_id}-alone",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": choice.isolation,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "check.crcs": True,
            **QUICK,
        }
        if choice.group is not None and choice.protocol == "consumer":
            settings["group.protocol"] = "consumer"
        elif choice.group is not None:
            settings |= {"session.timeout.ms": int(SESSION_SECONDS * 1000), "heartbeat.interval.ms": 500}
        if choice.instance is not None:
            settings["group.instance.id"] = choice.instance
        self.inner = Consumer(settings)
        self._moved: list[tuple[str, list[TopicPartition]]] = []
        self._began: dict[TopicPartition, int] = {}

    def assign(self, partitions: Sequence[TopicPartition], *, beginning: bool) -> None:
        """See ConsumerPort."""
        known = {} if beginning else self._positions()
        self._began = {each: known.get(each, confluent_kafka.OFFSET_BEGINNING) for each in partitions}
        self.inner.assign([Partition(*each, offset) for each, offset in self._began.items()])

    def _positions(self) -> dict[TopicPartition, int]:
        """Where it goes on. librdkafka has no position before it has returned a record: there it is where it began."""
        found = {(each.topic, each.partition): each.offset for each in self.inner.position(self.inner.assignment())}
        return self._began | {each: offset for each, offset in found.items() if offset >= 0}

    def subscribe(self, topics: Sequence[str]) -> None:
        """See ConsumerPort."""

        def note(event: str) -> Any:
            return lambda _, parts: self._moved.append((event, [(each.topic, each.partition) for each in parts]))

        self.inner.subscribe(
            list(topics), on_assign=note("assigned"), on_revoke=note("revoked"), on_lost=note("lost")
        )

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""
        for (topic, index), offset in offsets.items():
            try:
                self.inner.seek(Partition(topic, index, offset))
            except KafkaException as failed:
                raise Uncertain(failed.args[0].str(), is_fatal=True) from None

    def poll(self, seconds: float, records_max: int = 500) -> Polled:
        """See ConsumerPort."""
        polled = Polled()
        try:
            messages = self.inner.consume(records_max, seconds)
        except KafkaException as failed:
            raise Uncertain(failed.args[0].str(), is_fatal=True) from None
        for message in messages:
            error = message.error()
            where = (str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            if error is None:
                polled.records.append(Read(*where, offset, text(message.value()), text(message.key())))
            elif error.code() == KafkaError._PARTITION_EOF:
                polled.ends[where] = offset
        polled.rebalance, self._moved = self._moved, []
        return polled

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""
        positions = [Partition(topic, index, offset) for (topic, index), offset in offsets.items()]
        try:
            answers = self.inner.commit(offsets=positions, asynchronous=False)
        except KafkaException as failed:
            raise _of_commit(failed.args[0]) from None
        for answer in answers or ():
            if answer.error is not None:
                raise _of_commit(answer.error)

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See ConsumerPort."""
        try:
            found = self.inner.committed([Partition(*each) for each in partitions], CALL_SECONDS)
        except KafkaException as failed:
            raise _failed(failed.args[0]) from None
        for each in found:
            if each.error is not None:
                raise _failed(each.error)
        return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}

    def close(self) -> None:
        """See ConsumerPort."""
        self.inner.close()


LIBRARY = Library(
    "confluent",
    str(confluent_kafka.__version__),
    ConfluentProducer,
    ConfluentConsumer,
    has_ends=True,
    has_consumer_protocol=True,
)
