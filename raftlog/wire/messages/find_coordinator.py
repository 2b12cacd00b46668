"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Versions 0-6, flexible from 3.

1: transactional ids, error messages (KIP-98).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: compact lengths and tagged fields (KIP-482).
4: several keys (KIP-699).
5: TRANSACTION_ABORTABLE (KIP-890).
6: share groups (KIP-932).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible=3):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible=3):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
