"""Kafka's `range`: of each topic every member gets partitions that follow each other.

Members come in the order of their instance ids, those without one after them by member id, so that static members keep
their ranges over a restart. Topics with as many partitions and the same subscribers are co-partitioned: a member gets
the same partitions of each. What a member had, and its rack, count for nothing, as in Kafka: a range has no choice.
"""

from __future__ import annotations

from collections import defaultdict

from raftlog.broker.core.group.assignors.assignor import (
    STEPS_A_SLICE,
    MemberAssignment,
    Members,
    Steps,
    TopicId,
    Topics,
)


def assign_ranges(members: Members, topics: Topics) -> Steps:
    """See the module."""
    ordered = sorted(members, key=lambda member_id: _place(member_id, members[member_id].instance_id))
    subscribers: dict[TopicId, list[str]] = defaultdict(list)
    steps = 0
    for member_id in ordered:
        for topic_id in members[member_id].subscribed:
            subscribers[topic_id].append(member_id)
        steps += len(members[member_id].subscribed)
        if steps >= STEPS_A_SLICE:
            steps = 0
            yield
    assigned: dict[str, dict[TopicId, tuple[int, ...]]] = {member_id: {} for member_id in ordered}
    for topic_id in sorted(subscribers):
        topic = topics.get(topic_id)
        if topic is None:
            continue
        owners = subscribers[topic_id]
        quota, extra = divmod(topic.partition_count, len(owners))
        start = 0
        # Beyond the partitions' count the members get nothing.
        for position, member_id in enumerate(owners[: topic.partition_count]):
            end = start + quota + (position < extra)
            assigned[member_id][topic_id] = tuple(range(start, end))
            start = end
        steps += topic.partition_count
        if steps >= STEPS_A_SLICE:
            steps = 0
            yield
    result: dict[str, MemberAssignment] = {}
    for member_id, member in members.items():
        new = assigned[member_id]
        result[member_id] = member.target if new == member.target else new
        steps += len(new) + 1
        if steps >= STEPS_A_SLICE:
            steps = 0
            yield
    return result


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
