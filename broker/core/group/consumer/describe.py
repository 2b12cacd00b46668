"""ConsumerGroupDescribe: a consumer group with its members, as operators see it (KIP-848, KIP-1099)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.member import ConsumerMember
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_group(shard: GroupCoordinatorShard, group_id: str) -> DescribedGroup:
    """One group with its members."""
    group = shard.consumer(group_id)
    if group is None:
        text = f"Group {group_id} {'is not a consumer group' if group_id in shard.groups else 'not found'}."
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=group.preferred_assignor() or shard.config.consumer_assignors[0],
        members=[_describe_member(group, member, shard.image) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> Member:
    said, current = member.subscription, member.current
    # What it is to give up is still its own until it says that it has.
    owned: dict[bytes, list[int]] = {}
    for partitions in (current.assigned, current.revoking):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, []).extend(indexes)
    return Member(
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=member.epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        assignment=_partitions(owned, image),
        target_assignment=_partitions(group.target_of(member.member_id), image),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _partitions(partitions: Mapping[bytes, Iterable[int]], image: MetadataImage) -> Assignment:
    topics = []
    for topic_id in sorted(partitions):
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            indexes = sorted(partitions[topic_id])
            topics.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=indexes))
    return Assignment(topic_partitions=topics)
