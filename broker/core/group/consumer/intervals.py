"""How often a member of a consumer group is told to send heartbeats.

A change of the group is heard of with the next heartbeat, and what became free goes to those who come next
(`GroupCoordinatorShard.rank_members`). Members that were started together would come together for ever, and all wait as
long; so each member of a larger group has an interval of its own, a little shorter than what is set.
"""

from __future__ import annotations

from zlib import crc32

from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.metadata.group_configs import ConsumerGroupSettings

SPREAD_FROM_MEMBERS = 10
"""A group with fewer members is told exactly what is set, as Kafka does it."""

SPREAD = 4
"""Intervals differ by up to one in so many."""


def heartbeat_interval_ms(group: ConsumerGroup, member_id: str, settings: ConsumerGroupSettings) -> int:
    """The interval of a member, always the same one: a client begins anew to wait when it is told another."""
    interval_ms = settings.heartbeat_interval_ms
    if len(group.members) < SPREAD_FROM_MEMBERS:
        return interval_ms
    return interval_ms - crc32(member_id.encode()) % (interval_ms // SPREAD + 1)
