"""The shipped client (`client/`) as producer and as members of a group, of either protocol, while faults happen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from raftlog.client.client import Client
from raftlog.client.consumer import Consumer
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import ConsumerRecord
from raftlog.client.core.producer_batch import Placed
from raftlog.client.core.settings import ConsumerOptions
from raftlog.client.producer import Outgoing, Producer
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.simulator.cluster.simulated_broker import KAFKA_PORT, host_of
from raftlog.linearizability.simulator.cluster.workloads.topics import END_APPENDS, TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext
from raftlog.wire.errors import InvariantViolation

ANSWER_SECONDS = 1.5
CALL_SECONDS = 4.0
SESSION_SECONDS = 0.8
STAND_STILL_SECONDS = 2.0


class Clients(TopicWorkload):
    """What the producer says is stored is stored once and in its order; each record reaches the group as it is in the
    log, and within one assignment none is left out; in the end the group has had them all.
    """

    kind = "clients"
    partitions = 2
    consumers = 2
    in_flight: Sequence[int] = (1, 5)

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.hunted = [(self.topic, index) for index in range(self.partitions)]
        self.protocol = self.random.choice(("classic", "consumer"))
        self._lives = 0
        self._left = END_APPENDS
        self._had: list[dict[int, int]] = [{} for _ in range(self.partitions)]

    async def run(self) -> None:
        """See Workload."""
        await self.create({}, partitions=self.partitions)
        bootstrap = [Address(host_of(node), KAFKA_PORT) for node in self.context.nodes]
        async with Client(bootstrap, client_id=self.topic, timeout=CALL_SECONDS) as client:
            consumers = [asyncio.ensure_future(self._consume(client, place)) for place in range(self.consumers)]
            while self._left:
                await self._produce(client)
                _raise_failed(consumers)
            while not self._all_had():
                await asyncio.sleep(0.1)
                _raise_failed(consumers)
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)

    async def _produce(self, client: Client) -> None:
        """The life of one producer."""
        random = self.random
        self._lives += 1
        producer = client.producer(
            linger=random.choice((0.0, 0.005, 0.05)),
            max_in_flight=random.choice(self.in_flight),
            request_timeout=ANSWER_SECONDS,
            delivery_timeout=random.choice((ANSWER_SECONDS, CALL_SECONDS)),
            retry_backoff=0.05,
        )
        try:
            async with self.context.invariants.clients.watch(producer):
                while self._left and (self.context.calm() or random.random() >= 0.02):
                    stored = await self.send(producer)
                    self._left -= self.context.calm() and stored
                    await asyncio.sleep(0.02 + 0.1 * random.random())
        except KafkaError:
            self.count("producers that gave up")

    async def send(self, producer: Producer) -> bool:
        """Some records at once; whether all are stored."""
        random = self.random
        values = self.log.values(random.randint(1, 6))
        partitions = [random.randrange(self.partitions) for _ in values]
        operations = [
            self.log.begin(f"{self.topic}.{self._lives}", "append", partition, (value,))
            for value, partition in zip(values, partitions, strict=True)
        ]
        records = [
            Outgoing(b"%d" % value, partition=partition) for value, partition in zip(values, partitions, strict=True)
        ]
        outcomes = await producer.send_batch(self.topic, records, timeout=CALL_SECONDS)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(outcome, Placed) and outcome.offset >= 0:
                self.log.end(operation, OK, outcome.offset)
            else:
                self.log.end(operation, INFO, None, str(outcome))
        stored = sum(operation.outcome is OK for operation in operations)
        self.counts["records stored"] = self.counts.get("records stored", 0) + stored
        return stored == len(operations)

    async def _consume(self, client: Client, place: int) -> None:
        while True:
            try:
                async with self.context.invariants.clients.watch(self.consumer(client, place)) as consumer:
                    await self.read(consumer)
                self.count("consumers that left")
            except KafkaError as error:
                if isinstance(error.__cause__, InvariantViolation):
                    raise
                self.count("consumers that gave up")
            await asyncio.sleep(0.1)

    def consumer(self, client: Client, place: int) -> Consumer:
        """A new one in that place."""
        return client.consumer(self.topic, **self.options(place))

    def options(self, place: int) -> ConsumerOptions:
        """Of the consumer in that place."""
        return {
            "group": f"{self.topic}.group",
            "protocol": self.protocol,
            "auto_offset_reset": "earliest",
            "auto_commit_interval": 0.3,
            "session_timeout": SESSION_SECONDS,
            "heartbeat_interval": 0.1,
            "rebalance_timeout": 1.5,
            "max_poll_interval": STAND_STILL_SECONDS / 2,
            "fetch_max_wait": 0.1,
            "request_timeout": ANSWER_SECONDS,
            "metadata_max_age": 2.0,
        }

    async def read(self, consumer: Consumer) -> None:
        """Until it leaves."""
        random, way = self.random, Way(self, consumer)
        while True:
            batch = await consumer.poll(timeout=0.5)
            if batch and not self.context.calm() and random.random() < 0.03:
                self.count("consumers that left with records undone")
                return
            way.take(batch)
            batch.done()
            if self.context.calm():
                continue
            rng = random.random()
            if rng < 0.02:
                return
            if rng < 0.05:
                self.count("consumers that stood still")
                await asyncio.sleep(STAND_STILL_SECONDS * random.random())

    def had(self, partition: int, offset: int, value: int) -> None:
        """A consumer was given a record."""
        before = self._had[partition].setdefault(offset, value)
        if before != value:
            self.fail("consumption", f"{self.topic}-{partition}: {before} and {value} are at {offset}")

    def _all_had(self) -> bool:
        ends = [self.context.invariants.end_of(self.topic, partition) for partition in range(self.partitions)]
        return all(0 <= end <= len(had) for had, end in zip(self._had, ends, strict=True))

    def judge(self) -> None:
        """See Workload."""
        for partition, had in enumerate(self._had):
            _, values = self.context.invariants.values(self.topic, partition)
            if had != dict(enumerate(values)):
                self.fail("consumption", f"{self.topic}-{partition}: {had} was read, and {values} is there")
            operations = [operation for operation in self.log.operations if operation.key == partition]
            self._judge_order(partition, operations, values)
            self.judge_log(operations, values, 0)

    def _judge_order(self, partition: int, operations: Iterable[Operation], values: Iterable[int]) -> None:
        """What one producer sent is there as it was sent; what another left under way may come when it will."""
        sent_by = {operation.input[0]: operation.process for operation in operations}
        latest: dict[int | str, int] = {}
        for value in values:
            if value < latest.get(sent_by[value], -1):
                self.fail("order", f"{self.topic}-{partition}: {value} comes after {latest[sent_by[value]]}")
            latest[sent_by[value]] = value


def _raise_failed(tasks: Iterable[asyncio.Future[None]]) -> None:
    for failed in [task for task in tasks if task.done()]:
        failed.result()


class Way:
    """What one consumer is given goes on without a gap within one assignment, and nothing comes twice."""

    def __init__(self, workload: Clients, consumer: Consumer) -> None:
        self._workload = workload
        self._consumer = consumer
        self._reached: dict[int, int] = {}
        self._assignments = -1

    def take(self, records: Iterable[ConsumerRecord]) -> None:
        """The next ones."""
        if self._consumer.assignments != self._assignments:
            self._assignments = self._consumer.assignments
            self._reached.clear()
        for record in records:
            assert record.value is not None
            self._workload.had(record.partition, record.offset, int(record.value))
            expected = self._reached.get(record.partition, record.offset)
            if record.offset != expected:
                text = f"{record.topic}-{record.partition}: {record.offset} comes where {expected} is due"
                self._workload.fail("consumption", text)
            self._reached[record.partition] = record.offset + 1

    def move(self) -> None:
        """It goes on somewhere else."""
        self._reached.clear()
