"""Batches that come when their transaction is over, or while it ends, as those do that were given up in the network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.transactional_client import (
    Ending,
    Failed,
    Transaction,
    TransactionalProducer,
)
from raftlog.linearizability.simulator.cluster.workloads.transfers import PARTITIONS, Transfers

LATE_CHANCE = 0.3
UNDER_WAY_CHANCE = 0.6
"""Of transactions whose producers name partitions themselves, how many end while a batch is under way."""
AHEAD_SECONDS = 0.03
"""How long at most a batch is under way when its transaction is ended; often it is much shorter, as networks are."""


class Stragglers(Transfers):
    """As `transfers`; a batch of a transaction that has ended is not taken, whether it comes late or was being verified
    when the transaction ended: it would be open there for ever (KAFKA-14402, KIP-890).
    """

    kind = "stragglers"
    versions = (1, 1, 2)

    def producer(self, ways: Connections, name: str, version: int) -> TransactionalProducer:
        """See Transfers."""
        return Straggler(self, ways, name, version)


class Straggler(TransactionalProducer):
    """It was about to write to one more partition when it ended its transaction."""

    def __init__(self, workload: Stragglers, ways: Connections, name: str, version: int) -> None:
        timeout_ms = ways.random.choice(workload.timeouts_ms)
        super().__init__(ways, name, workload.topic, version=version, timeout_ms=timeout_ms)
        self._workload = workload
        self._tried: set[int] = set()

    def begin(self) -> Transaction:
        """See TransactionalProducer."""
        self._tried.clear()
        return super().begin()

    async def send(self, transaction: Transaction, partition: int, values: tuple[int, ...]) -> None:
        """See TransactionalProducer."""
        self._tried.add(partition)
        await super().send(transaction, partition, values)

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """See TransactionalProducer."""
        left = [partition for partition in range(PARTITIONS) if partition not in self._tried]
        if left and self.is_ready and self.version == 1 and self.random.random() < UNDER_WAY_CHANCE:
            await self._end_meanwhile(transaction, left, commit=commit)
            return
        if not left or self.random.random() >= LATE_CHANCE:
            await super().end(transaction, commit=commit)
            return
        partition = self.random.choice(left)
        batch = self.batch(partition, self._workload.log.values(1))
        await super().end(transaction, commit=commit)
        if transaction.ending in (Ending.COMMITTED, Ending.ABORTED):
            # In the next one, of an epoch that is the same, it would be welcome.
            self.give_up()
            await self._send_late(transaction, partition, batch)

    async def _end_meanwhile(self, transaction: Transaction, partitions: Sequence[int], *, commit: bool) -> None:
        """End it while batches are under way: each is part of it, or refused."""
        try:
            for partition in partitions:
                await self.add_partition(partition)
        except Failed:
            await super().end(transaction, commit=False)
            return
        sent = []
        for partition in partitions:
            values = self._workload.log.values(1)
            sent.append((values, self.ways.loop.create_task(self._send_once(partition, self.batch(partition, values)))))
        await asyncio.sleep(AHEAD_SECONDS * 1000 ** -self.random.random())
        await super().end(transaction, commit=commit)
        # In the next one, of an epoch that is the same, they would be welcome.
        self.give_up()
        for values, answered in sent:
            code = await answered
            self._workload.count(f"batches under way answered {code}")
            if code == "NONE" or transaction.ending is Ending.ABORTED:
                transaction.tried.update(values)

    async def _send_once(self, partition: int, batch: bytes) -> str:
        try:
            return await self.produce(partition, batch)
        except Unanswered:
            return "NOT_ANSWERED"

    async def _send_late(self, transaction: Transaction, partition: int, batch: bytes) -> None:
        for _ in range(3):
            code = await self._send_once(partition, batch)
            self._workload.count(f"late batches answered {code}")
            if code == "NONE":
                self._workload.fail("late batches", f"partition {partition} takes a batch of {transaction}")
            if code not in ("NOT_ANSWERED", "NOT_LEADER_OR_FOLLOWER"):
                return
            await asyncio.sleep(0.1 * self.random.random())
