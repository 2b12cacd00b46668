"""ListGroups (key 16), v0 to v5: the groups that this broker coordinates.

States and a filter on them (KIP-518, v4), types and a filter on them (KIP-848, v5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.core.group.admin import list_groups
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.group_lag import Lags, Position
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

    gather(context, context.services.groups.partitions_in_use(), partial(_list, context, request), done)


def _list(context: RequestContext, request: ListGroupsRequest, index: int, answer: Callable[[_Part], None]) -> None:
    def find(host: GroupHost) -> None:
        found = list_groups(host.shard, request.states_filter, request.types_filter)
        tell = partial(_add_lag, context, host, answer) if request.with_lag else answer
        # What is not committed in time is told all the same, with the error.
        host.commit(Decision((ErrorCode.NONE, found), []), tell, lambda error: tell((error, found)))

    context.services.groups.run_at(index, find, lambda error: answer((error, [])))


def _add_lag(context: RequestContext, host: GroupHost, answer: Callable[[_Part], None], part: _Part) -> None:
    """What raftlog's own client asks for: how many members there are, and how far the groups are behind."""
    error, listed = part
    committed: dict[str, list[Position]] = {}
    for each in listed:
        group = host.shard.groups.get(each.group_id)
        if group is not None:
            each.members = group.members_count
            committed[each.group_id] = [(name, index, known.offset) for name, index, known in group.offsets.committed()]

    def take(lags: Lags) -> None:
        now_ms = context.services.clock.now_ms()
        for each in listed:
            positions = committed.get(each.group_id, ())
            known = [(lags[position], position[2]) for position in positions if position in lags]
            if known or not positions:
                # A client may commit any number; one below zero is read as the start.
                each.lag = sum(max(lag.high_watermark - max(offset, 0), 0) for lag, offset in known)
                each.lag_ms = max((lag.milliseconds(now_ms) for lag, _ in known), default=0)
        answer((error, listed))

    context.services.lags.find([position for each in committed.values() for position in each], take)
