"""A transactional producer as the clients of a simulated cluster have it, of either protocol version, and a reader of
committed records.

Version 1 names partitions and groups before it writes to them; version 2 does not, and gets an epoch of its own for
each transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from raftlog.linearizability.simulator.cluster.client import ANSWER_SECONDS, Connections
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.workloads.groups import TRANSACTION, Coordinated, find_coordinator
from raftlog.linearizability.simulator.machine.machine_facts import EPOCH_SECONDS
from raftlog.wire.batch import decode_batch, encode_batch, iterate_batches
from raftlog.wire.control import ControlType, control_type
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raftlog.wire.records import Record
from raftlog.wire.schema import Message

INIT, ADD_PARTITIONS, ADD_OFFSETS = 5, 3, 4
PRODUCE, END, COMMIT_OFFSETS = {1: 11, 2: 12}, {1: 4, 2: 5}, {1: 4, 2: 5}
"""Versions of requests, by the version of the protocol."""
FETCH = 12
READ_COMMITTED = 1
PATIENCE_SECONDS = 2.5
_AGAIN = (
    "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR", "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "NETWORK_EXCEPTION",
    "UNSTABLE_OFFSET_COMMIT", "NOT_CONTROLLER",
)  # fmt: skip
"""Whoever hears one of these asks again."""


class Ending(Enum):
    """What a producer knows of the end of its transaction."""

    OPEN = "was never to be committed"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """One of them. `written`: what was acknowledged, by partition; `tried`: all values that were sent; `initialized`:
    when its producer asked for its epoch, and had it.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    begun: int
    written: dict[int, list[int]] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    ending: Ending = Ending.OPEN
    committing: int = -1
    """When the producer first asked for the commit."""
    version: int = 2
    initialized: tuple[int, int] = (0, 0)


class Failed(Exception):
    """The transaction cannot go on; the producer has to begin anew."""


