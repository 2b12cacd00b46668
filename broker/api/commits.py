"""Commits of offsets of thousands of partitions: in parts, as if the client had sent each in a request of its own.

Each part is checked and written in one turn, on what is known then: a member that is fenced meanwhile, or a transaction
that ends, has the rest refused. What the connection asks next waits, for it may commit the same partitions again.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.pace import in_parts, wait_for
from raftlog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from raftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

COMMITS_TOGETHER = 500
"""Partitions that are committed in one turn: some milliseconds, ten where each has a text beside its offset."""

Q = TypeVar("Q", OffsetCommitRequest, TxnOffsetCommitRequest)
R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)


def commit_in_parts(
    context: RequestContext, request: Q, commit: Callable[[Q, Callable[[R], None]], None]
) -> None:
    """Answer a request; `commit` does one of COMMITS_TOGETHER partitions or less, and tells the answer once. Requests
    that are not large are done at once."""
    if not context.is_large:
        commit(request, context.respond)
        return
    context.connection.hold()

    def done(response: R | None) -> None:
        context.connection.release()
        if response is None:
            commit(request, context.respond)
        else:
            context.respond(response)

    context.in_turns(_committed(context, request, commit), done)


async def _committed(
    context: RequestContext, request: Q, commit: Callable[[Q, Callable[[R], None]], None]
) -> R | None:
    """The answer to all parts; None if there are none."""
    whole: R | None = None
    for topics in in_parts(request.topics, COMMITS_TOGETHER):
        part = copy(request)
        part.topics = topics
        answered = context.services.loop.create_future()
        commit(part, answered.set_result)
        response: R = await wait_for(answered)
        if whole is None:
            whole = response
        else:
            _add(whole, response)
    return whole


def _add(whole: R, part: R) -> None:
    """A topic that was divided is one again."""
    before, more = whole.topics, part.topics
    if before and more and _name(before[-1]) == _name(more[0]):
        before[-1].partitions += more[0].partitions
        more = more[1:]
    before += more


def _name(topic: object) -> tuple[str, bytes]:
    return getattr(topic, "name", ""), getattr(topic, "topic_id", b"")
