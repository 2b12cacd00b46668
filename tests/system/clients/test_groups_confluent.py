"""Consumer groups of librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import Broker
from tests.system.clients.groups import DEADLINE_SECONDS, broker_of_our_own, fresh_name, make_topic, produce, until

PARTITIONS = 4


class Member:
    """A consumer with what it was given and what it has read."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str, **options: Any) -> None:
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            "reconnect.backoff.max.ms": 200,
        }
        self.consumer = Consumer(settings | {name.replace("_", "."): value for name, value in options.items()})
        self.cooperative = options.get("partition_assignment_strategy") == "cooperative-sticky"
        self.owned: set[int] = set()
        self.assignments = 0
        self.lost: list[int] = []
        self.read: list[tuple[int, int]] = []
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        self.owned |= {p.partition for p in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {p.partition for p in partitions}
        self.lost += [p.partition for p in partitions]

    def poll(self) -> bool:
        message = self.consumer.poll(0.02)
        if message is None:
            return False
        assert message.error() is None, message.error()
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        self.read.append((partition, int(value)))
        return True


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def member(closing: ExitStack, *arguments: Any, **options: Any) -> Member:
    made = Member(*arguments, **options)
    closing.callback(made.consumer.close)
    return made


def poll_until(members: list[Member], condition: Any, what: str) -> None:
    def step() -> bool:
        for each in members:
            each.poll()
        return bool(condition())

    until(step, what)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_the_survivor_takes_over(
    broker: Broker, closing: ExitStack, strategy: str
) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, PARTITIONS, records=5), fresh_name("group")
    first = member(closing, servers, group, topic, partition_assignment_strategy=strategy)
    poll_until([first], lambda: len(first.owned) == PARTITIONS, "the first member gets everything")
    second = member(closing, servers, group, topic, partition_assignment_strategy=strategy)
    poll_until([first, second], lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2, "both get half")
    assert first.owned | second.owned == set(range(PARTITIONS))
    if first.cooperative:
        assert len(first.lost) == PARTITIONS // 2, "a cooperative rebalance takes only what moves"
    second.consumer.close()
    poll_until([first], lambda: len(first.owned) == PARTITIONS, "the survivor gets everything")
    poll_until([first], lambda: len(set(first.read)) == 5 * PARTITIONS, "everything is read")


def test_a_group_goes_on_where_it_committed(broker: Broker, closing: ExitStack) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 1, records=10), fresh_name("group")
    first = member(closing, servers, group, topic)
    poll_until([first], lambda: len(first.read) >= 4, "four are read")
    first.consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="four")], asynchronous=False)
    (found,) = first.consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_SECONDS)
    assert (found.offset, (found.metadata or "").rstrip("\0")) == (4, "four")
    first.consumer.close()
    second = member(closing, servers, group, topic)
    poll_until([second], lambda: len(second.read) == 6, "the rest is read")
    assert [number for _, number in second.read] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_group_lives_on_over_a_restart_of_the_broker(tmp_path: Path, closing: ExitStack, how: str) -> None:
    with broker_of_our_own(tmp_path) as broker:
        topic, group = make_topic(broker.address, 2), fresh_name("group")
        members = [member(closing, broker.address, group, topic) for _ in range(2)]
        poll_until(members, lambda: all(len(m.owned) == 1 for m in members), "both get one")
        # Not before: whoever is there first has both for a moment, and what it read then is read again.
        produce(broker.address, topic, 2, range(20))
        poll_until(members, lambda: all(len(m.read) == 20 for m in members), "everything is read")
        for each in members:
            each.consumer.commit(asynchronous=False)
        assignments = [m.assignments for m in members]
        getattr(broker, how)()
        broker.start()
        produce(broker.address, topic, 2, range(20, 30))
        poll_until(members, lambda: all(len(m.read) == 30 for m in members), "the new records are read, once")
        for each in members:
            assert [number for _, number in each.read] == list(range(30))
            each.consumer.commit(asynchronous=False)
        # Heartbeats found the broker in time, with the group as it was: nobody had to join again.
        assert [m.assignments for m in members] == assignments
        closing.close()


def test_a_member_that_does_not_poll_any_more_loses_its_partitions(tmp_path: Path, closing: ExitStack) -> None:
    with broker_of_our_own(tmp_path) as broker:
        topic, group = make_topic(broker.address, 2), fresh_name("group")
        first = member(closing, broker.address, group, topic, session_timeout_ms=1000)
        second = member(
            closing, broker.address, group, topic, session_timeout_ms=1000, max_poll_interval_ms=1000
        )
        poll_until([first, second], lambda: len(first.owned) == len(second.owned) == 1, "both get one")
        poll_until([first], lambda: len(first.owned) == 2, "the one that goes on gets everything")
        closing.close()


def test_a_static_member_restarts_without_a_rebalance(broker: Broker, closing: ExitStack) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 2, records=1), fresh_name("group")
    first = member(closing, servers, group, topic, group_instance_id="one")
    poll_until([first], lambda: len(first.owned) == 2, "one gets everything")
    second = member(closing, servers, group, topic, group_instance_id="two")
    poll_until([first, second], lambda: len(second.owned) == 1 == len(first.owned), "both get one")
    rounds, owned = first.assignments, set(second.owned)
    second.consumer.close()
    again = member(closing, servers, group, topic, group_instance_id="two")
    poll_until([first, again], lambda: again.owned == owned, "it has its partition back")
    assert first.assignments == rounds


def test_groups_are_listed_described_changed_and_deleted(broker: Broker, closing: ExitStack) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 2, records=3), fresh_name("group")
    admin = AdminClient({"bootstrap.servers": servers})
    consumer = member(closing, servers, group, topic, client_id="the-client")
    poll_until([consumer], lambda: len(consumer.read) == 6, "everything is read")
    consumer.consumer.commit(asynchronous=False)
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_SECONDS)
    assert listed.errors == []
    assert group in {found.group_id for found in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    (only,) = described.members
    assert only.client_id == "the-client" and only.host == "/127.0.0.1"
    assert {p.partition for p in only.assignment.topic_partitions} == {0, 1}

    def offsets() -> dict[int, int]:
        request = [ConsumerGroupTopicPartitions(group)]
        found = admin.list_consumer_group_offsets(request)[group].result(DEADLINE_SECONDS)
        return {p.partition: p.offset for p in found.topic_partitions}

    assert offsets() == {0: 3, 1: 3}
    with pytest.raises(Exception, match=r"NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    consumer.consumer.close()
    change = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])]
    admin.alter_consumer_group_offsets(change)[group].result(DEADLINE_SECONDS)
    assert offsets() == {0: 1, 1: 3}
    admin.delete_consumer_groups([group])[group].result(DEADLINE_SECONDS)
    assert group not in {found.group_id for found in admin.list_consumer_groups().result(DEADLINE_SECONDS).valid}
