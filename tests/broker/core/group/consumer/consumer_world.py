"""A shard with consumer groups in it: topics, heartbeats, and clients that behave as Kafka's consumers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raftlog.broker.core.group.assignors.assignor import finish
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.heartbeat import consumer_heartbeat
from raftlog.broker.core.group.consumer.large_target import assign_in_steps
from raftlog.broker.core.group.consumer.regexes import regexes_resolved, resolve
from raftlog.broker.core.group.consumer.state import GROUP_TRANSITIONS
from raftlog.broker.core.group.records import CoordinatorRecord
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from raftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.core.group.group_world import GROUP, World

Owned = dict[bytes, set[int]]


def topic_id(name: str, incarnation: int = 0) -> bytes:
    return f"{name}-{incarnation}".encode().ljust(16, b".")


def topic(name: str, partitions: int, incarnation: int = 0) -> TopicImage:
    states = tuple(
        PartitionState(partition_id=index, leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
        for index in range(partitions)
    )
    return TopicImage(name, topic_id(name, incarnation), states)


def image_of(topics: Mapping[str, TopicImage], version: int = 1) -> MetadataImage:
    base = MetadataImage()
    return MetadataImage(
        version=version,
        topics=base.topics.with_changes(dict(topics)),
        topics_by_id=base.topics_by_id.with_changes({each.topic_id: each for each in topics.values()}),
    )


class ConsumerWorld(World):
    """A world that has topics."""

    def set_topics(self, **partitions: int | TopicImage) -> None:
        """From now on there are these topics, with so many partitions, and no others."""
        before = self.shard.image.topics
        topics = {
            name: count if isinstance(count, TopicImage) else topic(name, count) for name, count in partitions.items()
        }
        changed = [name for name in {*before, *topics} if before.get(name) != topics.get(name)]
        image = image_of(topics, self.shard.image.version + 1)
        self.shard.follow(image, sorted(changed), has_new_topics=any(name not in before for name in topics))

    def append(
        self, records: list[CoordinatorRecord] | tuple[CoordinatorRecord, ...], producer: ProducerId | None = None
    ) -> ErrorCode:
        """Also: one write takes a group from a state to itself, or to one of those that may follow it."""
        before = {group: group.state for group in self.shard.consumer_groups()}
        error = super().append(records, producer)
        for group, state in before.items():
            assert group.state is state or group.state in GROUP_TRANSITIONS[state], (state, group.state, records)
        return error

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.consumer(GROUP)
        assert found is not None
        return found

    def resolve_regexes(self) -> None:
        """Do what goes on beside the heartbeats."""
        pending, self.resolutions = self.resolutions, []
        for resolution in pending:
            resolved = finish(resolve(resolution, self.shard.image, self.now))
            self.execute(regexes_resolved(self.shard, resolution.group_id, resolved, self.now))

    def begin_assignments(self) -> Iterator[None]:
        """The steps of the target assignments that are computed beside the heartbeats."""
        pending, self.assignments = self.assignments, []
        for group_id in pending:
            for effects in assign_in_steps(self.shard, group_id, self.now):
                if effects is not None:
                    self.execute(effects)
                yield

    def beat(self, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The answer to a heartbeat, which has to come at once."""
        answer = self.answers[self.send_beat(member_id, epoch, version=version, **fields)]
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def send_beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: Mapping[bytes, set[int]] | None = None,
        topics: list[str] | None = None,
        version: int = 1,
        group_id: str = GROUP,
        client_id: str = "client",
        **fields: Any,
    ) -> int:
        claimed = None
        if owned is not None:
            claimed = [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=each, partitions=sorted(partitions))
                for each, partitions in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            topic_partitions=claimed,
            **fields,
        )
        ticket = self.ticket()
        self.ids += 1
        caller = Caller(client_id, "/127.0.0.1", version, f"made-{self.ids:04d}")
        self.execute(consumer_heartbeat(self.shard, request, caller, ticket, self.now))
        return ticket

    def join_consumer(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """The first heartbeat of a member."""
        fields.setdefault("rebalance_timeout_ms", 30_000)
        return self.beat(member_id, 0, topics=list(topics), owned={}, **fields)


class Consumer:
    """A client of the consumer protocol: it gives up what it is told to, and says so with its next heartbeat."""

    def __init__(self, world: ConsumerWorld, member_id: str, topics: list[str], instance: str | None = None) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = topics
        self.regex: str | None = None
        self.instance = instance
        self.epoch = 0
        self.owned: Owned = {}
        # Whether the next heartbeat says all there is to say.
        self.says_all = True
        self.error = ErrorCode.NONE

    def beat(self) -> None:
        """One heartbeat whose answer comes."""
        self.take(self.world.answers.get(self.send()))

    def send(self) -> int:
        """One heartbeat."""
        fields: dict[str, Any] = {"owned": self.owned}
        if self.says_all or self.epoch == 0:
            fields |= {"topics": self.topics, "rebalance_timeout_ms": 30_000}
            if self.regex is not None:
                fields["subscribed_topic_regex"] = self.regex
        self.says_all = False
        return self.world.send_beat(self.member_id, self.epoch, instance_id=self.instance, **fields)

    def take(self, answer: ConsumerGroupHeartbeatResponse | None) -> None:
        """Obey an answer; None: it was lost."""
        if answer is None:
            self.says_all = True
            return
        self.error = ErrorCode(answer.error_code)
        if self.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.forget()
        elif self.error is not ErrorCode.NONE:
            self.says_all = True
        else:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}

    def forget(self) -> None:
        """Give up everything, and join again."""
        self.epoch, self.owned, self.says_all = 0, {}, True

    def leave(self, epoch: int = -1) -> ErrorCode:
        answer = self.world.beat(self.member_id, epoch, instance_id=self.instance)
        self.forget()
        return ErrorCode(answer.error_code)


def settle(world: ConsumerWorld, *consumers: Consumer, rounds: int = 12) -> None:
    """Heartbeats of all, a second apart, until everybody has what it is to have."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
        world.resolve_regexes()
        world.advance(1_000)
        if world.group.state_name == "Stable" and all(c.owned == target(world, c) for c in consumers):
            return
    raise AssertionError(f"not stable after {rounds} rounds: {world.group.state_name}")


def target(world: ConsumerWorld, consumer: Consumer) -> Owned:
    """What a consumer is to have."""
    return {each: set(partitions) for each, partitions in world.group.target_of(consumer.member_id).items()}
