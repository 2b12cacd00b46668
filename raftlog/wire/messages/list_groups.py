"""ListGroups (key 16): the groups that a broker coordinates.

Versions 0-5, flexible from 3.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: compact lengths and tagged fields (KIP-482).
4: states, and a filter on them (KIP-518).
5: types, and a filter on them (KIP-848).

raftlog's own client: `with_lag` asks how many members each group has and how far it is behind, in records of all
its partitions and in the time of the partition that is furthest behind.
"""

from __future__ import annotations

from raftlog.wire.schema import OWN_TAGS_FROM, Message, Struct, array, boolean, int16, int32, int64, string


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")
    with_lag: bool = boolean("3+", ignorable=True, tag=OWN_TAGS_FROM)


class ListedGroup(Struct):
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)
    members: int = int32("3+", default=-1, ignorable=True, tag=OWN_TAGS_FROM)
    lag: int = int64("3+", default=-1, ignorable=True, tag=OWN_TAGS_FROM + 1)
    lag_ms: int = int64("3+", default=-1, ignorable=True, tag=OWN_TAGS_FROM + 2)


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
