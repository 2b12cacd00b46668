"""AddPartitionsToTxn (key 24), v0 to v5: partitions become part of a transaction (KIP-98).

PRODUCER_FENCED (KIP-588, v2). Up to v3 from clients, one transaction at a time; from v4 on from the leaders of
partitions, several at once, that ask whether a transaction has their partition (KIP-890 part 1) or take it in for a
client of transaction.version 2 (part 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.fencing import fencing_error
from raftlog.broker.api.gather import gather
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.partitions import add_partitions, verify_partitions
from raftlog.broker.core.transaction.state import EPOCH_BUMP_FROM, ProducerIdentity, TopicPartition
from raftlog.broker.runtime.transaction_coordinator import BROKER_WAIT_SECONDS, CLIENT_WAIT_SECONDS
from raftlog.metadata.topic_names import INTERNAL_TOPICS
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

_PRODUCER_FENCED_FROM = 2
_FROM_BROKERS_FROM = 4

_Errors = Mapping[TopicPartition, ErrorCode]


def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
    """What has come of each partition of each transaction."""
    is_from_broker = context.api_version >= _FROM_BROKERS_FROM
    transactions = request.transactions if is_from_broker else [_of_client(request)]

    def done(results: list[AddPartitionsToTxnResult]) -> None:
        if is_from_broker:
            context.respond(AddPartitionsToTxnResponse(results_by_transaction=results))
        else:
            context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results))

    gather(context, transactions, partial(_begin, context, is_from_broker), done)


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _begin(
    context: RequestContext,
    is_from_broker: bool,
    transaction: AddPartitionsToTxnTransaction,
    answer: Callable[[AddPartitionsToTxnResult], None],
) -> None:
    transactional_id = transaction.transactional_id
    producer = ProducerIdentity(ProducerId(transaction.producer_id), ProducerEpoch(transaction.producer_epoch))
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]

    def respond(errors: _Errors) -> None:
        answer(_result(transactional_id, errors))

    def respond_alike(error: ErrorCode) -> None:
        respond(dict.fromkeys(partitions, fencing_error(error, context.api_version, _PRODUCER_FENCED_FROM)))

    def add(host: TransactionHost, _: ProducerId | None) -> Decision[ErrorCode] | Undecided:
        version = EPOCH_BUMP_FROM if is_from_broker else 0
        return add_partitions(host.shard, transactional_id, producer, partitions, host.now(), client_version=version)

    def verify(host: TransactionHost) -> None:
        if not host.partition.leads_for_certain:
            # A successor may have ended the transaction, and before transaction.version 2 the next one has the same
            # epoch: nobody would notice a late batch.
            respond_alike(ErrorCode.NOT_COORDINATOR)
            return
        host.execute(verify_partitions(host.shard, transactional_id, producer, partitions), respond, respond_alike)

    refused = _refused_partitions(context, is_from_broker, partitions)
    if refused:
        respond(refused)
    elif transaction.verify_only:
        context.services.transactions.run(transactional_id, verify, respond_alike)
    else:
        wait = BROKER_WAIT_SECONDS if is_from_broker else CLIENT_WAIT_SECONDS
        context.services.transactions.decide(transactional_id, add, respond_alike, respond_alike, wait_seconds=wait)


def _refused_partitions(
    context: RequestContext, is_from_broker: bool, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Errors for all partitions if one of them cannot be added; else nothing."""
    image = context.services.controller.image
    errors = {}
    for name, index in partitions:
        if not is_from_broker and name in INTERNAL_TOPICS:
            errors[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(name, index) is None:
            errors[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return {}
    return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors


def _result(transactional_id: str, errors: _Errors) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), error in errors.items():
        topics.setdefault(name, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        )
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()
        ],
    )
