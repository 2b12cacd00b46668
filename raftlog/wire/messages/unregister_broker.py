"""UnregisterBroker (key 64): forgets a broker (KIP-500).

Version 0, flexible.
"""

from __future__ import annotations

from raftlog.wire.schema import Message, int16, int32, string


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible=0):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
