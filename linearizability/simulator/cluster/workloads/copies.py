"""Consume, transform, produce with the shipped client (`client/`): transactional producers and members of a group."""

from __future__ import annotations

import asyncio
from collections import Counter

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, TRANSACTION_TOPIC
from raftlog.client.batch import Batch
from raftlog.client.client import Client
from raftlog.client.consumer import Consumer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import KafkaError, ProducerFenced, TimedOut
from raftlog.client.producer import Producer
from raftlog.linearizability.simulator.cluster.client import Producer as SourceProducer
from raftlog.linearizability.simulator.cluster.simulated_broker import KAFKA_PORT, host_of
from raftlog.linearizability.simulator.cluster.transaction_logs import decided
from raftlog.linearizability.simulator.cluster.workloads.clients import ANSWER_SECONDS, CALL_SECONDS, SESSION_SECONDS
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.transfers import TIMEOUTS_MS
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext

PARTITIONS = 2
WORKERS = 2
TAKEN_MAX = 4
"""Records in one transaction."""
STAND_STILL_SECONDS = 3.0


LEAVE_CHANCE = 0.1
"""How often a worker leaves its group before it commits."""


class _Dropped(Exception):
    """A worker thinks better of a transaction."""


class Copies(TopicWorkload):
    """Every record of the source is in the output exactly once, in the order of its partition; readers of committed
    records get just that; who was fenced is told so, and nobody else.
    """

    kind = "copies"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.source = self.topic
        self.output = f"{self.topic}.out"
        self.hunted = [(self.output, 0), (GROUP_TOPIC, 0), (TRANSACTION_TOPIC, 0), (TRANSACTION_TOPIC, 1)]
        self._protocol = self.random.choice(("classic", "consumer"))
        # Two instances of one transactional id, or an id for each worker.
        self._shares_id = self.random.random() < 0.3
        self._pauses = context.ways(f"{self.source}.pauses").random
        self._leaves = context.ways(f"{self.source}.leaves").random
        self._begun: dict[int, int] = {}
        self._read: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]

    async def run(self) -> None:
        """See Workload."""
        await self.create({}, partitions=PARTITIONS)
        await self.create({}, partitions=PARTITIONS, topic=self.output)
        bootstrap = [Address(host_of(node), KAFKA_PORT) for node in self.context.nodes]
        async with Client(bootstrap, client_id=self.topic, timeout=CALL_SECONDS) as client:
            reader = asyncio.ensure_future(self._follow(client))
            workers = [asyncio.ensure_future(self._work(client, number)) for number in range(WORKERS)]
            await self._fill()
            while not self._is_done():
                await asyncio.sleep(0.1)
                for failed in [task for task in (reader, *workers) if task.done()]:
                    failed.result()
            for task in (reader, *workers):
                task.cancel()
            await asyncio.gather(reader, *workers, return_exceptions=True)

    async def _fill(self) -> None:
        ways = self.context.ways(f"{self.source}.source")
        producer = SourceProducer(ways, self.log, self.source, idempotent=True)
        while not self.context.calm():
            await producer.append(ways.random.randrange(PARTITIONS), ways.random.randint(1, 3), 3.0)
            await asyncio.sleep(0.05 + 0.2 * ways.random.random())

    def _is_done(self) -> bool:
        """Whether the reader of committed records has had as many as are in the source, or more."""
        ends = [self.context.invariants.end_of(self.source, partition) for partition in range(PARTITIONS)]
        return all(len(read) >= end >= 0 for read, end in zip(self._read, ends, strict=True))

    # Workers ---------------------------------------------------------------------------------------------------

    async def _work(self, client: Client, number: int) -> None:
        watch = self.context.invariants.clients.watch
        # Of two that fence each other one leaves in the end.
        while number == 0 or not (self._shares_id and self.context.calm()):
            try:
                async with (
                    watch(self._producer(client, number)) as producer,
                    watch(self._consumer(client)) as consumer,
                ):
                    await self._copy(number, producer, consumer)
                self.count("copiers that left")
            except ProducerFenced:
                self.count("copiers that were fenced")
                # Who took too long, by its clock, is fenced by the coordinator, which aborted the transaction.
                lasted = self.log.now() - self._begun.get(number, 0)
                is_late = lasted >= min(TIMEOUTS_MS) * 1_000_000 or self.context.invariants.clocks_jump
                if not self._shares_id and not is_late:
                    self.fail("fencing", f"{self.source}.{number} is fenced, and nobody else has its transactional id")
            except (KafkaError, _Dropped):
                self.count("copiers that began anew")
            await asyncio.sleep(0.05)

    def _producer(self, client: Client, number: int) -> Producer:
        random = self.random
        return client.producer(
            transactional_id=f"{self.source}.{0 if self._shares_id else number}",
            transaction_timeout=random.choice(TIMEOUTS_MS) / 1000,
            linger=random.choice((0.0, 0.005)),
            request_timeout=ANSWER_SECONDS,
            delivery_timeout=CALL_SECONDS,
            retry_backoff=0.05,
        )

    def _consumer(self, client: Client) -> Consumer:
        return client.consumer(
            self.source,
            group=f"{self.source}.group",
            protocol=self._protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout=SESSION_SECONDS,
            heartbeat_interval=0.1,
            rebalance_timeout=1.5,
            fetch_max_wait=0.1,
            request_timeout=ANSWER_SECONDS,
            metadata_max_age=2.0,
        )

    async def _copy(self, number: int, producer: Producer, consumer: Consumer) -> None:
        """Until it leaves, or an error says that its position is not known any more."""
        random, pauses = self.random, self._pauses
        while self.context.calm() or random.random() >= 0.02:
            batch = await consumer.poll(TAKEN_MAX, timeout=0.5)
            if not batch:
                continue
            if not self.context.calm() and pauses.random() > 0.94:
                # With records in hand, and no transaction yet that could take too long: the group goes on.
                self.count("copiers that stood still before")
                await asyncio.sleep(STAND_STILL_SECONDS * pauses.random())
            self._begun[number] = self.log.now()
            try:
                await self._transact(producer, consumer, batch)
            except TimedOut:
                # Perhaps it was the commit: asked again, it tells.
                self.count("transactions of unknown outcome")
                await producer.commit()
            batch.done()
            self.count("transactions of copiers")

    async def _transact(self, producer: Producer, consumer: Consumer, batch: Batch) -> None:
        random = self.random
        async with producer.transaction() as transaction:
            for record in batch:
                await transaction.send(self.output, record.value, partition=record.partition)
            if not self.context.calm():
                if random.random() < 0.08:
                    self.count("copiers that stood still")
                    await asyncio.sleep(STAND_STILL_SECONDS * random.random())
                if random.random() < 0.05:
                    self.count("transactions dropped")
                    raise _Dropped
            await transaction.send_offsets(batch.end_offsets, consumer.member)
            if not self.context.calm() and self._leaves.random() < LEAVE_CHANCE:
                # Whoever gets its partitions has to wait for the end of this (KIP-447).
                self.count("copiers that left before they committed")
                await consumer.close()
                await asyncio.sleep(STAND_STILL_SECONDS * self._leaves.random())

    # Readers ---------------------------------------------------------------------------------------------------

    async def _follow(self, client: Client) -> None:
        """Read the output as it is committed."""
        while True:
            try:
                await self._read_on(client)
            except KafkaError:
                await asyncio.sleep(0.1)

    async def _read_on(self, client: Client) -> None:
        reads = client.consumer(
            self.output, auto_offset_reset="earliest", fetch_max_wait=0.1, request_timeout=ANSWER_SECONDS
        )
        async with self.context.invariants.clients.watch(reads) as consumer:
            while True:
                for record in await consumer.poll(timeout=0.5):
                    assert record.value is not None
                    self._take(record.partition, record.offset, int(record.value))

    def _take(self, partition: int, offset: int, value: int) -> None:
        before = self._read[partition].setdefault(offset, value)
        if before != value:
            self.fail("read committed", f"{self.output}-{partition}: {before} and {value} are at {offset}")

    def judge(self) -> None:
        """See Workload."""
        invariants = self.context.invariants
        for partition in range(PARTITIONS):
            _, wanted = invariants.values(self.source, partition)
            found = decided(invariants.batches(self.output, partition))
            where = f"{self.output}-{partition}"
            if found.open or found.wrong:
                self.fail("marker order", f"{where}: open {found.open}, {found.wrong}")
            got = [value for _, value in found.visible]
            if got != list(wanted):
                twice = [value for value, times in Counter(got).items() if times > 1]
                missing = sorted(set(wanted) - set(got))
                self.fail("exactly once", f"{where}: twice {twice}, missing {missing}, {got} of {wanted}")
            if self._read[partition] != dict(found.visible):
                self.fail("read committed", f"{where}: {self._read[partition]} was read, {found.visible} is committed")
