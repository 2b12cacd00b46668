"""Subscriptions and assignments of a classic group as plain values and bytes, and the range assignor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
)
from raftlog.wire.schema import Bytes

Assignment = dict[str, list[int]]
"""Topic to partitions."""

VERSION = 0
"""Of assignments: later ones differ in nothing."""
TAKES = b"takes"
"""User data of an assignment that takes partitions from its member; clients other than this one do not look at it."""
SUBSCRIPTION_VERSION = 3
"""Of subscriptions: with what a member owns, since when (KIP-429, KIP-792), and its rack (KIP-881)."""


def write_subscription(
    topics: Sequence[str],
    owned: Iterable[tuple[str, int]] = (),
    generation: int = -1,
    rack: str | None = None,
) -> bytes:
    shares: Assignment = {}
    for topic, index in sorted(owned):
        shares.setdefault(topic, []).append(index)
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[SubscriptionTopicPartition(topic=name, partitions=each) for name, each in shares.items()],
        generation_id=generation,
        rack_id=rack,
    )
    return encode_internal(subscription, SUBSCRIPTION_VERSION)


def write_assignment(assignment: Assignment, *, takes: bool = False) -> bytes:
    """`takes`: whether its member gives up partitions that it owned, and has to join again when it has done so."""
    shares = [AssignmentTopicPartition(topic=topic, partitions=each) for topic, each in assignment.items()]
    user_data = TAKES if takes else None
    return encode_internal(ConsumerProtocolAssignment(assigned_partitions=shares, user_data=user_data), VERSION)


def read_assignment(data: Bytes) -> Assignment:
    """No bytes are no assignment. Raises RemoteProtocolError."""
    if not data:
        return {}
    return {each.topic: each.partitions for each in decode_assignment(data).assigned_partitions}


def partitions_of(assignment: Assignment) -> frozenset[tuple[str, int]]:
    """Its topics and partitions, one by one."""
    return frozenset((topic, index) for topic, indexes in assignment.items() for index in indexes)


def takes_partitions(data: Bytes) -> bool:
    """Whether it was written with `takes`. Raises RemoteProtocolError."""
    return bool(data) and decode_assignment(data).user_data == TAKES


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """Kafka's range assignor: each topic's partitions in even runs over its subscribers, in the order of their ids.

    `subscriptions`: member id to topics. `partitions`: topic to number of partitions (unknown topics left out).
    """
    assigned: dict[str, Assignment] = {member: {} for member in subscriptions}
    for topic in sorted(partitions):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        start = 0
        for at, member in enumerate(members):
            share = partitions[topic] // len(members) + (at < partitions[topic] % len(members))
            if share:
                assigned[member][topic] = list(range(start, start + share))
            start += share
    return assigned
