"""What the members of a consumer group are to have: an assignor is asked, and what is new becomes records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raftlog.broker.core.group.assignors.assignor import Assignor, MemberSpec, describe_topics, finish
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.member import ConsumerMember, Target
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.metadata.image import MetadataImage


class NewTarget(NamedTuple):
    """A target assignment: of every member, and as records what differs from the one before."""

    by_member: Mapping[str, Target]
    records: list[ConsumerGroupRecord]


def compute_target(
    group: ConsumerGroup, updated: ConsumerMember, target_epoch: TargetEpoch, assignor: Assignor, image: MetadataImage
) -> NewTarget:
    """The target assignment for the group with `updated` in it, be it new, changed, or in place of a static member."""
    members = dict(group.members)
    replaced = group.static_member(updated.instance_id)
    if replaced is not None:
        members.pop(replaced.member_id, None)
    members[updated.member_id] = updated
    ids: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        names = frozenset(group.topics_of(member.subscription))
        subscribed = ids.get(names)
        if subscribed is None:
            subscribed = ids[names] = topic_ids(names, image)
        had = replaced.member_id if replaced is not None and member is updated else member_id
        specs[member_id] = MemberSpec(subscribed, group.target_of(had), member.subscription.rack_id, member.instance_id)
    with_racks = any(spec.rack is not None for spec in specs.values())
    consumed = {topic_id: None for subscribed in ids.values() for topic_id in sorted(subscribed)}
    assigned = finish(assignor(specs, describe_topics(image, consumed, with_racks=with_racks)))
    group_id = group.group_id
    records: list[ConsumerGroupRecord] = [
        TargetRecord(group_id, member_id, assigned[member_id])
        for member_id in specs
        if group.target.get(member_id) != assigned[member_id]
    ]
    records.append(TargetEpochRecord(group_id, target_epoch))
    return NewTarget(assigned, records)


def topic_ids(names: Iterable[str], image: MetadataImage) -> frozenset[bytes]:
    """The ids of the topics that there are."""
    return frozenset(topic.topic_id for name in names if (topic := image.topics.get(name)) is not None)
