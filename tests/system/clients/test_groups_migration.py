"""A group that runs changes over to the consumer protocol (KIP-848), one member after the other, and back: kafka-python
on the classic side, librdkafka on the other. No partition has two owners on the way, none is forgotten, and all go on
where the others have committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.system.clients.groups import broker_of_our_own, fresh_name, make_topic, poll_together, produce, until
from tests.system.clients.test_consumer_protocol import QUICK_HEARTBEATS
from tests.system.clients.test_consumer_protocol import Member as ConsumerMember
from tests.system.clients.test_groups_kafka_python import Member as ClassicMember

PARTITIONS = 4


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Group:
    """Its members, polled together."""

    def __init__(self, closing: ExitStack, servers: str, topic: str) -> None:
        self.name = fresh_name("group")
        self.members: list[ClassicMember | ConsumerMember] = []
        self._closing = closing
        self._servers = servers
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": servers})

    def join_classic(self, **options: str) -> ClassicMember:
        member = ClassicMember(self._closing, self._servers, self.name, self._topic, **options)
        self.members.append(member)
        return member

    def join_consumer(self, **options: str) -> ConsumerMember:
        member = ConsumerMember(self._servers, self.name, self._topic, "consumer", **options)
        self._closing.callback(member.close)
        self.members.append(member)
        return member

    def leave(self, member: ClassicMember | ConsumerMember) -> None:
        self.members.remove(member)
        if isinstance(member, ClassicMember):
            member.consumer.close()
        else:
            member.close()

    def wait_until_read(self, records: int) -> None:
        """Records, of all members together."""

        def is_read() -> bool:
            poll_together(self.members)
            return sum(len(member.read) for member in self.members) >= records

        until(is_read, f"the members have read {records} records")

    def wait_until_shared(self, kind: str) -> None:
        share = PARTITIONS // len(self.members)

        def is_shared() -> bool:
            poll_together(self.members)
            owned = [partition for member in self.members for partition in member.owned]
            assert len(owned) == len(set(owned)), f"two owners: {[member.owned for member in self.members]}"
            return all(len(member.owned) == share for member in self.members) and self.kind == kind

        until(is_shared, f"the members share all partitions in a {kind} group")

    @property
    def kind(self) -> str:
        listed = self._admin.list_consumer_groups().result().valid
        return next(str(each.type).rpartition(".")[2].lower() for each in listed if each.group_id == self.name)


def has_committed_all(members: list[ClassicMember], topic: str, offset: int) -> bool:
    """Poll, and commit for what the members have; whether each could: the group may be rebalancing yet."""
    poll_together(members)
    try:
        for member in members:
            owned = [TopicPartition(topic, partition) for partition in sorted(member.owned)]
            member.consumer.commit({partition: OffsetAndMetadata(offset, "", -1) for partition in owned})
    except KafkaError:
        return False
    return sum(len(member.owned) for member in members) == PARTITIONS


def test_members_are_replaced_one_by_one_in_both_directions(tmp_path: Path, closing: ExitStack) -> None:
    with broker_of_our_own(tmp_path, **QUICK_HEARTBEATS) as broker:
        topic = make_topic(broker.address, PARTITIONS, records=3)
        group = Group(closing, broker.address, topic)
        old = [group.join_classic(), group.join_classic()]
        group.wait_until_shared("classic")
        group.wait_until_read(3 * PARTITIONS)
        until(lambda: has_committed_all(old, topic, 3), "the first members commit")
        new = []
        for member in old:
            group.leave(member)
            new.append(group.join_consumer())
            group.wait_until_shared("consumer")
        produce(broker.address, topic, PARTITIONS, range(3, 4))
        group.wait_until_read(PARTITIONS)
        assert {number for member in new for _, number in member.read} == {3}, "they began where the others committed"
        for consumer in new:
            consumer.consumer.commit(asynchronous=False)
        last = []
        for consumer in new:
            group.leave(consumer)
            last.append(group.join_classic())
            group.wait_until_shared("consumer" if consumer is not new[-1] else "classic")
        produce(broker.address, topic, PARTITIONS, range(4, 5))
        group.wait_until_read(PARTITIONS)
        assert {number for member in last for number in member.read} == {4}
        closing.close()


def test_static_members_change_over_in_their_own_places(tmp_path: Path, closing: ExitStack) -> None:
    with broker_of_our_own(tmp_path, **QUICK_HEARTBEATS) as broker:
        topic = make_topic(broker.address, PARTITIONS)
        group = Group(closing, broker.address, topic)
        names = ["one", "two"]
        old = {name: group.join_classic(group_instance_id=name) for name in names}
        group.wait_until_shared("classic")
        for name in names:
            # kafka-python leaves no group that it is a static member of: its place is kept.
            group.leave(old[name])
            group.join_consumer(group_instance_id=name)
            group.wait_until_shared("consumer")
        closing.close()
