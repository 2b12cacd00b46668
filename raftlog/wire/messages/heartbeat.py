"""Heartbeat (key 12): a member of a group is alive, and learns of a rebalance.

Versions 0-4, flexible from 4.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: static members (KIP-345).
4: compact lengths and tagged fields (KIP-482).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
