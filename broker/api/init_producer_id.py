"""InitProducerId (key 22), v0 to v5.

A producer without a transactional id gets an id that nobody ever had, with epoch 0, also when it names the one that
it had (KIP-360): as in Kafka, only the producer itself raises the epoch of such an id. Transactional ids are
refused until there is a transaction coordinator.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def handle(context: RequestContext, request: InitProducerIdRequest) -> None:
    """A new producer id and epoch, or why not."""
    error = _refusal(request)
    if error is ErrorCode.NONE:
        context.respond_with(_new_id(context))
    else:
        context.respond(_refused(error))


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    if request.transactional_id:
        # The one code after which every client stops and says so; others are retried for minutes.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.transactional_id is not None or (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


async def _new_id(context: RequestContext) -> InitProducerIdResponse:
    error, producer_id = await context.services.controller.next_producer_id(context.services.node_id)
    if error is not ErrorCode.NONE:
        # The client tries again: a disk that is full or a quorum without a leader may recover.
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)
