"""JoinGroup (key 11): a member enters the group, and waits until all have.

Versions 0-9, flexible from 6.

1: rebalance timeout (KIP-62).
2: throttle time (KIP-124).
3: a throttled answer is sent at once and the client waits (KIP-219).
4: MEMBER_ID_REQUIRED for a member without an id (KIP-394).
5: static members (KIP-345).
6: compact lengths and tagged fields (KIP-482).
7: protocol type in the response (KIP-559).
8: reason for joining (KIP-800).
9: the leader may be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from raftlog.wire.schema import Bytes, Message, Struct, array, binary, boolean, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: Bytes = binary()


class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible=6):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: Bytes = binary()


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
