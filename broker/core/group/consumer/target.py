"""What the members of a consumer group are to have: an assignor is asked, and what is new becomes records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raftlog.broker.core.group.assignors.assignor import Assignor, MemberSpec, Steps, describe_topics, finish
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.member import ConsumerMember, Target
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.metadata.image import MetadataImage

AT_ONCE_MAX = 1_000
"""Members and partitions of a group whose target is computed in the heartbeat that needs it, in some milliseconds; that
of a larger one is computed beside the heartbeats, and its members hear of it with their next ones.
"""

ANSWERED_NOW = -sys.maxsize
"""The rank of a member whose heartbeat needs the target."""


class NewTarget(NamedTuple):
    """A target assignment: of every member, and as records what differs from the one before."""

    by_member: Mapping[str, Target]
    records: list[ConsumerGroupRecord]


def is_large(group: ConsumerGroup, updated: ConsumerMember, image: MetadataImage) -> bool:
    """Whether the target takes too long to be computed at once, with `updated` in the group."""
    names = {*group.topic_subscribers, *group.topics_of(updated.subscription)}
    topics = (image.topics.get(name) for name in names)
    return len(group.members) + sum(len(topic.partitions) for topic in topics if topic is not None) > AT_ONCE_MAX


def compute_target(
    group: ConsumerGroup,
    updated: ConsumerMember,
    target_epoch: TargetEpoch,
    assignor: Assignor,
    image: MetadataImage,
    *,
    ranks: Mapping[str, int],
) -> NewTarget:
    """The target assignment for the group with `updated` in it, be it new, changed, or in place of a static member;
    `ranks` as in `describe_members`."""
    members = dict(group.members)
    replaced = group.static_member(updated.instance_id)
    if replaced is not None:
        members.pop(replaced.member_id, None)
    members[updated.member_id] = updated
    before = dict(group.target)
    if replaced is not None:
        before[updated.member_id] = group.target_of(replaced.member_id)
    specs = describe_members(group, members.values(), before, image, ranks)
    assigned = finish(assign(specs, assignor, image))
    group_id = group.group_id
    records: list[ConsumerGroupRecord] = [
        TargetRecord(group_id, member_id, assigned[member_id])
        for member_id in specs
        if group.target.get(member_id) != assigned[member_id]
    ]
    records.append(TargetEpochRecord(group_id, target_epoch))
    return NewTarget(assigned, records)


def describe_members(
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    before: Mapping[str, Target],
    image: MetadataImage,
    ranks: Mapping[str, int],
) -> dict[str, MemberSpec]:
    """The members as an assignor sees them; `before` is what they were to have. The lowest of `ranks` belongs to the
    member that is heard of next.
    """
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member in members:
        names = frozenset(group.topics_of(member.subscription))
        subscribed = ids.get(names)
        if subscribed is None:
            subscribed = ids[names] = topic_ids(names, image)
        had = before.get(member.member_id, {})
        about = member.subscription
        rank = ranks[member.member_id]
        specs[member.member_id] = MemberSpec(subscribed, had, about.rack_id, about.instance_id, rank)
    return specs


def assign(specs: Mapping[str, MemberSpec], assignor: Assignor, image: MetadataImage) -> Steps:
    """What each of them is to have, in steps."""
    with_racks = any(spec.rack is not None for spec in specs.values())
    subscriptions = dict.fromkeys(spec.subscribed for spec in specs.values())
    consumed = {topic_id: None for subscribed in subscriptions for topic_id in sorted(subscribed)}
    return assignor(specs, describe_topics(image, consumed, with_racks=with_racks))


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[bytes]:
    """The ids of the topics that there are."""
    return frozenset(topic.topic_id for name in names if (topic := image.topics.get(name)) is not None)
