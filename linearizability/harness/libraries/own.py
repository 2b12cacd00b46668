"""raftlog's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from raftlog import __version__
from raftlog.client import Batch, Consumer, GroupMember
from raftlog.client.core.errors import KafkaError, Rejected, TransactionFailed, WrongState
from raftlog.client.core.settings import ConsumerOptions, ProducerOptions
from raftlog.client.sync import SyncClient
from raftlog.linearizability.harness.libraries.ports import (
    CALL_SECONDS,
    REBALANCE_SECONDS,
    REQUEST_SECONDS,
    SESSION_SECONDS,
    TRANSACTION_SECONDS,
    ConsumerChoice,
    ConsumerPort,
    Library,
    Membership,
    Polled,
    ProducerChoice,
    Read,
    Record,
    TopicPartition,
    text,
)
from raftlog.linearizability.harness.outcomes import CallFailed, Refused, Uncertain, by_code

T = TypeVar("T")


def _call(call: Callable[[], T]) -> T:
    try:
        return call()
    except KafkaError as error:
        raise _failed(error) from None


def _failed(error: KafkaError) -> CallFailed:
    if isinstance(error, WrongState):
        return Refused(str(error), is_fatal=True)
    if isinstance(error, (Rejected, TransactionFailed)) and error.code is not None and not error.in_doubt:
        return by_code(error.code.name, str(error), is_fatal=error.fatal)
    return Uncertain(f"{type(error).__name__}: {error}", is_fatal=error.fatal)


async def _poll(
    consumer: Consumer, records_max: int, seconds: float
) -> tuple[Batch, GroupMember | None, Membership | None]:
    """Records, and at the same moment as which member they were read, and what it owns."""
    batch = await consumer.poll(records_max, timeout=seconds)
    try:
        member = consumer.member
    except (WrongState, Rejected):
        return batch, None, None  # it is in no group, or not now
    name = member.group_instance_id or member.member_id
    is_assigned = member.generation == consumer.assigned_generation
    return batch, member, Membership(name, member.generation, consumer.assignment, is_assigned)


class OwnProducer:
    """See ProducerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ProducerChoice) -> None:
        self._client = SyncClient(bootstrap, client_id=client_id, timeout=CALL_SECONDS)
        options: ProducerOptions = {
            "acks": choice.acks,
            "enable_idempotence": choice.idempotent,
            "linger": 0.0,
            "request_timeout": REQUEST_SECONDS,
            "delivery_timeout": CALL_SECONDS,
            "transactional_id": choice.transactional_id,
            "transaction_timeout": TRANSACTION_SECONDS,
        }
        try:
            self._producer = _call(lambda: self._client.producer(**options))
        except BaseException:
            self._client.close()
            raise

    def send(self, record: Record) -> int | None:
        """See ProducerPort."""
        value = None if record.value is None else record.value.encode()
        key = None if record.key is None else record.key.encode()
        placed = _call(
            lambda: self._producer.send(
                record.topic, value, key=key, partition=record.partition, timeout=CALL_SECONDS
            )
        )
        return int(placed.offset) if placed.offset >= 0 else None

    def begin(self) -> None:
        """See ProducerPort."""
        _call(self._producer.begin)

    def commit(self) -> None:
        """See ProducerPort."""
        try:
            self._producer.commit()
        except KafkaError as error:
            if isinstance(error, TransactionFailed) and not error.in_doubt:
                raise Refused(str(error)) from None
            failed = _failed(error)
            raise type(failed)(str(failed), is_fatal=True) from None

    def abort(self) -> None:
        """See ProducerPort."""
        _call(self._producer.abort)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: ConsumerPort) -> None:
        """See ProducerPort."""
        assert isinstance(consumer, OwnConsumer)
        _call(lambda: self._producer.send_offsets(dict(offsets), consumer.inner.member))

    def close(self) -> None:
        """See ProducerPort."""
        try:
            self._producer.close(timeout=0.0)
        except KafkaError:
            pass  # what was open is given up
        self._client.close()


class OwnConsumer:
    """See ConsumerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ConsumerChoice) -> None:
        self._client = SyncClient(bootstrap, client_id=client_id, timeout=CALL_SECONDS)
        self._options: ConsumerOptions = {
            "group": choice.group,
            "protocol": choice.protocol,
            "group_instance_id": choice.instance,
            "isolation_level": choice.isolation,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait": 0.1,
            "request_timeout": REQUEST_SECONDS,
            "session_timeout": SESSION_SECONDS,
            "heartbeat_interval": 0.2,
            "rebalance_timeout": REBALANCE_SECONDS,
        }
        self._moved: list[tuple[str, list[TopicPartition]]] = []
        self._member: GroupMember | None = None
        self.inner = self._client.consumer(**self._options)
        self._is_started = False

    def _begin(self) -> None:
        if not self._is_started:
            _call(self.inner.start)
            self._is_started = True

    def assign(self, partitions: Sequence[TopicPartition], *, beginning: bool) -> None:
        """See ConsumerPort."""
        self._begin()
        _call(lambda: self.inner.assign(partitions))
        if beginning:
            self.seek(dict.fromkeys(partitions, 0))

    def subscribe(self, topics: Sequence[str]) -> None:
        """See ConsumerPort."""

        def note(event: str) -> Any:
            return lambda partitions: self._moved.append((event, sorted(partitions)))

        self.inner = self._client.consumer(*topics, **self._options)
        self.inner.listen(assigned=note("assigned"), revoked=note("revoked"), lost=note("lost"))
        self._begin()

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""
        for (topic, index), offset in offsets.items():
            _call(lambda topic=topic, index=index, offset=offset: self.inner.seek(topic, index, offset))  # type: ignore[misc]

    def poll(self, seconds: float, records_max: int = 500) -> Polled:
        """See ConsumerPort."""
        polled = Polled()
        batch, self._member, polled.membership = _call(
            lambda: self._client.run(_poll(self.inner.inner, records_max, seconds))
        )
        for each in batch:
            polled.records.append(Read(each.topic, each.partition, each.offset, text(each.value), text(each.key)))
        polled.rebalance, self._moved = self._moved, []
        return polled

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""
        _call(lambda: self.inner.commit(dict(offsets), member=self._member))

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See ConsumerPort."""
        found = _call(lambda: self.inner.committed(*partitions))
        return {each: found.get(each) for each in partitions}

    def close(self) -> None:
        """See ConsumerPort."""
        try:
            self.inner.close()
        except KafkaError:
            pass  # brokers that do not answer need not be told
        self._client.close()


LIBRARY = Library("raftlog", __version__, OwnProducer, OwnConsumer, has_consumer_protocol=True)
