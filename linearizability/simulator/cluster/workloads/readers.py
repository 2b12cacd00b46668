"""The shipped consumer as people use it, who commit and finish what they read when and how they like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from raftlog.client.batch import Batch
from raftlog.client.client import Client
from raftlog.client.consumer import Consumer
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.fetched import ConsumerRecord
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.settings import ConsumerOptions
from raftlog.client.offsets import GroupMember
from raftlog.linearizability.simulator.cluster.workloads.clients import STAND_STILL_SECONDS, Clients, Way
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext
from raftlog.linearizability.simulator.violation import Violation

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
POLL_SECONDS = 0.3
REBALANCE_SECONDS = 0.6
"""Short: the group goes on without who is slow."""
UNDONE_MAX = 4
"""Batches that a consumer works on at once."""


class Readers(Clients):
    """As `clients`; and the group begins nowhere below what was committed, and nowhere above what was not done."""

    kind = "readers"
    partitions = 3
    consumers = 3

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        random = self.random
        self._assignor = random.choice(ASSIGNORS)
        self._chooses = random.random() < 0.5
        """Whether consumers commit offsets that they name, and not what is done."""
        places = range(self.consumers)
        self._instances = [f"{self.topic}.{place}" if random.random() < 0.3 else None for place in places]
        self._done: list[set[int]] = [set() for _ in range(self.partitions)]
        self._committed = [0] * self.partitions
        """The highest offset whose commit was acknowledged."""
        self._wrong: list[Violation] = []

    def options(self, place: int) -> ConsumerOptions:
        """See Clients."""
        options = super().options(place)
        options["assignors"] = (self._assignor,)
        options["enable_auto_commit"] = not self._chooses
        options["rebalance_timeout"] = REBALANCE_SECONDS
        options["group_instance_id"] = self._instances[place]
        return options

    def consumer(self, client: Client, place: int) -> Consumer:
        """See Clients."""
        consumer = super().consumer(client, place)
        consumer.on_assigned = lambda partitions: self._begins(consumer, partitions)
        return consumer

    def _begins(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """The group has given it these partitions: it begins where they are committed."""
        for where in sorted(partitions):
            partition, at = where[1], consumer.positions.get(where, 0)
            self.count("partitions given")
            if at < self._committed[partition]:
                text = f"{self.topic}-{partition} begins at {at}, and {self._committed[partition]} was committed"
                self._wrong.append(Violation("committed offsets", text))
            undone = [offset for offset in range(at) if offset not in self._done[partition]]
            if undone:
                text = f"{self.topic}-{partition} begins at {at}, and {undone} are not done"
                self._wrong.append(Violation("commits", text))

    def check(self) -> None:
        """Raises Violation for what was seen where the client would have caught it."""
        if self._wrong:
            raise self._wrong[0]

    def done(self, records: Iterable[ConsumerRecord]) -> None:
        """Somebody has worked on these."""
        for record in records:
            self._done[record.partition].add(record.offset)

    def judge(self) -> None:
        """See Workload."""
        self.check()
        super().judge()

    async def read(self, consumer: Consumer) -> None:
        """See Clients."""
        if self._chooses:
            await Choosing(self, consumer).live()
        elif self.random.random() < 0.3:
            await OneByOne(self, consumer).live()
        else:
            await Finishing(self, consumer).live()

    async def commit(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, int], member: GroupMember | None
    ) -> None:
        """What was acknowledged is not undone, and who names no member commits only what it has."""
        before, assignments = list(self._committed), consumer.assignments
        lost = [each for each in offsets if member is None and each not in consumer.assignment]
        try:
            await consumer.commit(offsets, member=member)
        except KafkaError:
            self.count("commits refused")
            return
        self.count("commits taken")
        if lost and consumer.assignments == assignments:
            self.fail("committed offsets", f"{lost} are not this member's, and {offsets} is taken")
        for (_, partition), offset in offsets.items():
            if offset < before[partition]:
                text = f"{self.topic}-{partition}: {offset} is taken, and {before[partition]} was committed"
                self.fail("committed offsets", text)
            self._committed[partition] = max(offset, self._committed[partition])


class Life:
    """What one consumer does until it leaves."""

    def __init__(self, workload: Readers, consumer: Consumer) -> None:
        self.workload = workload
        self.consumer = consumer
        self.random = workload.random
        self.way = Way(workload, consumer)

    async def live(self) -> None:
        """Raises KafkaError."""
        while True:
            await self.step()
            self.workload.check()
            chance = self.random.random()
            if self.workload.context.calm():
                continue
            if chance < 0.06:
                return
            if chance < 0.1:
                self.workload.count("consumers that stood still")
                await asyncio.sleep(STAND_STILL_SECONDS * self.random.random())
            elif chance < 0.13:
                self.workload.count("consumers that went back to what is committed")
                await self.consumer.seek_to_committed()
                self.way.move()
                self.forget()

    async def step(self) -> None:
        """Read, and do something about it."""
        raise NotImplementedError

    def forget(self) -> None:
        """What was read does not count any more."""

    async def poll(self) -> Batch | None:
        """Some records, few or many; None when it loses patience before it has those that it waits for."""
        most, wait = self.random.choice((1, 3, 500)), self.random.choice((0.0, 0.05, 0.5))
        try:
            async with asyncio.timeout(POLL_SECONDS * (0.2 + self.random.random())):
                batch = await self.consumer.poll(most, timeout=POLL_SECONDS, wait=wait)
        except TimeoutError:
            return None
        self.way.take(batch)
        return batch


class Finishing(Life):
    """Batches are done at once, or late and out of order."""

    def __init__(self, workload: Readers, consumer: Consumer) -> None:
        super().__init__(workload, consumer)
        self._is_late = self.random.random() < 0.5
        self._undone: list[Batch] = []

    async def step(self) -> None:
        """See Life."""
        if batch := await self.poll():
            self._undone.append(batch)
        while self._undone and not (self._is_late and len(self._undone) <= UNDONE_MAX and self.random.random() < 0.5):
            finished = self._undone.pop(self.random.randrange(len(self._undone)))
            self.workload.done(finished)
            finished.done()
        if self.random.random() < 0.1:
            try:
                await self.consumer.commit()
            except KafkaError:
                self.workload.count("commits refused")

    def forget(self) -> None:
        """See Life."""
        self._undone.clear()


class OneByOne(Life):
    """Record after record, with no patience: to ask for one says that the one before is done."""

    def __init__(self, workload: Readers, consumer: Consumer) -> None:
        super().__init__(workload, consumer)
        self._current: list[ConsumerRecord] = []

    async def step(self) -> None:
        """See Life."""
        self.workload.done(self._current)
        self._current = []
        try:
            async with asyncio.timeout(POLL_SECONDS * self.random.random()):
                self._current = [await anext(self.consumer)]
        except TimeoutError:
            return
        self.way.take(self._current)
        await asyncio.sleep(0.02 * self.random.random())

    def forget(self) -> None:
        """See Life."""
        self._current = []


class Choosing(Life):
    """Offsets are committed that it names, some time after it has read so far, with or without saying as whom."""

    def __init__(self, workload: Readers, consumer: Consumer) -> None:
        super().__init__(workload, consumer)
        self._read: dict[TopicPartition, int] = {}
        self._given: list[ConsumerRecord] = []
        self._member: GroupMember | None = None

    async def step(self) -> None:
        """See Life."""
        batch = await self.poll()
        if batch is None:
            return
        try:
            member = self.consumer.member
        except Rejected:
            return  # not in its group: what it was given is read again
        if self._member != member:
            self._member = member
            self._read.clear()
        self._read |= batch.end_offsets
        self._given += batch
        if not self._read or self.random.random() < 0.4:
            return
        if not self.workload.context.calm() and self.random.random() < 0.4:
            await asyncio.sleep(STAND_STILL_SECONDS * self.random.random())
        offsets, self._read = self._read, {}
        self.workload.done(each for each in self._given if each.offset < offsets.get((each.topic, each.partition), 0))
        await self.workload.commit(self.consumer, offsets, self._member if self.random.random() < 0.5 else None)

    def forget(self) -> None:
        """See Life."""
        self._read.clear()
