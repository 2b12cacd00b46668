"""SyncGroup (key 14): the leader of a group hands in the assignment, and every member gets its part.

Versions 0-5, flexible from 4.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: static members (KIP-345).
4: compact lengths and tagged fields (KIP-482).
5: protocol type and name, to be checked on both sides (KIP-559).
"""

from __future__ import annotations

from raftlog.wire.schema import Bytes, Message, Struct, array, binary, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: Bytes = binary()


class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: Bytes = binary()
