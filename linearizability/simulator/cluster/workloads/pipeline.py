"""Consume, transform, produce: what is read of one topic is written to another, with the offset in the transaction."""

from __future__ import annotations

import asyncio
from collections import Counter

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.linearizability.simulator.cluster.client import Connections, Producer, Reader
from raftlog.linearizability.simulator.cluster.simulated_broker import host_of
from raftlog.linearizability.simulator.cluster.transaction_logs import decided
from raftlog.linearizability.simulator.cluster.transactional_client import Ending, Failed, TransactionalProducer
from raftlog.linearizability.simulator.cluster.workloads.groups import Coordinated, GroupJournal
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.transfers import TIMEOUTS_MS, TRANSACTION_TOPIC
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext

WORKERS = 2
TAKEN_MAX = 4
"""Records in one transaction."""


class Pipeline(TopicWorkload):
    """Every record of the source is in the output exactly once, though workers die, stand still, and share an id."""

    kind = "pipeline"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.source = self.topic
        self.output = f"{self.topic}.out"
        self._journal = GroupJournal(self.log, self.fail)
        self.hunted = [(self.output, 0), (GROUP_TOPIC, 0), (TRANSACTION_TOPIC, 0), (TRANSACTION_TOPIC, 1)]
        self._filled = False
        self._done = False

    async def run(self) -> None:
        """See Workload."""
        await self.create({})
        self.topic = self.output
        await self.create({})
        version = self.random.choice((1, 2, 2))
        ways = [self.context.ways(f"{self.source}.{number}") for number in range(WORKERS)]
        # Of two that fence each other one leaves in the end.
        await asyncio.gather(
            self._fill(), *[self._work(way, version, goes_on=number == 0) for number, way in enumerate(ways)]
        )

    async def _fill(self) -> None:
        ways = self.context.ways(f"{self.source}.source")
        producer = Producer(ways, self.log, self.source, idempotent=True)
        while not self.context.calm():
            await producer.append(0, ways.random.randint(1, 3), 3.0)
            await asyncio.sleep(0.05 + 0.2 * ways.random.random())
        self._filled = True

    async def _work(self, ways: Connections, version: int, *, goes_on: bool) -> None:
        random = ways.random
        group = Coordinated(ways, f"{self.source}.group", self.source, self._journal)
        reader = Reader(ways, self.log, self.source)
        producer = self._producer(ways, version)
        while not self._done and (goes_on or not self.context.calm()):
            if not producer.is_ready and not await producer.initialize():
                await asyncio.sleep(0.1)
                continue
            if not await self._move(producer, group, reader):
                producer.give_up()
            if not self.context.calm() and random.random() < 0.05:
                self.count("workers that died")
                producer = self._producer(ways, version)
            await asyncio.sleep((0.02 + 0.1 * random.random()) * (1 if self._filled else random.choice((1, 1, 10))))

    def _producer(self, ways: Connections, version: int) -> TransactionalProducer:
        timeout_ms = ways.random.choice(TIMEOUTS_MS)
        return TransactionalProducer(ways, f"{self.source}.id", self.output, version=version, timeout_ms=timeout_ms)

    async def _move(self, producer: TransactionalProducer, group: Coordinated, reader: Reader) -> bool:
        """Take some records over; whether the producer may go on."""
        start = await self._position(group)
        if start is None:
            return True
        self._done = self._done or (self._filled and self._is_all(start))
        values = await self._taken(reader, start)
        if not values:
            return True
        transaction = producer.begin()
        try:
            await producer.send(transaction, 0, values)
            if not self.context.calm() and producer.random.random() < 0.05:
                self.count("workers that stood still")
                await asyncio.sleep(3.0 * producer.random.random())
            await producer.send_offset(group, self.source, 0, start + len(values))
            await producer.end(transaction, commit=producer.random.random() < 0.9)
        except Failed:
            await producer.end(transaction, commit=False)
            return False
        self.count(f"transactions {transaction.ending.value}")
        return transaction.ending is not Ending.UNKNOWN

    async def _position(self, group: Coordinated) -> int | None:
        """Where the last transaction ended; None when that is not sure.

        A coordinator that is cut off tells what was there before, as in Kafka. Members of a group are fenced by their
        generation; these workers are none, and ask who leads.
        """
        leads = self.context.invariants.leadership(GROUP_TOPIC, 0)
        positions = await group.positions([0])
        if positions is None or group.coordinator is None or leads is None:
            return None
        if leads != self.context.invariants.leadership(GROUP_TOPIC, 0) or group.coordinator[0] != host_of(leads[0]):
            group.coordinator = None
            return None
        return positions[0]

    async def _taken(self, reader: Reader, start: int) -> tuple[int, ...]:
        before = len(self.log.operations)
        await reader.read(0, offset=start)
        for operation in self.log.operations[before:]:
            if operation.process == reader.name and operation.output is not None:
                return tuple(operation.output[0][: None if self._filled else TAKEN_MAX])
        return ()

    def _is_all(self, position: int) -> bool:
        return position >= self.context.invariants.end_of(self.source, 0)

    def judge(self) -> None:
        """See Workload."""
        invariants = self.context.invariants
        _, wanted = invariants.values(self.source, 0)
        found = decided(invariants.batches(self.output, 0))
        if found.open or found.wrong:
            self.fail("marker order", f"{self.output}: open {found.open}, {found.wrong}")
        got = [value for _, value in found.visible]
        self.counts["records taken over"] = len(got)
        twice = [value for value, times in Counter(got).items() if times > 1]
        if twice or sorted(got) != sorted(wanted):
            missing = sorted(set(wanted) - set(got))
            self.fail("exactly once", f"{self.output}: twice {twice}, missing {missing}, of {len(wanted)}")
