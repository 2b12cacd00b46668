"""AddOffsetsToTxn (key 25): a group's offsets become part of a transaction (KIP-98).

Versions 0-4, flexible from 3.

1: a throttled answer is sent at once and the client waits (KIP-219).
2: PRODUCER_FENCED (KIP-588).
3: compact lengths and tagged fields (KIP-482).
4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api_key=25, versions=(0, 4), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
