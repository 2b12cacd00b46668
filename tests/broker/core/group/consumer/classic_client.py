"""A client of the classic protocol with Kafka's assignment within it, as it behaves in groups of both kinds."""

from __future__ import annotations

from typing import Any

from raftlog.wire.errors import ErrorCode
from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
)
from tests.broker.core.group.consumer.consumer_world import ConsumerWorld, Owned

PROTOCOL = "range"


class ClassicClient:
    """Eager, it gives up everything before it joins; cooperative, it joins with what it has, and joins again when it
    had to give something up.
    """

    def __init__(
        self, world: ConsumerWorld, topics: list[str], *, cooperative: bool, instance: str | None = None
    ) -> None:
        self.world = world
        self.topics = topics
        self.cooperative = cooperative
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = {}
        self.joining: int | None = None
        self.syncing: int | None = None
        # Another client has its instance id, and it stops.
        self.is_fenced = False

    def forget(self) -> None:
        """Begin anew; a static member has its member id from the broker."""
        self.member_id, self.generation, self.owned = "", -1, {}
        self.joining = self.syncing = None

    def step(self) -> None:
        """Take the answer that has come, or send what is next."""
        if self.is_fenced:
            return
        if self.joining is not None:
            self._take_join(self.world.answers.get(self.joining))
        elif self.syncing is not None:
            self._take_sync(self.world.answers.get(self.syncing))
        elif self.generation < 0:
            self._join()
        else:
            error = self.world.heartbeat(self.member_id, self.generation, self.instance)
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                self._join()
            elif error is not ErrorCode.NONE:
                self._refused(error)

    def _refused(self, error: ErrorCode) -> None:
        self.is_fenced = error is ErrorCode.FENCED_INSTANCE_ID
        self.forget()

    def _names(self, owned: Owned) -> dict[str, list[int]]:
        topics = self.world.shard.image.topics_by_id
        return {topics[each].name: sorted(partitions) for each, partitions in owned.items() if each in topics}

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = {}
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                SubscriptionTopicPartition(topic=name, partitions=indexes)
                for name, indexes in self._names(self.owned).items()
            ],
            generation_id=self.generation,
        )
        protocols = {PROTOCOL: bytes(encode_internal(subscription, 3))}
        self.joining = self.world.join(self.member_id, instance=self.instance, protocols=protocols)
        self._take_join(self.world.answers.get(self.joining))

    def _take_join(self, answer: Any) -> None:
        if answer is None:
            return
        self.joining = None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        elif error is not ErrorCode.NONE:
            self._refused(error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            plan = self._plan(answer) if answer.leader == self.member_id and answer.members else {}
            self.syncing = self.world.sync(
                self.member_id, self.generation, plan, instance=self.instance, protocol=answer.protocol_name
            )
            self._take_sync(self.world.answers.get(self.syncing))

    def _plan(self, answer: Any) -> dict[str, bytes]:
        """What the leader of a classic group gives everybody; to nobody what somebody else still has."""
        said = {each.member_id: decode_subscription(each.metadata) for each in answer.members}
        had = {
            (owned.topic, index): member_id
            for member_id, subscription in said.items()
            for owned in subscription.owned_partitions
            for index in owned.partitions
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in said}
        for name, topic in self.world.shard.image.topics.items():
            members = sorted(member_id for member_id, each in said.items() if name in each.topics)
            for index in range(len(topic.partitions) if members else 0):
                member_id = members[index % len(members)]
                if had.get((name, index), member_id) == member_id:
                    given[member_id].setdefault(name, []).append(index)
        return {
            member_id: bytes(
                encode_internal(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            AssignmentTopicPartition(topic=name, partitions=indexes) for name, indexes in each.items()
                        ]
                    ),
                    1,
                )
            )
            for member_id, each in given.items()
        }

    def _take_sync(self, answer: Any) -> None:
        if answer is None:
            return
        self.syncing = None
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        elif error is not ErrorCode.NONE:
            self._refused(error)
        else:
            before, topics = self.owned, self.world.shard.image.topics
            self.owned = {}
            for each in decode_assignment(answer.assignment).assigned_partitions if answer.assignment else ():
                if each.topic in topics:
                    self.owned[topics[each.topic].topic_id] = set(each.partitions)
            lost = any(partitions - self.owned.get(each, set()) for each, partitions in before.items())
            if self.cooperative and lost:
                self._join()
