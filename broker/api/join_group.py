"""JoinGroup (key 11), v0 to v9: come into a group, and wait for the others.

Rebalance time-outs (KIP-62, v1), member ids given out first (KIP-394, v4), static members (KIP-345, v5), protocol type
in the answer (KIP-559, v7), reasons (KIP-800, v8), a static leader that need not assign (KIP-814, v9).
"""

from __future__ import annotations

import uuid
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.join import join
from raftlog.broker.core.group.responses import join_error
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_NULLABLE_PROTOCOL_FROM = 7


def handle(context: RequestContext, request: JoinGroupRequest) -> None:
    """Answered when the join phase ends, or at once when nobody is to be waited for."""
    # As Java prints an address, which is what tools show.
    host_name = f"/{context.client_host}"
    caller = Caller(context.client_id or "", host_name, context.api_version, str(uuid.uuid4()))

    def begin(host: GroupHost) -> None:
        host.take(partial(join, host.shard, request, caller), respond)

    def refuse(error: ErrorCode) -> None:
        respond(join_error(error if request.group_id else ErrorCode.INVALID_GROUP_ID, request.member_id))

    def respond(response: JoinGroupResponse) -> None:
        # Old versions have no null: an unsettled protocol is the empty text there.
        if response.protocol_name is None and context.api_version < _NULLABLE_PROTOCOL_FROM:
            response.protocol_name = ""
        context.respond(response)

    context.services.groups.run(request.group_id, begin, refuse)
