"""Transactions over several partitions while faults happen, and instances of one transactional id that do not know of
each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.transaction_logs import Decided, decided
from raftlog.linearizability.simulator.cluster.transactional_client import (
    CommittedReader,
    Ending,
    Failed,
    Transaction,
    TransactionalProducer,
)
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext

PARTITIONS = 3
TRANSACTION_TOPIC = "__transaction_state"
TIMEOUTS_MS = (600, 1200, 3000)
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
END_TRANSACTIONS = 2
"""So many transactions each id has committed after the faults."""


class Transfers(TopicWorkload):
    """A transaction is in all its partitions or in none; one whose commit was answered is, one that was aborted never
    is; who was fenced commits nothing; when the faults are over no transaction is left open.
    """

    kind = "transfers"
    timeouts_ms: Sequence[int] = TIMEOUTS_MS
    versions: Sequence[int] = (1, 2, 2)

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.transactions: list[Transaction] = []
        self.readers: list[CommittedReader] = []
        # By id: when an instance asked for its epoch, and when it had it.
        self._instances: dict[str, set[tuple[int, int]]] = {}
        self._committed: dict[str, int] = {}
        self._decided: list[Decided] = []
        self.hunted = [(self.topic, 0), (TRANSACTION_TOPIC, 0), (TRANSACTION_TOPIC, 1)]

    async def run(self) -> None:
        """See Workload."""
        await self.create({}, partitions=PARTITIONS)
        version = self.random.choice(self.versions)
        names = [f"{self.topic}-a", f"{self.topic}-b", f"{self.topic}-b"]
        ways = [self.context.ways(f"{self.topic}.{number}") for number in range(len(names))]
        self.readers = [
            CommittedReader(self.context.ways(f"{self.topic}.reader{partition}"), self.topic, partition)
            for partition in range(PARTITIONS)
        ]
        readers = [asyncio.ensure_future(self._read(reader)) for reader in self.readers]
        # Of two that fence each other one has to leave before the other can be sure of anything.
        await asyncio.gather(
            self._live(ways[0], names[0], version, goes_on=True),
            self._live(ways[1], names[1], version, goes_on=True),
            self._live(ways[2], names[2], version, goes_on=False),
            *self.others(version),
        )
        await self._catch_up(readers)
        for reader in readers:
            reader.cancel()

    def others(self, version: int) -> Sequence[Coroutine[None, None, None]]:
        """Who works beside them."""
        return ()

    async def prepare(self, producer: TransactionalProducer) -> None:
        """What a producer does before it begins a transaction."""

    def refused(self, producer: TransactionalProducer, transaction: Transaction, code: str) -> None:
        """A producer heard that its transaction does not go on, or was not ended."""

    def rest_seconds(self, random: Random) -> float:
        """How long a producer has nothing to do."""
        return 0.02 + 0.1 * random.random()

    async def _live(self, ways: Connections, name: str, version: int, *, goes_on: bool) -> None:
        random = ways.random
        producer = self.producer(ways, name, version)
        while not self.context.calm() or (goes_on and self._committed.get(name, 0) < END_TRANSACTIONS):
            if not producer.is_ready and not await producer.initialize():
                await asyncio.sleep(0.1)
                continue
            await self.prepare(producer)
            if not producer.is_ready:
                continue
            self._instances.setdefault(name, set()).add(producer.initialized)
            transaction = producer.begin()
            self.transactions.append(transaction)
            try:
                await self._transact(producer, transaction)
            except Failed as error:
                self.count("transactions that failed")
                self.refused(producer, transaction, str(error))
                # Its partitions are to have nothing of it; if that is not heard a new epoch will see to it.
                await producer.end(transaction, commit=False)
                producer.give_up()
            if transaction.ending is Ending.COMMITTED:
                self.count("committed transactions")
                self._committed[name] = self._committed.get(name, 0) + self.context.calm()
            if not self.context.calm() and random.random() < 0.05:
                self.count("producers that died")
                producer = self.producer(ways, name, version)
            await asyncio.sleep(self.rest_seconds(random))

    def producer(self, ways: Connections, name: str, version: int) -> TransactionalProducer:
        """A new instance of a transactional id."""
        timeout_ms = ways.random.choice(self.timeouts_ms)
        return TransactionalProducer(ways, name, self.topic, version=version, timeout_ms=timeout_ms)

    async def _transact(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        random = producer.random
        for _ in range(random.randint(1, 4)):
            values = self.log.values(random.randint(1, 2))
            await producer.send(transaction, random.randrange(PARTITIONS), values)
            if not self.context.calm() and random.random() < 0.05:
                self.count("producers that stood still")
                await asyncio.sleep(3.0 * random.random())
        if not self.context.calm() and random.random() < 0.05:
            # Dead in the middle of it.
            producer.give_up()
            return
        await self._end(producer, transaction, commit=random.random() < 0.8)

    async def _end(self, producer: TransactionalProducer, transaction: Transaction, *, commit: bool) -> None:
        await producer.end(transaction, commit=commit)
        self.refused(producer, transaction, producer.refused)
        if transaction.ending is not Ending.COMMITTED:
            return
        for asked, had in self._instances[transaction.transactional_id]:
            if transaction.initialized[1] < asked and had < transaction.committing:
                self.fail("fencing", f"{transaction} is committed, and another had the id since {had}")

    async def _read(self, reader: CommittedReader) -> None:
        while True:
            if (wrong := await reader.read()) is not None:
                self.fail("read committed", f"{self.topic}-{reader.partition}: {wrong}")
            await asyncio.sleep(0.05 + 0.1 * reader.ways.random.random())

    async def _catch_up(self, readers: Sequence[asyncio.Future[None]]) -> None:
        """Readers come to the end of every partition: no transaction is left open."""
        while not self._all_read():
            for reader in readers:
                if reader.done():
                    reader.result()
            await asyncio.sleep(0.1)

    def _all_read(self) -> bool:
        ends = [self.context.invariants.end_of(self.topic, reader.partition) for reader in self.readers]
        return [reader.position for reader in self.readers] == ends

    def judge(self) -> None:
        """See Workload."""
        invariants = self.context.invariants
        self._decided = [decided(invariants.batches(self.topic, partition)) for partition in range(PARTITIONS)]
        for partition, found in enumerate(self._decided):
            for wrong in found.wrong:
                self.fail("marker order", f"{self.topic}-{partition}: {wrong}")
            if found.open:
                self.fail("hanging transactions", f"{self.topic}-{partition}: producers {found.open}")
            read = self.readers[partition].values
            if read != [value for _, value in found.visible]:
                text = f"{self.topic}-{partition}: {read} was read, and {found.visible} is committed"
                self.fail("read committed", text)
        self._judge_markers()
        for transaction in self.transactions:
            self._judge_transaction(transaction)

    def _judge_markers(self) -> None:
        """With an epoch for each transaction all its markers are of one kind."""
        if any(transaction.version == 1 for transaction in self.transactions):
            return
        kinds: dict[tuple[int, int], bool] = {}
        for found in self._decided:
            for producer_id, epoch, committed in found.markers:
                if kinds.setdefault((producer_id, epoch), committed) != committed:
                    self.fail("marker order", f"{self.topic}: both markers for epoch {epoch} of {producer_id}")

    def _judge_transaction(self, transaction: Transaction) -> None:
        visible = {value for found in self._decided for _, value in found.visible}
        written = {value for values in transaction.written.values() for value in values}
        there = visible & transaction.tried
        match transaction.ending:
            case Ending.COMMITTED:
                if there != transaction.tried:
                    self.fail("atomicity", f"{transaction} was committed, and {there} is there")
            case Ending.OPEN | Ending.ABORTED:
                if there:
                    self.fail("atomicity", f"{transaction} was aborted, and {there} is there")
            case Ending.UNKNOWN:
                if there and not there >= written:
                    self.fail("atomicity", f"{transaction}: only {there} is there")
