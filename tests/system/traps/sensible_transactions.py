"""Sensible requests about transactions and about groups of the consumer protocol; see `sensible.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from raftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from raftlog.wire.messages.end_txn import EndTxnRequest
from raftlog.wire.messages.list_transactions import ListTransactionsRequest
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raftlog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from raftlog.wire.schema import Message

if TYPE_CHECKING:
    from tests.system.traps.sensible import Names

# A producer that nobody has: what asks the coordinator about it is refused, and changes nothing.
PRODUCER, EPOCH, TRANSACTIONAL_ID = 4711, 0, "nobody"

TRANSACTION_KEY = 1
"""FindCoordinator's type of key for transactional ids."""

TRANSACTION_ERRORS = {
    ApiKey.ADD_PARTITIONS_TO_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.ADD_OFFSETS_TO_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.END_TXN: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.TXN_OFFSET_COMMIT: {ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.DESCRIBE_TRANSACTIONS: {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {ErrorCode.GROUP_ID_NOT_FOUND},
}
"""What is answered where it is not NONE."""


def _add_partitions_to_txn(version: int, names: Names) -> Message:
    topics = [AddPartitionsToTxnTopic(name=names.topic, partitions=[0])]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=PRODUCER,
            v3_and_below_producer_epoch=EPOCH,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_ID,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        verify_only=True,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _add_offsets_to_txn(version: int, names: Names) -> Message:
    return AddOffsetsToTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=PRODUCER, producer_epoch=EPOCH, group_id=names.group
    )


def _end_txn(version: int, names: Names) -> Message:
    return EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=PRODUCER, producer_epoch=EPOCH, committed=True
    )


def _write_txn_markers(version: int, names: Names) -> Message:
    topics = [WritableTxnMarkerTopic(name=names.topic, partition_indexes=[0])]
    marker = WritableTxnMarker(
        producer_id=PRODUCER, producer_epoch=EPOCH, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _txn_offset_commit(version: int, names: Names) -> Message:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="here")
    return TxnOffsetCommitRequest(
        transactional_id=TRANSACTIONAL_ID,
        group_id=names.group,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name=names.topic, partitions=[partition])],
    )


def _consumer_group_heartbeat(version: int, names: Names) -> Message:
    """A member joins a group of the new protocol."""
    return ConsumerGroupHeartbeatRequest(
        group_id=f"{names.group}-consumer",
        member_id="a-member",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[names.topic],
        topic_partitions=[],
    )


TRANSACTION_BUILDERS: dict[ApiKey, Callable[[int, Names], Message]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda version, names: DescribeTransactionsRequest(
        transactional_ids=[TRANSACTIONAL_ID]
    ),
    ApiKey.LIST_TRANSACTIONS: lambda version, names: ListTransactionsRequest(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda version, names: ConsumerGroupDescribeRequest(
        group_ids=[f"{names.group}-not-there"]
    ),
}
