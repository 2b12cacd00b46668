"""Brokers whose transaction coordinator is the test: what they ask it is seen here, and answered as the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from raftlog.metadata.records import PartitionState, TopicRecord
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from raftlog.wire.schema import Message
from tests.broker.brokers import TOPIC, TOPIC_ID, Broker, Client, Cluster

TIME_MS = 1_700_000_000_000
PRODUCER = 7
TRANSACTIONAL_ID = "transfer"


class Asked(NamedTuple):
    """One AddPartitionsToTxn; `take` gets the answer to it."""

    request: AddPartitionsToTxnRequest
    take: Callable[[Message], None]

    def answer(self, error: ErrorCode = ErrorCode.NONE, *, whole: ErrorCode = ErrorCode.NONE) -> None:
        """The same for all partitions; `whole` is the error of the whole request."""
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                            for index in topic.partitions
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in self.request.transactions
        ]
        self.take(AddPartitionsToTxnResponse(error_code=whole, results_by_transaction=[] if whole else results))


class FakeCoordinator:
    """The coordinator of every transaction, on one broker. Answers at once, unless `holds`."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        state = PartitionState(0, broker.node_id, 0, 0, (broker.node_id,), (broker.node_id,))
        cluster.change(TopicRecord("__transaction_state", b"transaction stat", (state,)))
        broker.services.requests.serve_here = self._serve
        self.asked: list[Asked] = []
        self.errors = [ErrorCode.NONE]
        self.holds = False

    def _serve(self, request: Message, version: int, take: Callable[[Message], None]) -> None:
        assert isinstance(request, AddPartitionsToTxnRequest)
        asked = Asked(request, take)
        self.asked.append(asked)
        if not self.holds:
            asked.answer(self.errors.pop(0) if len(self.errors) > 1 else self.errors[0])

    def partitions(self) -> list[tuple[str, int]]:
        """All that was asked for, in order."""
        transactions = [transaction for asked in self.asked for transaction in asked.request.transactions]
        return [(t.name, index) for each in transactions for t in each.topics for index in t.partitions]


def data(sequence: int, *values: str, epoch: int = 0, producer_id: int = PRODUCER, transactional: bool = True) -> bytes:
    """A producer's batch."""
    return encode_batch(
        [Record(n, TIME_MS, None, value.encode()) for n, value in enumerate(values or (f"value {sequence}",))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(
    *batches: tuple[int, bytes], transactional_id: str | None = TRANSACTIONAL_ID, acks: int = -1
) -> ProduceRequest:
    """A request with (partition, batch) each."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in batches],
            )
        ],
    )


def outcome(answer: Any) -> list[tuple[ErrorCode, int]]:
    """Error and base offset of each partition."""
    return [(ErrorCode(each.error_code), each.base_offset) for each in answer.responses[0].partition_responses]


def markers(*indexes: int, commit: bool = True, version: int = 0, **fields: Any) -> WriteTxnMarkersRequest:
    """The end of PRODUCER's transaction in some partitions."""
    marker = WritableTxnMarker(
        producer_id=PRODUCER,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=list(indexes))],
        transaction_version=version,
        **fields,
    )
    return WriteTxnMarkersRequest(markers=[marker])


async def end(client: Client, *indexes: int, commit: bool = True, version: int = 0, **fields: Any) -> list[ErrorCode]:
    """Write markers of PRODUCER; the error of each partition."""
    answer = await client.ask(markers(*indexes, commit=commit, version=version, **fields), 2)
    return [
        ErrorCode(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


async def fetch(client: Client, offset: int = 0, *, committed: bool = True, index: int = 0) -> Any:
    """What a consumer gets from one partition at once."""
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=1 if committed else 0,
        topics=[
            FetchTopic(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )
    answer = await client.ask(request, 15)
    return answer.responses[0].partitions[0]
