"""Which replica a consumer should read from (KIP-392), as Kafka's RackAwareReplicaSelector chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.core.replica.leadership import Leadership

LEADER = -1
"""Read from the leader."""


def closest_replica(
    leadership: Leadership,
    rack: str,
    fetch_offset: int,
    *,
    leader_rack: str | None,
    rack_of: Callable[[BrokerId], str | None],
) -> int:
    """The in-sync follower in the consumer's rack that is furthest and has `fetch_offset`; LEADER if there is none, or
    the leader is in that rack itself. `rack_of` is None for brokers that clients cannot use.
    """
    if leader_rack == rack:
        return LEADER
    near = [
        follower
        for broker_id, follower in leadership.followers.items()
        if broker_id in leadership.isr
        and 0 <= follower.log_start_offset <= fetch_offset <= follower.end_offset
        and rack_of(broker_id) == rack
    ]
    if not near:
        return LEADER
    return max(near, key=lambda follower: (follower.end_offset, follower.caught_up_ms, follower.broker_id)).broker_id
