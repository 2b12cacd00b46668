"""A transaction coordinator over partitions in memory, its requests, and the brokers that write its markers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from raftlog.broker.api import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, TRANSACTION_TOPIC, coordinator_partition
from raftlog.broker.runtime.broker_requests import RequestFailure
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.broker.runtime.transaction_coordinator import TransactionCoordinator
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.feature_levels import TRANSACTION_VERSION
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from raftlog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.api.turns_world import all_turns
from tests.broker.runtime.coordinator_world import MemoryPartition, image_of, turns_pass

NODE, OTHER = 1, 2
PARTITIONS = 4
PLACES = (("left", 0), ("right", 0), ("right", 1))
"""Partitions of a transaction; the last one is led by the other broker."""


def topic(name: str, leaders: list[int], *, epoch: int = 0, internal: bool = False) -> TopicImage:
    return TopicImage(
        name,
        name.ljust(16)[:16].encode(),
        tuple(
            PartitionState(partition_id=i, leader=n, leader_epoch=epoch, partition_epoch=0, replicas=(n,), isr=(n,))
            for i, n in enumerate(leaders)
        ),
        internal=internal,
    )


class Sender:
    """Takes what is sent to brokers, and answers it as the test says: at once with what was written, or later."""

    def __init__(self) -> None:
        self.written: list[tuple[int, tuple[str, int], int, int, bool]] = []
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.holds = False
        self.error: Callable[[int, tuple[str, int]], ErrorCode] = lambda broker, partition: ErrorCode.NONE
        self.failure: RequestFailure | None = None
        self._held: list[Callable[[], None]] = []

    def send(self, broker_id: int, request: Any, version: int, respond: Callable[[Any], None]) -> None:
        assert version == 2
        self.requests.append((broker_id, request))
        answer = lambda: respond(self.failure or self._answer(broker_id, request))  # noqa: E731
        if self.holds:
            self._held.append(answer)
        else:
            asyncio.get_running_loop().call_soon(answer)

    def release(self) -> None:
        held, self._held = self._held, []
        for answer in held:
            answer()

    def _answer(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        results = []
        for marker in request.markers:
            topics = []
            for each in marker.topics:
                partitions = []
                for index in each.partition_indexes:
                    error = self.error(broker_id, (each.name, index))
                    if error is ErrorCode.NONE:
                        self.written.append(
                            (
                                broker_id,
                                (each.name, index),
                                marker.producer_id,
                                marker.producer_epoch,
                                marker.transaction_result,
                            )
                        )
                    partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
                topics.append(WritableTxnMarkerTopicResult(name=each.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)


class Machine:
    """A coordinator. It is its metadata, its partition manager and its clock, too."""

    def __init__(self, *, transaction_version: int = 2, **settings: str) -> None:
        given = {"node.id": "1", "log.dirs": "/nowhere"}
        config = BrokerConfig(given | {name.replace("_", "."): value for name, value in settings.items()})
        self.stored: dict[int, MemoryPartition] = {}
        self.version = transaction_version
        self.epoch = 0
        self.image = self._image([NODE] * PARTITIONS)
        self.listeners: list[Callable[[MetadataDelta, MetadataImage], None]] = []
        self.sender = Sender()
        self.last_id = 1000
        self.passed_ms = 0
        self.ids_error = ErrorCode.NONE
        self.loop = asyncio.get_running_loop()
        self.coordinator = TransactionCoordinator(
            config,
            metadata=self,
            partitions=self,
            clock=self,
            loop=self.loop,
            timers=TimerWheel(self.loop),
            requests=SimpleNamespace(sender=lambda name, seconds: self.sender),  # type: ignore[arg-type]
            new_producer_id=self._new_id,
        )

    def _image(self, leaders: list[int], *others: TopicImage) -> MetadataImage:
        image = image_of(
            topic(TRANSACTION_TOPIC, leaders, epoch=self.epoch, internal=True),
            topic(GROUP_TOPIC, [NODE], internal=True),
            *(others or (topic("left", [NODE]), topic("right", [NODE, OTHER]))),
        )
        return _with_version(image, self.version)

    async def _new_id(self) -> tuple[ErrorCode, int]:
        await asyncio.sleep(0)
        self.last_id += 1
        return self.ids_error, self.last_id

    def subscribe(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None:
        self.listeners.append(listener)
        listener(MetadataDelta(MetadataImage()), self.image)

    def change(self, *others: TopicImage, leaders: list[int] | None = None) -> None:
        """The metadata are like this now."""
        before = self.image
        self.image = self._image(leaders or [NODE] * PARTITIONS, *others)
        delta: Any = SimpleNamespace(
            deleted_topics=tuple(t for name, t in before.topics.items() if name not in self.image.topics),
            changed_topics=tuple(name for name in self.image.topics if name in before.topics),
        )
        for listener in self.listeners:
            listener(delta, self.image)

    def fail_over(self) -> None:
        """Lose all partitions of the topic, and lead them again in the next epoch, with what was committed."""
        self.change(leaders=[OTHER] * PARTITIONS)
        self.epoch += 1
        for partition in self.stored.values():
            partition.leader_epoch = self.epoch
            partition.lose_uncommitted()
        self.change()

    def find_by_name(self, name: bytes, index: int) -> MemoryPartition | ErrorCode:
        assert name == TRANSACTION_TOPIC.encode()
        return self.stored.setdefault(index, MemoryPartition(self.epoch))

    def is_on_disk(self, name: str, index: int) -> bool:
        return index in self.stored

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.passed_ms

    def monotonic(self) -> float:
        return time.monotonic() + self.passed_ms / 1000

    def partition(self, transactional_id: str = "t") -> MemoryPartition:
        found = self.find_by_name(TRANSACTION_TOPIC.encode(), coordinator_partition(transactional_id, PARTITIONS))
        assert isinstance(found, MemoryPartition)
        return found

    # --- requests, through their handlers

    async def ask(self, handler: Any, request: Any, version: int) -> Any:
        """The answer of a handler; one that comes twice raises."""
        answer: asyncio.Future[Any] = self.loop.create_future()

        async def run(work: Any) -> None:
            answer.set_result(await work)

        services = SimpleNamespace(
            transactions=self.coordinator, controller=SimpleNamespace(image=self.image), loop=self.loop, node_id=NODE
        )
        context: Any = SimpleNamespace(
            services=services,
            api_version=version,
            respond=answer.set_result,
            respond_with=lambda work: self.loop.create_task(run(work)),
            in_turns=all_turns,
        )
        handler.handle(context, request)
        return await asyncio.wait_for(answer, 5)

    async def init(
        self, transactional_id: str = "t", *, producer: tuple[int, int] = (-1, -1), version: int = 5
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = await self.ask(init_producer_id, request, version)
        assert isinstance(answer, InitProducerIdResponse)
        return answer

    async def begin(self, transactional_id: str = "t") -> tuple[int, int]:
        """A producer's id and epoch."""
        answer = await self.init(transactional_id)
        assert answer.error_code == ErrorCode.NONE
        return answer.producer_id, answer.producer_epoch

    async def add(
        self, producer: tuple[int, int], *places: tuple[str, int], transactional_id: str = "t", version: int = 3
    ) -> list[ErrorCode]:
        topics: dict[str, list[int]] = {}
        for name, index in places or PLACES:
            topics.setdefault(name, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        answer = await self.ask(add_partitions_to_txn, request, version)
        return [
            ErrorCode.of(result.partition_error_code)
            for each in answer.results_by_topic_v3_and_below
            for result in each.results_by_partition
        ]

    async def verify(self, producer: tuple[int, int], place: tuple[str, int], transactional_id: str = "t") -> ErrorCode:
        """What a partition's leader is told that asks whether the transaction has it."""
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        answer = await self.ask(add_partitions_to_txn, AddPartitionsToTxnRequest(transactions=[asked]), 5)
        (topic_result,) = answer.results_by_transaction[0].topic_results
        return ErrorCode.of(topic_result.results_by_partition[0].partition_error_code)

    async def end(
        self, producer: tuple[int, int], *, committed: bool, transactional_id: str = "t", version: int = 5
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
        answer = await self.ask(end_txn, request, version)
        assert isinstance(answer, EndTxnResponse)
        return answer

    async def describe(self, transactional_id: str = "t") -> Any:
        (found,) = (
            await self.ask(describe_transactions, DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        ).transaction_states
        return found

    async def state(self, transactional_id: str = "t") -> str:
        return str((await self.describe(transactional_id)).transaction_state)

    async def list(self, **filters: Any) -> Any:
        answer = await self.ask(list_transactions, ListTransactionsRequest(**filters), 2)
        return decode(ListTransactionsResponse, 2, answer) if isinstance(answer, bytes) else answer

    def check(self) -> None:
        self.coordinator.check_invariants()


def _with_version(image: MetadataImage, version: int) -> MetadataImage:
    return MetadataImage(
        topics=image.topics, topics_by_id=image.topics_by_id, features={**image.features, TRANSACTION_VERSION: version}
    )


async def settle() -> None:
    """Let everything that is ready happen."""
    for _ in range(3):
        await turns_pass()
