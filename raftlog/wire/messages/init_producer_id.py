"""InitProducerId (key 22): gives a producer its id and epoch (KIP-98).

Versions 0-5, flexible from 2. Version 6 (two-phase commit, KIP-939) is unstable in Kafka 4.3 and not
defined here.

1: a throttled answer is sent at once and the client waits (KIP-219).
2: compact lengths and tagged fields (KIP-482).
3: the producer names its id and epoch to have the epoch bumped (KIP-360).
4: PRODUCER_FENCED (KIP-588).
5: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=22, versions=(0, 5), flexible=2):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible=2):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
