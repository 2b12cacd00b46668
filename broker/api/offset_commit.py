"""OffsetCommit (key 8), v2 to v10: remember how far a group has come.

Retention of its own (v2 to v4, gone with KIP-211), leader epochs (KIP-320, v6), static members (KIP-345, v7), topic ids
(KIP-848, v10). Warm path: every consumer does this every few seconds.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.offsets import commit_offsets, refuse_commit
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_commit import OffsetCommitRequest


def handle(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Answered when the offsets are committed."""

    def commit(host: GroupHost) -> None:
        image = context.services.controller.image
        decision = commit_offsets(host.shard, request, context.api_version, image, host.now())
        host.commit(decision, context.respond, refuse)

    def refuse(error: ErrorCode) -> None:
        image = context.services.controller.image
        context.respond(refuse_commit(request, error, context.api_version, image))

    context.services.groups.run(request.group_id, commit, refuse)
