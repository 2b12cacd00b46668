"""Consumer groups of kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition

from tests.conftest import Broker
from tests.system.clients.groups import broker_of_our_own, fresh_name, make_topic, poll_together, produce, until


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Owned(ConsumerRebalanceListener):
    """The partitions that a consumer may read. Its `assignment()` has those it has given up, until it gets others."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in assigned}

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.partitions -= {each.partition for each in revoked}


class Member:
    """A consumer with what it owns and what it has read."""

    def __init__(self, closing: ExitStack, servers: str, group: str, topic: str, **options: Any) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            session_timeout_ms=6000,
            max_poll_interval_ms=30_000,
            retry_backoff_ms=50,
            metadata_max_age_ms=1000,
            **options,
        )
        self._owned = Owned()
        self.consumer.subscribe([topic], listener=self._owned)
        closing.callback(self.consumer.close)
        # A leader of the group that has not heard of the topic yet would assign nothing, and leave it at that.
        until(lambda: self.consumer.partitions_for_topic(topic), "the client knows the topic")
        self.read: list[int] = []

    def poll(self) -> None:
        for records in self.consumer.poll(timeout_ms=200).values():
            self.read += [int(record.value) for record in records]

    @property
    def owned(self) -> set[int]:
        return set(self._owned.partitions)


def poll_until(members: list[Member], condition: Callable[[], Any], what: str) -> None:
    def step() -> bool:
        poll_together(members)
        return bool(condition())

    until(step, what)


def test_two_members_share_the_partitions_and_the_survivor_takes_over(
    broker: Broker, closing: ExitStack
) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 4), fresh_name("group")
    first = Member(closing, servers, group, topic)
    poll_until([first], lambda: len(first.owned) == 4, "the first member gets everything")
    second = Member(closing, servers, group, topic)
    poll_until([first, second], lambda: len(first.owned) == len(second.owned) == 2, "both get half")
    assert not first.owned & second.owned
    second.consumer.close()
    poll_until([first], lambda: len(first.owned) == 4, "the survivor gets everything")


def test_a_group_goes_on_where_it_committed_over_a_killed_broker(tmp_path: Path, closing: ExitStack) -> None:
    with broker_of_our_own(tmp_path) as broker:
        topic, group = make_topic(broker.address, 1, records=10), fresh_name("group")
        first = Member(closing, broker.address, group, topic)
        poll_until([first], lambda: len(first.read) == 10, "everything is read")
        partition = TopicPartition(topic, 0)
        first.consumer.commit({partition: OffsetAndMetadata(6, "six", -1)})
        broker.kill()
        broker.start()
        produce(broker.address, topic, 1, range(10, 12))
        poll_until([first], lambda: len(first.read) == 12, "the new records are read")
        first.consumer.close()
        second = Member(closing, broker.address, group, topic)
        poll_until([second], lambda: len(second.read) == 6, "the rest is read again")
        assert second.read == [6, 7, 8, 9, 10, 11]
        assert second.consumer.committed(partition) == 6
        closing.close()


def test_groups_are_listed_described_and_deleted(broker: Broker, closing: ExitStack) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 1, records=3), fresh_name("group")
    consumer = Member(closing, servers, group, topic, group_instance_id="the-instance")
    poll_until([consumer], lambda: len(consumer.read) == 3, "everything is read")
    consumer.consumer.commit()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    closing.callback(admin.close)
    assert group in str(admin.list_groups())
    described = str(admin.describe_groups([group]))
    assert "Stable" in described and "the-instance" in described
    assert "3" in str(admin.list_group_offsets(group))
    consumer.consumer.close()
    # A static member does not leave by closing; an administrator has to remove it.
    assert "Stable" in str(admin.describe_groups([group]))
