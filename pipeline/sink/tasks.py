"""One task's writing: at least once, or in a transaction that holds the rows and the marker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from raftlog.client.columns.outcome import TableDelivery
from raftlog.client.core.progress import Position
from raftlog.client.core.transaction import PreparedTransaction
from raftlog.client.offsets import committed_offsets
from raftlog.client.producer import Producer
from raftlog.pipeline.session import Session, session
from raftlog.pipeline.sink.columns import by_topic, fingerprint, in_small_letters, to_send
from raftlog.pipeline.sink.decision import check_switch, is_decided, transactional_id
from raftlog.pipeline.sink.mapping import Mapping
from raftlog.pipeline.sink.marker import Fingerprint, Marker, check_same, is_written, marker_group, read_marker
from raftlog.pipeline.sink.options import TASK, SinkOptions
from raftlog.pipeline.sink.owner import Owner


class TaskId(NamedTuple):
    """Which part of what is written. `run` of the query and `slot` of the task's attempt: see sink/decision.py."""

    sink_id: str
    query: str
    batch: int
    partition: int
    run: str
    slot: int

    @property
    def transactional_id(self) -> str:
        return f"{self.sink_id}-{self.partition}"

    @property
    def group(self) -> str:
        """Where the marker lies."""
        return marker_group(self.sink_id, self.partition)


class Result(NamedTuple):
    """`rows` of the task; `was_written`: by an earlier attempt, which had committed them.

    `prepared`: the transaction that waits for the driver's decision, and `topic`, one that it writes to.
    """

    rows: int
    was_written: bool
    prepared: PreparedTransaction | None = None
    topic: str | None = None


class Task(Protocol):
    async def begin(self) -> None: ...

    async def send(self, batch: pa.RecordBatch) -> None: ...

    async def finish(self) -> Result: ...

    async def close(self) -> None: ...


def write_rows(options: SinkOptions, task_id: TaskId, batches: Iterator[pa.RecordBatch]) -> Result:
    """Write a task's rows and return when they are stored.

    Raises KafkaError, SinkInUse, RowsMoved, ProtocolChanged, NoTopic.
    """
    running = session(options.connection)
    task: Task
    if options.two_phase:
        task = Prepared(running, options, task_id)
    elif options.exactly_once:
        task = ExactlyOnce(running, options, task_id)
    else:
        task = AtLeastOnce(running, options)
    try:
        running.run(task.begin())
        for batch in batches:
            if batch.num_rows:
                running.run(task.send(in_small_letters(batch)))
        return running.run(task.finish())
    finally:
        running.run(task.close())


class Rows:
    """Hands rows to a producer, and keeps count."""

    def __init__(self, producer: Producer, options: SinkOptions) -> None:
        self.first_topic: str | None = None
        self.count = 0
        self._producer = producer
        self._options = options
        self._under_way: list[tuple[str, pa.RecordBatch | None, TableDelivery]] = []
        self._mapping = Mapping()

    async def send(self, batch: pa.RecordBatch) -> None:
        """Raises KafkaError, also for a record of an earlier batch that was refused."""
        self._check()
        for topic, rows in by_topic(batch, self._options.topic):
            self.first_topic = self.first_topic or topic
            table = to_send(rows, self._options.columns)
            kept = None if self._options.mapping is None else rows
            self._under_way.append((topic, kept, await self._producer.enqueue_arrow(topic, table)))
        self.count += batch.num_rows

    async def stored(self) -> None:
        """Wait until every row is stored. Raises KafkaError."""
        await self._producer.flush(self._options.connection.timeout)
        self._check()

    async def tell_mapping(self) -> None:
        """Write where the rows were read and where they are now, if there is a topic for it. Raises KafkaError."""
        topic = self._options.mapping
        if topic is None:
            return
        await self.stored()
        told = self._mapping.records()
        if told is not None:
            self._under_way.append((topic, None, await self._producer.enqueue_arrow(topic, told)))

    def _check(self) -> None:
        left = []
        for topic, rows, delivery in self._under_way:
            if not delivery.done:
                left.append((topic, rows, delivery))
                continue
            placed = delivery.placed()  # raises what a row failed with
            if rows is not None:
                self._mapping.add(rows, topic, placed)
        self._under_way = left


