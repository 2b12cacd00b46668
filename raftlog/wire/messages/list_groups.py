"""ListGroups (key 16): the groups that a broker coordinates.

Versions 0-5, flexible from 3.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: compact lengths and tagged fields (KIP-482).
4: states, and a filter on them (KIP-518).
5: types, and a filter on them (KIP-848).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
