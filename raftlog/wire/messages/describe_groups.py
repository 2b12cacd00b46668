"""DescribeGroups (key 15): state and members of classic groups.

Versions 0-6, flexible from 5.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: authorized operations (KIP-430).
4: static members (KIP-345).
5: compact lengths and tagged fields (KIP-482).
6: error message; GROUP_ID_NOT_FOUND in place of a dead group (KIP-1043).
"""

from __future__ import annotations

from raftlog.wire.schema import Bytes, Message, Struct, array, binary, boolean, int16, int32, string


class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible=5):
    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Bytes = binary()
    member_assignment: Bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible=5):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
