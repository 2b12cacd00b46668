"""OffsetCommit (key 8), v2 to v10: remember how far a group has come.

Retention of its own (v2 to v4, gone with KIP-211), leader epochs (KIP-320, v6), static members (KIP-345, v7), topic ids
(KIP-848, v10). Warm path: every consumer does this every few seconds.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.offsets import commit_offsets, refuse_commit
from raftlog.broker.runtime.group_shard_host import GroupShardHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_Answer = OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]


def handle(context: RequestContext, request: OffsetCommitRequest) -> None:
    """Answered when the offsets are committed."""
    respond_either(context, _answer(context, request))


def _answer(context: RequestContext, request: OffsetCommitRequest) -> _Answer:
    groups = context.services.groups

    def refuse(error: ErrorCode) -> OffsetCommitResponse:
        return refuse_commit(request, error)

    def act(host: GroupShardHost) -> _Answer:
        image = context.services.controller.image
        decision = commit_offsets(host.shard, request, context.api_version, image, groups.now())
        return groups.settle(host, decision, refuse)

    return groups.ask(request.group_id, act, refuse)
