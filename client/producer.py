"""Writing records: in order, each once, with an outcome for every record, in bounded memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from raftlog.client.core.accumulator import Accumulator, Limits
from raftlog.client.core.errors import (
    BufferFull,
    Closed,
    KafkaError,
    MissingExtra,
    ProducerFenced,
    Rejected,
    TimedOut,
    TransactionFailed,
    WrongState,
)
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.partitioner import StickyPartitioner, partition_for_key
from raftlog.client.core.producer_batch import HeaderPairs, Placed, check_record
from raftlog.client.core.progress import Position
from raftlog.client.core.settings import ProducerSettings
from raftlog.client.core.transaction import PreparedTransaction
from raftlog.client.delivery import Delivery
from raftlog.client.idempotence import IdempotentNumbering
from raftlog.client.offsets import GroupMember
from raftlog.client.router import Router
from raftlog.client.sender import Sender
from raftlog.client.transactions import TransactionNumbering
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow

    from raftlog.client.columns.encode import Rows
    from raftlog.client.columns.outcome import TableDelivery

WINDOW_BYTES = 4 * 1024 * 1024
"""So much of a table is encoded at a time: then there has to be room for more."""
CREATED_ON_FIRST_USE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Outgoing(NamedTuple):
    """A record to send. `timestamp` in ms since 1970, None for now; `partition` None to have it chosen."""

    value: bytes | None
    key: bytes | None = None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp: int | None = None


class Producer:
    """Made by `Client.producer`, used as `async with`: leaving the block sends what is buffered.

    Records with one key go to one partition, in the order in which they were handed over.
    """

    def __init__(self, router: Router, settings: ProducerSettings) -> None:
        self.settings = settings
        self._router = router
        limits = Limits(
            batch_size=settings.batch_size,
            linger=settings.linger,
            buffer_memory=settings.buffer_memory,
            max_request_size=settings.max_request_size,
            delivery_timeout=settings.delivery_timeout,
        )
        self._accumulator = Accumulator(limits, idempotent=settings.is_idempotent)
        self._sender = Sender(router, self._accumulator, settings)
        self._sticky = StickyPartitioner(settings.batch_size, random.randrange)
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._sender.on_progress = self._make_room
        self._transactions: TransactionNumbering | None = None
        if settings.transactional_id is not None:
            self._transactions = TransactionNumbering(router, self._accumulator, self._sender, settings)
            self._sender.numbering = self._transactions
        elif settings.is_idempotent:
            self._sender.numbering = IdempotentNumbering(router, self._sender.in_trouble)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> Placed:
        """Send a record and wait until it is stored, at most `timeout` seconds (the client's if None).

        Raises KafkaError. After TimedOut the record may be stored all the same.
        """
        seconds = self._router.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                delivery = await self.enqueue(
                    topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
                )
                return await delivery
        except TimeoutError:
            raise self._late(topic, seconds) from None

    async def enqueue(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Hand a record over, and wait only for room. `await` the delivery, or `flush`, to learn the outcome.

        Raises BufferFull when there is no room within the client's timeout.
        """
        self._check_usable()
        if (
            type(value) is not bytes
            or (key is not None and type(key) is not bytes)
            or headers
            or partition is not None
            or timestamp is not None
        ):
            check_record(value, key, headers, partition, timestamp)
        known = self._router.known.topics.get(topic)
        count = len(known.partitions) if known is not None else await self._partition_count(topic)
        accumulator = self._accumulator
        size = accumulator.size_of(topic, key, value, headers)
        if not accumulator.has_room(size):
            await self._wait_for_room(size)
        if partition is None:
            if key is None:
                partition = self._sticky.choose(topic, count, size)
            else:
                partition = partition_for_key(key, count)
        elif not 0 <= partition < count:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}[{partition}]",
                f"it has partitions 0 to {count - 1}",
            )
        if self._transactions is not None:
            self._transactions.core.touch((topic, partition))
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        batch, index, begun_or_full = accumulator.append(
            (topic, partition), key, value, size=size, headers=headers, timestamp=timestamp, now=time.monotonic()
        )
        if begun_or_full:
            self._sender.look(batch)
        return Delivery(batch, index, timestamp)

    async def send_batch(
        self, topic: str, records: Iterable[Outgoing | bytes], *, timeout: float | None = None
    ) -> list[Placed | KafkaError]:
        """Send records and wait; one outcome for each, in their order. Raises nothing for a record that failed."""
        seconds = self._router.timeout if timeout is None else timeout
        wanted, deliveries = list(records), list[Delivery | KafkaError]()
        try:
            async with asyncio.timeout(seconds):
                for record in wanted:
                    deliveries.append(await self._hand_over(topic, record))
                self._sender.flush_begins()
                for delivery in deliveries:
                    await _settled(delivery)
        except TimeoutError:
            pass
        late = self._late(topic, seconds)
        unsent = TimedOut(f"the record was not sent to topic {topic!r}: there was no time left of {seconds:g} s")
        return [
            each if isinstance(each, KafkaError) else (each.outcome() if each.done else late) for each in deliveries
        ] + [unsent] * (len(wanted) - len(deliveries))

    def _late(self, topic: str, seconds: float) -> TimedOut:
        trouble = self._sender.trouble
        why = f": {trouble}" if trouble is not None else ""
        return TimedOut(f"topic {topic!r} did not take the record within {seconds:g} s, but may still{why}")

    async def _hand_over(self, topic: str, record: Outgoing | bytes) -> Delivery | KafkaError:
        one = record if isinstance(record, Outgoing) else Outgoing(record)
        try:
            return await self.enqueue(
                topic, one.value, key=one.key, headers=one.headers, partition=one.partition, timestamp=one.timestamp
            )
        except KafkaError as error:
            return error

    async def send_arrow(self, topic: str, table: pyarrow.Table, *, timeout: float | None = None) -> pyarrow.Table:
        """Send the rows of a table and wait until all are stored: partition and offset of each, in their order.

        Columns: value, and if you like key, headers (a list of structs of key and value, or a map), partition and
        timestamp. Raises BadTable before anything is sent, and KafkaError when other rows may be stored.
        """
        seconds = self._router.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                delivery = await self.enqueue_arrow(topic, table)
                self._sender.flush_begins()
                return await delivery
        except TimeoutError:
            raise self._late(topic, seconds) from None

    async def enqueue_arrow(self, topic: str, table: pyarrow.Table) -> TableDelivery:
        """Hand the rows of a table over, and wait only for room; see `send_arrow`. Needs the extra raftlog[arrow]."""
        try:
            from raftlog.client.columns.encode import check, rows_of, windows
            from raftlog.client.columns.outcome import TableDelivery
        except ImportError as error:
            raise MissingExtra("producer.send_arrow()", "arrow") from error
        self._check_usable()
        known = self._router.known.topics.get(topic)
        count = len(known.partitions) if known is not None else await self._partition_count(topic)
        limits = self._accumulator.limits
        chunks = rows_of(table, time.time_ns() // 1_000_000)
        check(chunks, topic, count, limits.max_request_size)
        delivery, first = TableDelivery(), 0
        for rows in windows(chunks, min(WINDOW_BYTES, limits.buffer_memory)):
            size = int(rows.sizes.sum())
            if not self._accumulator.has_room(size):
                await self._wait_for_room(size)
            self._take_in(topic, rows, first, delivery)
            first += len(rows.sizes)
            await asyncio.sleep(0)  # others get their turn
        return delivery

    def _take_in(self, topic: str, rows: Rows, first: int, delivery: TableDelivery) -> None:
        from raftlog.client.columns.encode import pack, partitions_of

        self._check_usable()
        accumulator, now = self._accumulator, time.monotonic()
        limits = accumulator.limits
        count = self._router.known.partition_count(topic)
        partitions = partitions_of(
            rows, count, limits.batch_size, lambda size: self._sticky.choose(topic, count, size)
        )
        for packed in pack(rows, partitions, limits.batch_size, limits.batch_records):
            partition = topic, packed.partition
            if self._transactions is not None:
                self._transactions.core.touch(partition)
            batches = [accumulator.append_packed(partition, each, now) for each in packed.batches]
            delivery.add(packed.rows + first, batches)
            self._sender.look(batches[0])

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every record that was handed over has an outcome. Raises TimedOut; what is left goes on."""
        seconds = self._router.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self._sender.drained()
        except TimeoutError:
            raise TimedOut(f"not all records were taken within {seconds:g} s") from None

    def transaction(self) -> TransactionBlock:
        """`async with producer.transaction() as tx:` commits at the end of the block, and aborts on an exception."""
        if self._transactions is None:
            raise WrongState("a producer with transactions is made with transactional_id=…")
        return TransactionBlock(self, self._transactions)

    async def begin(self) -> None:
        """Begin a transaction. Raises ProducerFenced when another producer has this transactional id."""
        await self._transactional().begin()

    async def commit(self) -> None:
        """Commit it: all of its records, in all partitions, and its offsets. Raises TransactionFailed, ProducerFenced.

        After TimedOut the outcome is not known; call it again to learn it.
        """
        await self._transactional().commit()

    async def abort(self) -> None:
        """Abort it: readers of committed records see none of it."""
        await self._transactional().abort()

    async def prepare(self) -> PreparedTransaction:
        """The first half of a two-phase commit: wait until all of it is stored, and leave it open.

        `Admin.complete_transaction` ends it, in any process; closing this producer does not, and it sends nothing more.
        Nobody ends it: it is aborted after `transaction_timeout`. Raises TransactionFailed, ProducerFenced.
        """
        return await self._transactional().prepare_transaction()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMember | str) -> None:
        """Commit where a group stands, the next offset to read of each partition, as part of the transaction.

        `member` is `Consumer.member` (KIP-447), or only the name of a group that has no members.
        """
        await self.send_positions({each: Position(offset) for each, offset in offsets.items()}, member)

    async def send_positions(self, positions: Mapping[TopicPartition, Position], member: GroupMember | str) -> None:
        """`send_offsets` with leader epochs, and words of one's own (`metadata`) that are kept with each offset."""
        who = GroupMember(member) if isinstance(member, str) else member
        await self._transactional().send_positions(positions, who)

    def _transactional(self) -> TransactionNumbering:
        if self._transactions is None:
            raise WrongState("a producer with transactions is made with transactional_id=…")
        return self._transactions

    async def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, at most for `timeout` seconds, and stop. What has no outcome then fails with Closed.

        Does not raise for records that failed: their deliveries do.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._transactions is not None and self._transactions.core.is_open:
                await self._transactions.abort()
            await self.flush(timeout)
        except KafkaError:
            pass  # who waits for a delivery is told; an open transaction is aborted by the coordinator
        finally:
            self._sender.stop(Closed("the producer was closed before the record was stored; it may be all the same"))
            await self._router.close()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the cores promise does not hold (tests and simulator)."""
        self._accumulator.check_invariants()
        if self._transactions is not None:
            self._transactions.core.check_invariants()

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        await self._learn(topic)
        return list(range(self._router.known.partition_count(topic)))

    async def _learn(self, topic: str) -> None:
        await self._router.retrying(lambda: self._router.topic(topic, create=True), also=CREATED_ON_FIRST_USE)

    async def _partition_count(self, topic: str) -> int:
        await self._learn(topic)
        self._check_usable()
        return self._router.known.partition_count(topic)

    def _check_usable(self) -> None:
        """Also after each time of waiting: it may have been closed meanwhile, or the transaction ended."""
        if self._closed:
            raise Closed("the producer is closed")
        self._sender.check_usable()

    async def _wait_for_room(self, size: int) -> None:
        deadline = time.monotonic() + self._router.timeout
        self._sender.flush_begins()
        while not self._accumulator.has_room(size) or self._waiting_for_room:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_for_room.append(waiter)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await waiter
            except BaseException as error:
                if waiter in self._waiting_for_room:
                    self._waiting_for_room.remove(waiter)
                else:
                    self._make_room()  # it was this one's turn, and now it is the next one's
                if not isinstance(error, TimeoutError):
                    raise
                limit = self._accumulator.limits.buffer_memory
                raise BufferFull(f"{limit} bytes wait to be sent, and no room came free in time") from None
            if self._accumulator.has_room(size):
                break
        self._make_room()
        self._check_usable()

    def _make_room(self) -> None:
        """Let the first of those go on who wait for room; it calls the next."""
        if self._waiting_for_room and self._accumulator.has_room(0):
            waiter = self._waiting_for_room.popleft()
            if not waiter.done():
                waiter.set_result(None)


class TransactionBlock:
    """One transaction of a producer, as `async with`.

    An exception in the block aborts it, and goes on. So does TransactionFailed, the failure of a record: the records of
    a block are stored all or not at all. Where the abort finds that another producer has the transactional id, a
    KafkaError goes on as the cause of ProducerFenced.
    """

    def __init__(self, producer: Producer, numbering: TransactionNumbering) -> None:
        self._producer = producer
        self._numbering = numbering

    async def __aenter__(self) -> TransactionBlock:
        await self._numbering.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._numbering.commit()
            except (TransactionFailed, asyncio.CancelledError) as failed:
                if self._numbering.core.is_open:  # else the coordinator was asked to commit it
                    await self._abort(failed)
                raise
        else:
            await self._abort(error)

    async def _abort(self, reason: BaseException) -> None:
        try:
            await self._numbering.abort()
        except KafkaError as ending:
            # It is aborted first when the next one begins, or by the coordinator after transaction_timeout.
            if isinstance(ending, ProducerFenced) and isinstance(reason, KafkaError) and ending is not reason:
                raise ending from reason

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Hand a record over. That it is stored is seen to at the end of the block."""
        return await self._producer.enqueue(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def send_arrow(self, topic: str, table: pyarrow.Table) -> TableDelivery:
        """Hand the rows of a table over, as `Producer.enqueue_arrow` does."""
        return await self._producer.enqueue_arrow(topic, table)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMember | str) -> None:
        """See `Producer.send_offsets`."""
        await self._producer.send_offsets(offsets, member)


async def _settled(delivery: Delivery | KafkaError) -> None:
    if isinstance(delivery, KafkaError) or delivery.done:
        return
    try:
        await delivery
    except KafkaError:
        pass
