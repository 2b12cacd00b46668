"""UnregisterBroker (key 64), v0: forget a broker that is gone for good (KIP-500)."""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.metadata.cluster_commands import UnregisterBroker
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@responds_later
async def handle(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """The answer comes when it is committed."""
    answer = await context.services.controller.execute(UnregisterBroker(BrokerId(request.broker_id)))
    return UnregisterBrokerResponse(error_code=answer.error, error_message=answer.message)
