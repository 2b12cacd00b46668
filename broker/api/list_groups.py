"""ListGroups (key 16), v0 to v5: the groups that this broker coordinates.

States and a filter on them (KIP-518, v4), types and a filter on them (KIP-848, v5).
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.core.group.admin import list_groups
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@responds_later
async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups, or those that pass the filters; with an error the list may lack some."""
    errors: list[ErrorCode] = []
    found = await context.services.groups.ask_all(
        lambda shard: list_groups(shard, request.states_filter, request.types_filter), errors.append
    )
    return ListGroupsResponse(error_code=errors[0] if errors else ErrorCode.NONE, groups=found)
