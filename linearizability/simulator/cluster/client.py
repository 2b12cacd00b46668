"""Clients of a simulated cluster: small producers and readers that speak Kafka's protocol and keep a history.

A producer never gives up on its own: what it does not know the outcome of stays unknown, unless it is idempotent and
asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation, Outcome
from raftlog.linearizability.simulator.cluster.kafka_port import KafkaClient, Unanswered
from raftlog.linearizability.simulator.machine.loop import SimulatedLoop
from raftlog.linearizability.simulator.machine.machine_facts import EPOCH_SECONDS
from raftlog.wire.batch import decode_batch, encode_batch, iterate_batches
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.records import CorruptRecord, Record

PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, INIT_VERSION, LIST_OFFSETS_VERSION = 9, 12, 12, 4, 8
PRODUCE_BY_ID, FETCH_BY_ID = 13, 16
"""Where topics are named by their ids."""
EARLIEST = -2
"""Asks for the start of a log."""
ANSWER_SECONDS = 1.5
"""How long a client waits for an answer before it gives the connection up."""
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# Nothing was appended, and nothing will be.
_REFUSED = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

Address = tuple[str, int]
Contents = Callable[[int], tuple[bytes | None, bytes | None]]
"""From a value to the key and the value of its record."""


def number(value: int) -> tuple[bytes | None, bytes | None]:
    """A record without a key."""
    return None, b"%d" % value


class History:
    """What all clients did, with values that no two appends share.

    `told`: partition, first value and offset of appends that were answered with an error and an offset all the same.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._next_value = 0
        self.operations: list[Operation] = []
        self.told: list[tuple[int, int, int]] = []

    def now(self) -> int:
        """Nanoseconds of virtual time."""
        return int(self._loop.scheduler.now * 1e9)

    def values(self, count: int) -> tuple[int, ...]:
        """Values that nobody has appended yet."""
        self._next_value += count
        return tuple(range(self._next_value - count, self._next_value))

    def begin(self, process: str, function: str, key: int | str, given: Any) -> Operation:
        """A call."""
        operation = Operation(process, function, given, key=key, call=self.now(), index=len(self.operations))
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome, output: Any = None, error: str | None = None) -> None:
        """Its end, as far as the client can tell."""
        operation.returned = self.now()
        operation.outcome, operation.output, operation.error = outcome, output, error


