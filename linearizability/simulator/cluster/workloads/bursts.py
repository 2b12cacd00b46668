"""A producer of the shipped client that does not wait: several batches of a partition are under way at once."""

from __future__ import annotations

import asyncio

from raftlog.client.core.errors import KafkaError
from raftlog.client.delivery import Delivery
from raftlog.client.producer import Producer
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.simulator.cluster.workloads.clients import Clients

AT_ONCE_MAX = 12
APART_SECONDS = 0.004


class Bursts(Clients):
    """As `clients`; when answers are lost, batches come again that others have followed since."""

    kind = "bursts"
    partitions = 1
    in_flight = (5,)

    async def send(self, producer: Producer) -> bool:
        """See Clients: one record after the other, before anything is known of those before it."""
        waiting = []
        for _ in range(self.random.randint(2, AT_ONCE_MAX)):
            (value,) = values = self.log.values(1)
            operation = self.log.begin(f"{self.topic}.{self._lives}", "append", 0, values)
            try:
                delivery = await producer.enqueue(self.topic, b"%d" % value, partition=0)
            except KafkaError as error:
                self.log.end(operation, INFO, None, str(error))
                break
            waiting.append(self._settled(operation, delivery))
            await asyncio.sleep(APART_SECONDS)
        return all(await asyncio.gather(*waiting))

    async def _settled(self, operation: Operation, delivery: Delivery) -> bool:
        try:
            placed = await delivery
        except KafkaError as error:
            self.log.end(operation, INFO, None, str(error))
            return False
        self.log.end(operation, OK, placed.offset)
        self.count("records stored")
        return True
