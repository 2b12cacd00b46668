"""AddOffsetsToTxn (key 25), v0 to v4: a group's offsets become part of a transaction (KIP-98).

PRODUCER_FENCED (KIP-588, v2). What becomes part is the partition of `__consumer_offsets` that keeps the group. Clients
of transaction.version 2 do without: TxnOffsetCommit takes it in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.fencing import fencing_error
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, coordinator_partition
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.partitions import add_partitions
from raftlog.broker.core.transaction.state import ProducerIdentity
from raftlog.broker.runtime.transaction_coordinator import CLIENT_WAIT_SECONDS
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

_PRODUCER_FENCED_FROM = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> None:
    """Whether the group's partition is part of the transaction now."""
    topic = context.services.controller.image.topics.get(GROUP_TOPIC)
    if topic is None:
        context.respond_with(_create_and_add(context, request))
    else:
        _add(context, request, len(topic.partitions), context.respond)


async def _create_and_add(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    controller = context.services.controller
    await controller.ensure_internal_topic(GROUP_TOPIC)
    topic = controller.image.topics.get(GROUP_TOPIC)
    if topic is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answered: asyncio.Future[AddOffsetsToTxnResponse] = context.services.loop.create_future()
    _add(context, request, len(topic.partitions), answered.set_result)
    return await answered


def _add(
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
    partition_count: int,
    answer: Callable[[AddOffsetsToTxnResponse], None],
) -> None:
    producer = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    partition = (GROUP_TOPIC, coordinator_partition(request.group_id, partition_count))

    def add(host: TransactionHost, _: ProducerId | None) -> Decision[ErrorCode] | Undecided:
        return add_partitions(
            host.shard, request.transactional_id, producer, (partition,), host.now(), client_version=0
        )

    def respond(error: ErrorCode) -> None:
        told = fencing_error(error, context.api_version, _PRODUCER_FENCED_FROM)
        answer(AddOffsetsToTxnResponse(error_code=told))

    context.services.transactions.decide(
        request.transactional_id, add, respond, respond, wait_seconds=CLIENT_WAIT_SECONDS
    )
