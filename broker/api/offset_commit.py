"""OffsetCommit (key 8), v2 to v10: remember how far a group has come.

Retention of its own (v2 to v4, gone with KIP-211), leader epochs (KIP-320, v6), static members (KIP-345, v7), topic ids
(KIP-848, v10). Warm path: every consumer does this every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.commits import commit_in_parts
from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.offsets import commit_offsets, refuse_commit
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


def handle(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Answered when the offsets are committed."""
    commit_in_parts(context, request, partial(_commit, context))


def _commit(
    context: RequestContext, request: OffsetCommitRequest, answer: Callable[[OffsetCommitResponse], None]
) -> None:
    def commit(host: GroupHost) -> None:
        image = context.services.controller.image
        decision = commit_offsets(host.shard, request, context.api_version, image, host.now())
        host.commit(decision, answer, refuse)

    def refuse(error: ErrorCode) -> None:
        image = context.services.controller.image
        answer(refuse_commit(request, error, context.api_version, image))

    context.services.groups.run(request.group_id, commit, refuse)
