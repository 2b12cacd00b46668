"""InitProducerId (key 22), v0 to v5.

A producer without a transactional id gets an id that nobody ever had, with epoch 0, also when it names the one that
it had (KIP-360): as in Kafka, only the producer itself raises the epoch of such an id. One with a transactional id
gets the id that belongs to it, with an epoch that fences everybody who had it before (KIP-98, KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.fencing import fencing_error
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.initialize import (
    InitializedProducer,
    InitProducerId,
    check_initialize,
    initialize,
)
from raftlog.broker.core.transaction.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from raftlog.broker.runtime.transaction_coordinator import CLIENT_WAIT_SECONDS
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from raftlog.broker.runtime.transaction_host import TransactionHost

_PRODUCER_FENCED_FROM = 4


def handle(context: RequestContext, request: InitProducerIdRequest) -> None:
    """A producer id and epoch, or why not."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        context.respond(_refused(ErrorCode.INVALID_REQUEST))
    elif request.transactional_id is None:
        context.respond_with(_new_id(context))
    else:
        _initialize(context, request, request.transactional_id)


async def _new_id(context: RequestContext) -> InitProducerIdResponse:
    error, producer_id = await context.services.controller.next_producer_id(context.services.node_id)
    if error is not ErrorCode.NONE:
        # The client tries again: a disk that is full or a quorum without a leader may recover.
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=0)


def _initialize(context: RequestContext, request: InitProducerIdRequest, transactional_id: str) -> None:
    transactions = context.services.transactions
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    asked = InitProducerId(transactional_id, request.transaction_timeout_ms, expected)

    def decide(host: TransactionHost, new_producer_id: ProducerId | None) -> Decision[InitializedProducer] | Undecided:
        return initialize(
            host.shard,
            asked,
            host.now(),
            transaction_version=transactions.transaction_version,
            new_producer_id=new_producer_id,
        )

    def respond(initialized: InitializedProducer) -> None:
        error = fencing_error(initialized.error, context.api_version, _PRODUCER_FENCED_FROM)
        context.respond(
            InitProducerIdResponse(
                error_code=error, producer_id=initialized.producer_id, producer_epoch=initialized.epoch
            )
        )

    refuse = partial(_refuse, context)
    error = check_initialize(transactions.config, asked)
    if error is not ErrorCode.NONE:
        refuse(error)
    else:
        transactions.decide(
            transactional_id, decide, respond, refuse, wait_seconds=CLIENT_WAIT_SECONDS
        )


def _refuse(context: RequestContext, error: ErrorCode) -> None:
    context.respond(_refused(error))


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