class TransactionalProducer:
    """One instance of a transactional id. `initialized`: when its last InitProducerId was sent, and answered;
    `confirmed`: when the last request that was taken was first sent; `refused`: why the last transaction was not ended.
    """

    def __init__(
        self, ways: Connections, transactional_id: str, topic: str, *, version: int, timeout_ms: int
    ) -> None:
        self.ways = ways
        self.random = ways.random
        self.transactional_id = transactional_id
        self.topic = topic
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self.initialized = (0, 0)
        self.confirmed = 0
        self.refused = ""
        self._timeout_ms = timeout_ms
        self._coordinator: tuple[str, int] | None = None
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()
        # An answer that never came may be of a request that is still to be heard.
        self._unsure = False

    def now(self) -> int:
        """Nanoseconds of virtual time."""
        return int(self.ways.loop.time() * 1e9)

    @property
    def is_ready(self) -> bool:
        """Whether it may begin a transaction."""
        return self.producer_id >= 0

    def give_up(self) -> None:
        """It needs a new epoch."""
        self.producer_id = -1

    async def _ask(self, request: Message, version: int) -> Any:
        """The coordinator's answer. Raises Unanswered."""
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.ways, self.transactional_id, TRANSACTION)
        if self._coordinator is None:
            raise Unanswered("nobody knows the coordinator")
        client = await self.ways.to(self._coordinator)
        return await client.ask(request, version, ANSWER_SECONDS)

    async def _until(self, attempt: Callable[[], Awaitable[str]], seconds: float = PATIENCE_SECONDS) -> str:
        """Try until there is an answer that stands; its name. Raises Failed when it takes too long."""
        # One that is repeated may have been heard long before it is answered.
        asked, deadline = self.now(), self.ways.loop.time() + seconds
        while True:
            try:
                code = await attempt()
            except Unanswered:
                self._coordinator, self._unsure, code = None, True, "NOT_ANSWERED"
            if code not in (*_AGAIN, "NOT_ANSWERED"):
                if code == "NONE":
                    self.confirmed = asked
                return code
            if code in ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"):
                self._coordinator = None
            if self.ways.loop.time() >= deadline:
                raise Failed(code)
            await asyncio.sleep(0.02 + 0.08 * self.random.random())

    # One after the other ---------------------------------------------------------------------------------------

    async def initialize(self) -> bool:
        """Get an epoch of its own; whoever has an earlier one of the id is fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        sent = 0

        async def attempt() -> str:
            nonlocal sent
            sent = self.now()
            answer = await self._ask(request, INIT)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return ErrorCode.of(answer.error_code).name

        try:
            code = await self._until(attempt)
        except Failed:
            code = "NOT_ANSWERED"
        if code != "NONE":
            self.give_up()
            return False
        self.initialized = sent, self.now()
        self._unsure = False
        self._sequences.clear()
        return True

    def begin(self) -> Transaction:
        """A transaction, of which nobody knows yet."""
        self._added.clear()
        return Transaction(
            self.transactional_id,
            self.producer_id,
            self.epoch,
            self.now(),
            version=self.version,
            initialized=self.initialized,
        )

    async def send(self, transaction: Transaction, partition: int, values: tuple[int, ...]) -> None:
        """Append values to a partition. Raises Failed."""
        transaction.tried.update(values)
        if self.version == 1:
            await self.add_partition(partition)
        batch = self.batch(partition, values)
        key = self.topic, partition

        async def attempt() -> str:
            return await self.produce(partition, batch)

        self._sequences[key] = self._sequences.get(key, 0) + len(values)
        code = await self._until(attempt)
        if code not in ("NONE", "DUPLICATE_SEQUENCE_NUMBER"):
            raise Failed(code)
        transaction.written.setdefault(partition, []).extend(values)
        if self.random.random() < 0.05:
            self._again(self.produce(partition, batch))

    async def add_partition(self, partition: int) -> None:
        """Name a partition to the coordinator, as version 1 has to. Raises Failed."""
        if (self.topic, partition) in self._added:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[partition])],
        )

        async def attempt() -> str:
            answer = await self._ask(request, ADD_PARTITIONS)
            result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return ErrorCode.of(result.partition_error_code).name

        if (code := await self._until(attempt)) != "NONE":
            raise Failed(code)
        self._added.add((self.topic, partition))

    def batch(self, partition: int, values: tuple[int, ...]) -> bytes:
        """The next one of a partition."""
        timestamp = int((EPOCH_SECONDS + self.ways.loop.time()) * 1000)
        records = [Record(offset, timestamp, None, b"%d" % value) for offset, value in enumerate(values)]
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get((self.topic, partition), 0),
            transactional=True,
        )

    async def produce(self, partition: int, batch: bytes) -> str:
        """What the leader says to a batch. Raises Unanswered."""
        ways = self.ways
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        try:
            client = await ways.to(await ways.leader(self.topic, partition))
            answer = await client.ask(request, PRODUCE[self.version], ANSWER_SECONDS)
        except Unanswered:
            ways.forget(self.topic, partition)
            raise
        code = ErrorCode.of(answer.responses[0].partition_responses[0].error_code).name
        if code in _AGAIN:
            ways.forget(self.topic, partition)
        return code

    async def send_offset(self, group: Coordinated, topic: str, partition: int, offset: int) -> None:
        """Commit an offset of a group with the transaction. Raises Failed."""
        if self.version == 1:
            await self._add_group(group.group)
        wanted = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )

        async def attempt() -> str:
            answer = await group.ask_coordinator(request, COMMIT_OFFSETS[self.version])
            if answer is None:
                raise Unanswered("no answer from the group's coordinator")
            code = ErrorCode.of(answer.topics[0].partitions[0].error_code).name
            if code in _AGAIN:
                group.coordinator = None
            return code

        if (code := await self._until(attempt)) != "NONE":
            raise Failed(code)

    async def _add_group(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )

        async def attempt() -> str:
            return ErrorCode.of((await self._ask(request, ADD_OFFSETS)).error_code).name

        if (code := await self._until(attempt)) != "NONE":
            raise Failed(code)

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or abort it; how far that is known is in it. Without an answer the producer is given up."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        asked, confirmed = False, self.confirmed

        async def attempt() -> str:
            nonlocal asked
            if commit and not asked:
                transaction.committing = self.now()
            before, self._unsure = self._unsure, False
            answer = await self._ask_once(request)
            self._unsure = before
            code = ErrorCode.of(answer.error_code).name
            if code == "NONE" and self.version == 2:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
            return code

        try:
            code = await self._until(attempt)
        except Failed:
            code = "NOT_ANSWERED"
        self.refused = "" if code == "NONE" else code
        if not commit:
            # Repeated, it may be: the transaction took too long and was aborted long ago.
            self.confirmed = confirmed
        if code == "NONE":
            transaction.ending = Ending.COMMITTED if commit else Ending.ABORTED
        else:
            transaction.ending = Ending.UNKNOWN if commit else transaction.ending
            self.give_up()
        if self._unsure and self.version == 1:
            # A request of this epoch may still be on its way: it would end the next transaction (KAFKA-17754).
            self.give_up()
        if self.version == 2 and self.random.random() < 0.15:
            self._again(self._ask_once(request))

    async def _ask_once(self, request: EndTxnRequest) -> Any:
        return await self._ask(request, END[self.version])

    def _again(self, what: Awaitable[object]) -> None:
        """What was sent comes once more, some time later."""

        async def later() -> None:
            try:
                await asyncio.sleep(0.5 * self.random.random())
                await what
            except Unanswered:
                pass

        self._late = self.ways.loop.create_task(later())


@dataclass
class CommittedReader:
    """Reads a partition from its beginning, as read_committed consumers do. `position` is where it reads on."""

    ways: Connections
    topic: str
    partition: int
    position: int = 0
    values: list[int] = field(default_factory=list)

    async def read(self) -> str | None:
        """One fetch; what is wrong with the answer, if anything is."""
        wanted = FetchPartition(partition=self.partition, fetch_offset=self.position, partition_max_bytes=3000)
        request = FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        try:
            client = await self.ways.to(await self.ways.leader(self.topic, self.partition))
            answer = await client.ask(request, FETCH, ANSWER_SECONDS)
        except Unanswered:
            self.ways.forget(self.topic, self.partition)
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        if found is None or found.error_code:
            self.ways.forget(self.topic, self.partition)
            return None
        if found.last_stable_offset > found.high_watermark:
            return f"the last stable offset {found.last_stable_offset} is above {found.high_watermark}"
        records = bytes(found.records or b"")
        self.position = self._take(records, found.aborted_transactions or [])
        if self.position > found.last_stable_offset and records:
            return f"records up to {self.position}, and only below {found.last_stable_offset} all is decided"
        return None

    def _take(self, records: bytes, aborted: list[AbortedTransaction]) -> int:
        """The position behind the batches."""
        position = self.position
        left = sorted(aborted, key=lambda each: each.first_offset)
        current: set[int] = set()
        for at, header in iterate_batches(records):
            if at + header.size > len(records):
                break
            while left and left[0].first_offset <= header.last_offset:
                current.add(left.pop(0).producer_id)
            batch = decode_batch(records[at : at + header.size])
            if header.is_control:
                if batch and control_type(batch[0].key) == ControlType.ABORT:
                    current.discard(header.producer_id)
            elif header.producer_id not in current or not header.is_transactional:
                self.values += [int(r.value) for r in batch if r.offset >= self.position and r.value is not None]
            position = max(position, header.next_offset)
        return position

