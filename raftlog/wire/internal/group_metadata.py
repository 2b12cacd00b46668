"""A generation of a classic group, with its members, in `__consumer_offsets`.

Value versions:

1: rebalance timeout of the members (KIP-62).
2: time of the last change of state (KIP-211).
3: static members (KIP-345).
4: compact lengths and tagged fields (KIP-915).
"""

from __future__ import annotations

from raftlog.wire.schema import Bytes, Message, Struct, array, binary, int32, int64, string


class GroupMetadataKey(Message, versions=(2, 2)):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: Bytes = binary()
    assignment: Bytes = binary()


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