class AtLeastOnce:
    """An idempotent producer: rows are written again only when a task or a micro-batch is."""

    def __init__(self, running: Session, options: SinkOptions) -> None:
        self._running = running
        self._options = options
        self._producer: Producer | None = None

    async def begin(self) -> None:
        self._producer = await self._running.producer(self._options.producer)
        self._rows = Rows(self._producer, self._options)

    async def send(self, batch: pa.RecordBatch) -> None:
        await self._rows.send(batch)

    async def finish(self) -> Result:
        await self._rows.stored()
        return Result(self._rows.count, False)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


class ExactlyOnce:
    """Rows and marker in one transaction.

    The order is what makes it safe: to begin fences every other attempt of this task, and only then is the marker read.
    Whoever comes later fences this one; whoever was earlier has committed, and is seen, or never will. A query that the
    sink does not belong to is refused before it fences anybody, and where the sink has no owner yet, before it commits.
    """

    def __init__(self, running: Session, options: SinkOptions, task_id: TaskId) -> None:
        self._running = running
        self._options = options
        self._id = task_id
        self._found: Marker | None = None
        self._is_written = False
        self._owner = Owner(running, options, task_id.sink_id, task_id.query, task_id.batch)
        self._fingerprint = Fingerprint()
        self._producer: Producer | None = None

    async def begin(self) -> None:
        task = self._id
        decided = await self._owner.look()
        self._producer = await self._running.producer(self._options.producer, task.transactional_id)
        self._rows = Rows(self._producer, self._options)
        await self._producer.begin()
        committed = await committed_offsets(self._running.router, task.group, require_stable=True)
        self._found = read_marker((each.offset, each.metadata) for each in committed.values())
        self._is_written = is_written(self._found, task.sink_id, task.query, task.batch)
        if not self._is_written:
            check_switch(None if decided is None else decided.batch, task.batch, task.sink_id, TASK)

    async def send(self, batch: pa.RecordBatch) -> None:
        self._fingerprint += fingerprint(batch)
        if self._is_written:
            return
        await self._rows.send(batch)
        assert self._rows.first_topic is not None
        await self._owner.claim(self._rows.first_topic)  # now the topic is there, if to send makes it

    async def finish(self) -> Result:
        assert self._producer is not None
        if self._is_written:
            assert self._found is not None
            check_same(self._found, self._id.batch, self._fingerprint)
        elif self._rows.first_topic is not None:
            await self._rows.tell_mapping()
            marker = Marker(self._id.query, self._id.batch, self._fingerprint)
            where = (self._rows.first_topic, 0)
            position = Position(marker.offset, metadata=marker.metadata())
            await self._producer.send_positions({where: position}, self._id.group)
            await self._producer.commit()
        return Result(self._fingerprint.rows, self._is_written)

    async def close(self) -> None:
        """What was not committed is aborted."""
        if self._producer is not None:
            await self._producer.close()


class Prepared:
    """Rows in a transaction that is left open: the driver decides over those of all tasks (sink/two_phase.py).

    Each attempt has a transactional id of its own, so that none can end what another one has prepared.
    """

    def __init__(self, running: Session, options: SinkOptions, task_id: TaskId) -> None:
        self._running = running
        self._options = options
        self._id = task_id
        self._is_written = False
        self._owner = Owner(running, options, task_id.sink_id, task_id.query, task_id.batch)
        self._count = 0
        self._producer: Producer | None = None

    async def begin(self) -> None:
        task = self._id
        decided = await self._owner.look()
        self._is_written = is_decided(decided, task.sink_id, task.query, task.batch)

    async def send(self, batch: pa.RecordBatch) -> None:
        self._count += batch.num_rows
        if self._is_written:
            return
        if self._producer is None:
            task = self._id
            name = transactional_id(task.sink_id, task.run, task.slot)
            self._producer = await self._running.producer(self._options.producer, name)
            self._rows = Rows(self._producer, self._options)
            await self._producer.begin()
        await self._rows.send(batch)
        assert self._rows.first_topic is not None
        await self._owner.claim(self._rows.first_topic)  # now the topic is there, if to send makes it

    async def finish(self) -> Result:
        if self._producer is None:
            return Result(self._count, self._is_written)
        await self._rows.tell_mapping()
        prepared = await self._producer.prepare()
        return Result(self._count, False, prepared, self._rows.first_topic)

    async def close(self) -> None:
        """What was not prepared is aborted."""
        if self._producer is not None:
            await self._producer.close()
