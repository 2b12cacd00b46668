"""aiokafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka import TopicPartition as Partition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from raftlog.client.loop_thread import LoopThread
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
from raftlog.wire.errors import ErrorCode

T = TypeVar("T")
CLOSE_SECONDS = 3.0
_LOOP: list[LoopThread] = []
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of every attempt to reach a dead broker


def _failed(error: Exception) -> CallFailed:
    number = getattr(error, "errno", None)
    if isinstance(error, KafkaError) and isinstance(number, int) and number > 0:
        failed = by_code(ErrorCode.of(number).name, str(error))
        # After such errors it tries again until its time is over, and says no more than the last one of them.
        return Uncertain(str(failed), is_fatal=failed.is_fatal) if error.retriable else failed
    # aiokafka has words of its own for a producer that is of no use any more.
    return Uncertain(f"{type(error).__name__}: {error}", is_fatal=True)


def _run(make: Callable[[], Awaitable[T]], seconds: float = CALL_SECONDS) -> T:
    """The result of a coroutine made and run in the loop's thread, in which heartbeats go on."""
    if not _LOOP:
        _LOOP.append(LoopThread())

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await make()

    try:
        return _LOOP[0].run(bounded())
    except TimeoutError:
        raise Uncertain(f"no answer within {seconds:g} s", is_fatal=True) from None
    except (asyncio.CancelledError, CancelledError):
        raise Uncertain("aiokafka cancelled it", is_fatal=True) from None
    except (KafkaError, OSError, RuntimeError, ValueError, AssertionError) as error:
        raise _failed(error) from None


class AioProducer:
    """See ProducerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ProducerChoice) -> None:
        async def make() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                client_id=client_id,
                acks="all" if choice.acks == "all" else int(choice.acks),
                enable_idempotence=choice.idempotent,
                transactional_id=choice.transactional_id,
                transaction_timeout_ms=int(TRANSACTION_SECONDS * 1000),
                request_timeout_ms=int(REQUEST_SECONDS * 1000),
                retry_backoff_ms=50,
                linger_ms=0,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        self._producer = _run(make, 2 * CALL_SECONDS)

    def send(self, record: Record) -> int | None:
        """See ProducerPort."""
        value = None if record.value is None else record.value.encode()
        key = None if record.key is None else record.key.encode()
        placed = _run(
            lambda: self._producer.send_and_wait(record.topic, value, key=key, partition=record.partition),
            CALL_SECONDS + 1.0,
        )
        return int(placed.offset) if placed.offset >= 0 else None

    def begin(self) -> None:
        """See ProducerPort."""
        _run(self._producer.begin_transaction)

    def commit(self) -> None:
        """See ProducerPort."""
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        """See ProducerPort."""
        self._end(self._producer.abort_transaction)

    @staticmethod
    def _end(call: Callable[[], Awaitable[Any]]) -> None:
        try:
            _run(call)
        except CallFailed as failed:
            raise of_end(failed) from None

    def send_offsets(self, offsets: Mapping[TopicPartition, int], consumer: ConsumerPort) -> None:
        """See ProducerPort."""
        assert isinstance(consumer, AioConsumer)
        positions = {Partition(*each): offset for each, offset in offsets.items()}
        _run(lambda: self._producer.send_offsets_to_transaction(positions, consumer.group))

    def close(self) -> None:
        """See ProducerPort."""
        _close(self._producer.stop)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, note: Callable[[str, Any], None]) -> None:
        self._note = note

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._note("revoked", revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._note("assigned", assigned)


class AioConsumer:
    """See ConsumerPort."""

    def __init__(self, bootstrap: str, client_id: str, choice: ConsumerChoice) -> None:
        self.group = choice.group
        self._moved: list[tuple[str, list[TopicPartition]]] = []

        async def make() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                client_id=client_id,
                group_id=choice.group,
                group_instance_id=choice.instance,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=choice.isolation,
                fetch_max_wait_ms=100,
                retry_backoff_ms=50,
                request_timeout_ms=int(REQUEST_SECONDS * 1000),
                session_timeout_ms=int(SESSION_SECONDS * 1000),
                heartbeat_interval_ms=500,
                metadata_max_age_ms=2000,
                # What the others do, too: a group of several libraries needs an assignor that all of them have.
                partition_assignment_strategy=[RangePartitionAssignor],
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            return consumer

        self._consumer = _run(make, 2 * CALL_SECONDS)

    def assign(self, partitions: Sequence[TopicPartition], *, beginning: bool) -> None:
        """See ConsumerPort."""
        wanted = [Partition(*each) for each in partitions]

        async def assign() -> None:
            known = {}
            for each in self._consumer.assignment():
                if not beginning and each in wanted:
                    known[each] = await self._consumer.position(each)
            self._consumer.assign(wanted)
            for each in wanted:
                # A first position is asked for otherwise, which takes a while; a log of a run begins at 0.
                self._consumer.seek(each, known.get(each, 0))

        _run(assign)

    def subscribe(self, topics: Sequence[str]) -> None:
        """See ConsumerPort."""

        def note(event: str, partitions: Any) -> None:
            self._moved.append((event, [(each.topic, each.partition) for each in partitions]))

        async def subscribe() -> None:
            self._consumer.subscribe(list(topics), listener=_Listener(note))

        _run(subscribe)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""

        async def seek() -> None:
            for each, offset in offsets.items():
                self._consumer.seek(Partition(*each), offset)

        _run(seek)

    def poll(self, seconds: float, records_max: int = 500) -> Polled:
        """See ConsumerPort."""
        polled = Polled()
        found = _run(
            lambda: self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=records_max),
            seconds + CALL_SECONDS,
        )
        for where, records in found.items():
            for each in records:
                polled.records.append(
                    Read(where.topic, where.partition, each.offset, text(each.value), text(each.key))
                )
        polled.rebalance, self._moved = self._moved, []
        return polled

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See ConsumerPort."""
        _run(lambda: self._consumer.commit({Partition(*each): offset for each, offset in offsets.items()}))

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """See ConsumerPort."""
        # aiokafka answers from memory what it has committed itself, unless it is asked for a foreign partition.
        return {each: _run(lambda each=each: self._consumer.committed(Partition(*each))) for each in partitions}  # type: ignore[misc]

    def close(self) -> None:
        """See ConsumerPort."""
        _close(self._consumer.stop)


def _close(stop: Callable[[], Awaitable[Any]]) -> None:
    try:
        _run(stop, CLOSE_SECONDS)
    except (Refused, Uncertain):
        pass  # brokers that do not answer need not be told


LIBRARY = Library("aiokafka", str(aiokafka.__version__), AioProducer, AioConsumer)
