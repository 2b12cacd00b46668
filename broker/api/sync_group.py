"""SyncGroup (key 14), v0 to v5: hand in the assignment, or wait for one's own.

Static members (KIP-345, v3), the protocol that the client believes in (KIP-559, v5).
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.responses import sync_error
from raftlog.broker.core.group.sync import sync
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.sync_group import SyncGroupRequest


def handle(context: RequestContext, request: SyncGroupRequest) -> None:
    """Answered when the leader's assignment is stored."""

    def begin(host: GroupHost) -> None:
        host.take(partial(sync, host.shard, request, context.api_version), context.respond)

    def refuse(error: ErrorCode) -> None:
        context.respond(sync_error(error if request.group_id else ErrorCode.INVALID_GROUP_ID))

    context.services.groups.run(request.group_id, begin, refuse)
