"""ListGroups (key 16), v0 to v5: the groups that this broker coordinates.

States and a filter on them (KIP-518, v4), types and a filter on them (KIP-848, v5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.parts import in_parts
from raftlog.broker.core.group.admin import list_groups
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_Part = tuple[ErrorCode, list[ListedGroup]]


def handle(context: RequestContext, request: ListGroupsRequest) -> None:
    """All groups, or those that pass the filters; with an error the list may lack some."""

    def done(parts: list[_Part]) -> None:
        context.respond(
            ListGroupsResponse(
                error_code=next((error for error, _ in parts if error is not ErrorCode.NONE), ErrorCode.NONE),
                groups=[group for _, groups in parts for group in groups],
            )
        )

    in_parts(context.services.groups.partitions_in_use(), partial(_list, context, request), done)


def _list(context: RequestContext, request: ListGroupsRequest, index: int, answer: Callable[[_Part], None]) -> None:
    def find(host: GroupHost) -> None:
        found = list_groups(host.shard, request.states_filter, request.types_filter)
        # What is not committed in time is told all the same, with the error.
        host.commit(Decision((ErrorCode.NONE, found), []), answer, lambda error: answer((error, found)))

    context.services.groups.run_at(index, find, lambda error: answer((error, [])))
