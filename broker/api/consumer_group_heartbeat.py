"""ConsumerGroupHeartbeat (key 68), v0 and v1: all that a member of a consumer group says and is told (KIP-848).

Regular expressions, and a member id that the client makes (KIP-1082, v1).
"""

from __future__ import annotations

import uuid
from functools import partial

from raftlog.broker.api.context import RequestContext, Services
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.consumer.heartbeat import consumer_heartbeat, heartbeat_error
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.metadata.feature_levels import GROUP_VERSION
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_CONSUMER_PROTOCOL_FROM = 1


def has_consumer_protocol(services: Services) -> bool:
    """Whether the cluster serves the consumer protocol."""
    return services.controller.image.features.get(GROUP_VERSION, 0) >= _CONSUMER_PROTOCOL_FROM


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    """Answered when what it leads to is committed; nobody is waited for."""
    if not has_consumer_protocol(context.services):
        context.respond(heartbeat_error(ErrorCode.UNSUPPORTED_VERSION))
        return
    # As Java prints an address, which is what tools show.
    caller = Caller(context.client_id or "", f"/{context.client_host}", context.api_version, str(uuid.uuid4()))

    def begin(host: GroupHost) -> None:
        host.take(partial(consumer_heartbeat, host.shard, request, caller), context.respond)

    def refuse(error: ErrorCode) -> None:
        context.respond(heartbeat_error(error))

    context.services.groups.run(request.group_id, begin, refuse)
