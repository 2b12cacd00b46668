"""Dividing partitions among the members of a group: the range assignor, and assignments as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
)
from raftlog.wire.schema import Bytes

Assignment = dict[str, list[int]]
"""Topic to partitions."""

VERSION = 0
"""Of what is written: later ones tell the assignor what a member owned before, which the range assignor ignores."""


def write_subscription(topics: Sequence[str]) -> bytes:
    return encode_internal(ConsumerProtocolSubscription(topics=list(topics)), VERSION)


def write_assignment(assignment: Assignment) -> bytes:
    shares = [AssignmentTopicPartition(topic=topic, partitions=each) for topic, each in assignment.items()]
    return encode_internal(ConsumerProtocolAssignment(assigned_partitions=shares), VERSION)


def read_assignment(data: Bytes) -> Assignment:
    """No bytes are no assignment. Raises RemoteProtocolError."""
    if not data:
        return {}
    return {each.topic: each.partitions for each in decode_assignment(data).assigned_partitions}


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