class Connections:
    """A client's way to the brokers: one connection to each, made when it is needed.

    One that is `stubborn` goes on asking where it asked before, whatever it is told, for a while.
    """

    def __init__(
        self, loop: SimulatedLoop, name: str, bootstrap: Sequence[Address], random: Random, *, stubborn: bool = False
    ) -> None:
        self.loop = loop
        self.name = name
        self.random = random
        self.stubborn = stubborn
        self._bootstrap = bootstrap
        self._clients: dict[Address, KafkaClient] = {}
        self._leaders: dict[tuple[str, int], Address] = {}

    async def to(self, address: Address) -> KafkaClient:
        """A connection. Raises Unanswered."""
        client = self._clients.get(address)
        if client is None or client.closed:
            try:
                client = await KafkaClient.open(self.loop, address, self.name, 0.5)
            except (OSError, TimeoutError) as error:
                raise Unanswered(f"cannot connect to {address}: {error}") from error
            self._clients[address] = client
        return client

    async def some(self) -> KafkaClient:
        """A connection to any broker. Raises Unanswered."""
        return await self.to(self.random.choice(self._bootstrap))

    async def leader(self, topic: str, partition: int) -> Address:
        """Where the partition's leader is, as some broker says. Raises Unanswered."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            return known
        client = await self.some()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await client.ask(request, METADATA_VERSION, ANSWER_SECONDS)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for found in answer.topics[0].partitions:
            if found.partition_index == partition and found.leader_id in brokers:
                self._leaders[topic, partition] = brokers[found.leader_id]
                return brokers[found.leader_id]
        raise Unanswered(f"nobody leads {topic}-{partition}")

    def forget(self, topic: str, partition: int) -> None:
        """The leader has moved, or cannot be reached."""
        if self.stubborn and self.random.random() < 0.8:
            return
        self._leaders.pop((topic, partition), None)


class Producer:
    """Appends batches of unique values with acks=all. With a `topic_id` only to the topic that has it."""

    def __init__(
        self,
        ways: Connections,
        history: History,
        topic: str,
        *,
        idempotent: bool,
        contents: Contents = number,
        topic_id: bytes = b"",
    ) -> None:
        self._ways = ways
        self._history = history
        self._topic = topic
        self._contents = contents
        self.topic_id = topic_id
        self._idempotent = idempotent
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}

    async def append(self, partition: int, count: int, patience: float) -> Operation:
        """Append so many values; an idempotent producer asks again for `patience` seconds."""
        loop = self._ways.loop
        if self._idempotent and self._producer_id < 0:
            await self._identify()
        values = self._history.values(count)
        operation = self._history.begin(self._ways.name, "append", partition, values)
        batch = self._batch(partition, values)
        deadline = loop.time() + patience
        outcome, output, error = await self._send(partition, batch, values[0])
        # A first attempt that may have arrived makes a later refusal say nothing.
        unsure = outcome is INFO
        while self._idempotent and outcome is not OK and loop.time() < deadline:
            await asyncio.sleep(0.02 + 0.2 * self._ways.random.random())
            outcome, output, error = await self._send(partition, batch, values[0])
            unsure = unsure or outcome is INFO
        if outcome is OK:
            self._sequences[partition] = self._sequences.get(partition, 0) + count
        elif self._idempotent:
            # Whether the sequence was used is not known: go on under another name.
            self._producer_id = -1
        if outcome is FAIL and unsure:
            outcome = INFO
        self._history.end(operation, outcome, output, error)
        return operation

    def _batch(self, partition: int, values: tuple[int, ...]) -> bytes:
        timestamp = int((EPOCH_SECONDS + self._ways.loop.time()) * 1000)
        records = [Record(offset, timestamp, *self._contents(value)) for offset, value in enumerate(values)]
        if not self._idempotent:
            return encode_batch(records)
        sequence = self._sequences.get(partition, 0)
        return encode_batch(
            records, producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=sequence
        )

    async def _identify(self) -> None:
        self._sequences.clear()
        while self._producer_id < 0:
            try:
                client = await self._ways.some()
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                answer = await client.ask(request, INIT_VERSION, ANSWER_SECONDS)
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
            except Unanswered:
                pass
            if self._producer_id < 0:
                await asyncio.sleep(0.1)

    def _named(self, data: PartitionProduceData) -> TopicProduceData:
        if self.topic_id:
            return TopicProduceData(topic_id=self.topic_id, partition_data=[data])
        return TopicProduceData(name=self._topic, partition_data=[data])

    async def _send(self, partition: int, batch: bytes, value: int) -> tuple[Outcome, int | None, str]:
        ways = self._ways
        sent = False
        try:
            client = await ways.to(await ways.leader(self._topic, partition))
            sent = True
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                transactional_id=None,
                acks=-1,
                timeout_ms=1000,
                topic_data=[self._named(data)],
            )
            answer = await client.ask(request, PRODUCE_BY_ID if self.topic_id else PRODUCE_VERSION, ANSWER_SECONDS)
        except Unanswered as error:
            ways.forget(self._topic, partition)
            return (INFO if sent else FAIL), None, str(error)
        result = answer.responses[0].partition_responses[0]
        code = ErrorCode.of(result.error_code)
        if code is ErrorCode.NONE:
            return OK, result.base_offset, ""
        if result.base_offset >= 0:
            self._history.told.append((partition, value, result.base_offset))
        if code in _MOVED:
            ways.forget(self._topic, partition)
        return (FAIL if code in _REFUSED else INFO), None, code.name


class Reader:
    """Reads a partition from the beginning, over and over, as far as it is committed. With a `topic_id` only of the
    topic that has it.

    `out_of_range(partition, offset, host)` is told when a host says that there is nothing at the offset; the reader
    then goes on at the start of the log.
    """

    def __init__(
        self,
        ways: Connections,
        history: History,
        topic: str,
        *,
        topic_id: bytes = b"",
        out_of_range: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self._ways = ways
        self._history = history
        self._topic = topic
        self.topic_id = topic_id
        self._out_of_range = out_of_range
        self._offsets: dict[int, int] = {}

    @property
    def name(self) -> str:
        """The process, as the history has it."""
        return self._ways.name

    async def start_of(self, partition: int) -> int | None:
        """Where the log starts, as its leader says; None without an answer."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        topics = [ListOffsetsTopic(name=self._topic, partitions=[wanted])]
        ways = self._ways
        try:
            client = await ways.to(await ways.leader(self._topic, partition))
            request = ListOffsetsRequest(replica_id=-1, topics=topics)
            answer = await client.ask(request, LIST_OFFSETS_VERSION, ANSWER_SECONDS)
        except Unanswered:
            ways.forget(self._topic, partition)
            return None
        found = answer.topics[0].partitions[0]
        if found.error_code:
            ways.forget(self._topic, partition)
            return None
        return int(found.offset)

    async def read(self, partition: int, *, offset: int | None = None, bytes_max: int = 2000) -> int | None:
        """Read on from where the last read ended, or from `offset`; the high watermark, None without an answer."""
        start = self._offsets.get(partition, 0) if offset is None else offset
        operation = self._history.begin(self._ways.name, "read", partition, start)
        wanted = FetchPartition(partition=partition, fetch_offset=start, partition_max_bytes=bytes_max)
        topic = FetchTopic(topic=self._topic, partitions=[wanted])
        if self.topic_id:
            topic = FetchTopic(topic_id=self.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=50, min_bytes=1, topics=[topic])
        ways = self._ways
        try:
            leader = await ways.leader(self._topic, partition)
            client = await ways.to(leader)
            answer = await client.ask(request, FETCH_BY_ID if self.topic_id else FETCH_VERSION, ANSWER_SECONDS)
        except Unanswered as error:
            ways.forget(self._topic, partition)
            self._history.end(operation, INFO, None, str(error))
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        if found is None or found.error_code:
            ways.forget(self._topic, partition)
            name = ErrorCode.of(found.error_code).name if found is not None else "no answer about the partition"
            self._history.end(operation, INFO, None, name)
            if name == "OFFSET_OUT_OF_RANGE" and self._out_of_range is not None:
                self._out_of_range(partition, start, leader[0])
                self._offsets[partition] = await self.start_of(partition) or 0
            return None
        try:
            values = values_from(bytes(found.records or b""), start)
        except CorruptRecord as error:
            # Told by the checksum, as every client does: nothing was read.
            ways.forget(self._topic, partition)
            self._history.end(operation, INFO, None, str(error))
            return None
        self._history.end(operation, OK, (values, False))
        self._offsets[partition] = start + len(values)
        return int(found.high_watermark)


def values_from(records: bytes, start: int) -> tuple[int, ...]:
    """The values in record batches, from an offset on; a cut batch at the end is left out. Offsets have no gaps."""
    values: list[int] = []
    for position, header in iterate_batches(records):
        if position + header.size > len(records):
            break
        for record in decode_batch(records[position : position + header.size]):
            if record.offset >= start:
                assert record.offset == start + len(values) and record.value is not None, "a gap in the log"
                values.append(int(record.value))
    return tuple(values)
