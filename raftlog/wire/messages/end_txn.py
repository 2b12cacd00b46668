"""EndTxn (key 26): commits or aborts a transaction (KIP-98).

Versions 0-5, flexible from 3.

1: a throttled answer is sent at once and the client waits (KIP-219).
2: PRODUCER_FENCED (KIP-588).
3: compact lengths and tagged fields (KIP-482).
4: TRANSACTION_ABORTABLE (KIP-890).
5: the epoch is bumped and told in the response (KIP-890).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api_key=26, versions=(0, 5), flexible=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=26, versions=(0, 5), flexible=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
