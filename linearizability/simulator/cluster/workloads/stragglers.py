"""Batches that come when their transaction is over, as those do that were given up in the network."""

from __future__ import annotations

import asyncio

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.transactional_client import (
    Ending,
    Transaction,
    TransactionalProducer,
)
from raftlog.linearizability.simulator.cluster.workloads.transfers import PARTITIONS, Transfers

LATE_CHANCE = 0.3


class Stragglers(Transfers):
    """As `transfers`; a batch of a transaction that has ended, for a partition that it did not have, is not taken: it
    would be open there for ever (KAFKA-14402, KIP-890).
    """

    kind = "stragglers"

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

    async def _send_late(self, transaction: Transaction, partition: int, batch: bytes) -> None:
        for _ in range(3):
            try:
                code = await self.produce(partition, batch)
            except Unanswered:
                code = "NOT_ANSWERED"
            self._workload.count(f"late batches answered {code}")
            if code == "NONE":
                self._workload.fail("late batches", f"partition {partition} takes a batch of {transaction}")
            if code not in ("NOT_ANSWERED", "NOT_LEADER_OR_FOLLOWER"):
                return
            await asyncio.sleep(0.1 * self.random.random())
