"""OffsetDelete (key 47), v0: forget how far a group has come in topics that it does not consume any more (KIP-496)."""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.offsets import delete_offsets
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def handle(context: RequestContext, request: OffsetDeleteRequest) -> None:
    """Answered when the removals are committed."""

    def delete(host: GroupHost) -> None:
        decision = delete_offsets(host.shard, request, context.services.controller.image)
        host.commit(decision, context.respond, refuse)

    def refuse(error: ErrorCode) -> None:
        context.respond(OffsetDeleteResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID))

    context.services.groups.run(request.group_id, delete, refuse)
