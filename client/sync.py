"""The client for code without asyncio: the same names, each call waits for its result.

One thread runs the event loop; heartbeats and sending go on there while the caller does something else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from raftlog.client.admin import Admin
from raftlog.client.batch import Batch
from raftlog.client.client import Client
from raftlog.client.consumer import Consumer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import Closed
from raftlog.client.core.fetched import ConsumerRecord
from raftlog.client.core.membership import Partitions
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.producer_batch import HeaderPairs
from raftlog.client.core.settings import ConsumerOptions, ConsumerSettings, ProducerOptions, ProducerSettings
from raftlog.client.delivery import Delivery
from raftlog.client.group_runner import Listener
from raftlog.client.loop_thread import LoopThread
from raftlog.client.offsets import GroupMember
from raftlog.client.producer import Producer

if TYPE_CHECKING:
    import ssl

    import pyarrow

    from raftlog.client.columns.outcome import TableDelivery

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The same method, with the same parameters, that waits for its result."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._thread.run(method(self.inner, *args, **kwargs))
        return result

    return call


def _in_the_thread(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The same method, which waits for nothing, run where the event loop is."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._thread.call(lambda: method(self.inner, *args, **kwargs))
        return result

    return call


class SyncAdmin:
    """See `Admin`."""

    def __init__(self, inner: Admin, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread

    metadata = _blocking(Admin.metadata)
    topic = _blocking(Admin.topic)
    create_topic = _blocking(Admin.create_topic)
    delete_topic = _blocking(Admin.delete_topic)
    create_partitions = _blocking(Admin.create_partitions)
    describe_configs = _blocking(Admin.describe_configs)
    alter_configs = _blocking(Admin.alter_configs)
    delete_records = _blocking(Admin.delete_records)
    offsets_at = _blocking(Admin.offsets_at)
    offline_logs = _blocking(Admin.offline_logs)
    coordinator = _blocking(Admin.coordinator)
    list_groups = _blocking(Admin.list_groups)
    leaderless_partitions = _blocking(Admin.leaderless_partitions)
    describe_group = _blocking(Admin.describe_group)
    delete_group = _blocking(Admin.delete_group)
    committed_offsets = _blocking(Admin.committed_offsets)
    commit_offsets = _blocking(Admin.commit_offsets)
    lag = _blocking(Admin.lag)
    group_progress = _blocking(Admin.group_progress)
    list_transactions = _blocking(Admin.list_transactions)
    describe_transaction = _blocking(Admin.describe_transaction)
    open_transactions = _blocking(Admin.open_transactions)
    hanging_transactions = _blocking(Admin.hanging_transactions)
    abort_transaction = _blocking(Admin.abort_transaction)
    complete_transaction = _blocking(Admin.complete_transaction)
    decision = _blocking(Admin.decision)
    end_in_partition = _blocking(Admin.end_in_partition)
    describe_cluster = _blocking(Admin.describe_cluster)
    describe_quorum = _blocking(Admin.describe_quorum)
    add_voter = _blocking(Admin.add_voter)
    remove_voter = _blocking(Admin.remove_voter)
    take_over_quorum = _blocking(Admin.take_over_quorum)
    elect = _blocking(Admin.elect)
    reassign = _blocking(Admin.reassign)
    reassignments = _blocking(Admin.reassignments)
    replica_sizes = _blocking(Admin.replica_sizes)
    unregister = _blocking(Admin.unregister)


class SyncProducer:
    """See `Producer`."""

    def __init__(self, inner: Producer, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread

    def __enter__(self) -> SyncProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    send = _blocking(Producer.send)
    enqueue = _blocking(Producer.enqueue)
    send_batch = _blocking(Producer.send_batch)
    send_arrow = _blocking(Producer.send_arrow)
    enqueue_arrow = _blocking(Producer.enqueue_arrow)
    flush = _blocking(Producer.flush)
    partitions = _blocking(Producer.partitions)
    begin = _blocking(Producer.begin)
    commit = _blocking(Producer.commit)
    prepare = _blocking(Producer.prepare)
    abort = _blocking(Producer.abort)
    send_offsets = _blocking(Producer.send_offsets)
    send_positions = _blocking(Producer.send_positions)
    close = _blocking(Producer.close)

    @property
    def settings(self) -> ProducerSettings:
        return self.inner.settings

    def transaction(self) -> SyncTransaction:
        """`with producer.transaction() as tx:` commits at the end of the block, and aborts on an exception."""
        return SyncTransaction(self, self._thread)


class SyncTransaction:
    """See `TransactionBlock`."""

    def __init__(self, producer: SyncProducer, thread: LoopThread) -> None:
        self._producer = producer
        self._block = producer.inner.transaction()
        self._thread = thread

    def __enter__(self) -> SyncTransaction:
        self._thread.run(self._block.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.run(self._block.__aexit__(kind, error, at))

    def send(
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
        return self._thread.run(
            self._block.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        )

    def send_arrow(self, topic: str, table: pyarrow.Table) -> TableDelivery:
        """See `TransactionBlock.send_arrow`."""
        return self._thread.run(self._block.send_arrow(topic, table))

    def send_offsets(self, offsets: Mapping[TopicPartition, int], member: GroupMember | str) -> None:
        """See `Producer.send_offsets`."""
        self._thread.run(self._block.send_offsets(offsets, member))


class SyncConsumer:
    """See `Consumer`. Its listeners are called in the event loop's thread, and must not call back."""

    def __init__(self, inner: Consumer, thread: LoopThread) -> None:
        self.inner = inner
        self._thread = thread

    def __enter__(self) -> SyncConsumer:
        self._thread.run(self.inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    start = _blocking(Consumer.start)
    close = _blocking(Consumer.close)
    assigned = _blocking(Consumer.assigned)
    position = _blocking(Consumer.position)
    lag = _blocking(Consumer.lag)
    commit = _blocking(Consumer.commit)

    def poll(self, max_records: int = 500, *, timeout: float | None = None, wait: float = 0.0) -> Batch:
        """See `Consumer.poll`."""
        batch = self._thread.run(self.inner.poll(max_records, timeout=timeout, wait=wait))
        batch.in_the_loop = self._thread.call
        return batch

    def batches(self, max_records: int = 500, *, wait: float = 0.0) -> Iterator[Batch]:
        """Batches without end, none of them empty. Call `done()` on each when its work is done."""
        while True:
            batch = self.poll(max_records, wait=wait)
            if batch:
                yield batch

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record, without end. To ask for the next one says that the one before is done."""
        self._thread.call(self.inner.finish_current)
        for batch in self.batches():
            yield from self._records_of(batch)

    def _records_of(self, batch: Batch) -> Iterator[ConsumerRecord]:
        given = 0
        try:
            for record in (record for part in batch.parts() for record in part.records()):
                given += 1
                yield record
        except BaseException:
            # The loop was left: another one goes on behind the last record.
            with suppress(Closed):
                self._thread.call(lambda: self.inner.break_off(batch, given))
            raise
        self.done(batch)

    def done(self, batch: Batch) -> bool:
        """`batch.done()`, which may be called here too."""
        return self._thread.call(batch.done)

    assign = _in_the_thread(Consumer.assign)
    seek = _in_the_thread(Consumer.seek)
    seek_to_beginning = _blocking(Consumer.seek_to_beginning)
    seek_to_end = _blocking(Consumer.seek_to_end)
    seek_to_time = _blocking(Consumer.seek_to_time)
    seek_to_committed = _blocking(Consumer.seek_to_committed)
    committed = _blocking(Consumer.committed)
    pause = _in_the_thread(Consumer.pause)
    resume = _in_the_thread(Consumer.resume)
    unavailable = _in_the_thread(Consumer.unavailable)

    @property
    def settings(self) -> ConsumerSettings:
        return self.inner.settings

    @property
    def assignment(self) -> Partitions:
        return self._thread.call(lambda: self.inner.assignment)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._thread.call(lambda: self.inner.positions)

    @property
    def assignments(self) -> int:
        return self.inner.assignments

    @property
    def assigned_generation(self) -> int:
        return self.inner.assigned_generation

    @property
    def paused(self) -> Partitions:
        return self._thread.call(lambda: self.inner.paused)

    @property
    def member(self) -> GroupMember:
        return self._thread.call(lambda: self.inner.member)

    def listen(
        self,
        *,
        assigned: Listener | None = None,
        revoked: Listener | None = None,
        lost: Listener | None = None,
    ) -> None:
        """Set `on_assigned`, `on_revoked` and `on_lost` of the consumer."""
        self.inner.on_assigned, self.inner.on_revoked, self.inner.on_lost = assigned, revoked, lost


class SyncClient:
    """See `Client`. For one thread or several."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address | str],
        *,
        client_id: str = "raftlog",
        timeout: float = 15.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.inner = Client(bootstrap, client_id=client_id, timeout=timeout, tls=tls)
        self._thread = LoopThread()
        self.admin = SyncAdmin(self.inner.admin, self._thread)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._thread.run(self.inner.close())
        finally:
            self._thread.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that uses `inner`, the client that does not block, or what is `inner` of others."""
        return self._thread.run(work)

    @property
    def timeout(self) -> float:
        return self.inner.timeout

    def producer(self, **options: Unpack[ProducerOptions]) -> SyncProducer:
        """To be used as `with`."""
        return SyncProducer(self._thread.call(lambda: self.inner.producer(**options)), self._thread)

    def consumer(self, *topics: str, pattern: str | None = None, **options: Unpack[ConsumerOptions]) -> SyncConsumer:
        """To be used as `with`."""
        inner = self._thread.call(lambda: self.inner.consumer(*topics, pattern=pattern, **options))
        return SyncConsumer(inner, self._thread)
