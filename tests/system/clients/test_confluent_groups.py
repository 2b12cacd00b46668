"""Groups of librdkafka consumers: joining, leaving, static members, cooperative rebalancing, commits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conftest import Broker
from tests.system.clients.confluent import DEADLINE_SECONDS, POLL_SECONDS, consumer, poll, produce, take
from tests.system.traps.raw import create_topic

PARTITIONS = 6
GROUP_SETTINGS = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 200, "max_poll_interval_ms": 30_000}


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    create_topic(broker.bootstrap_servers, name, partitions=PARTITIONS)
    return name


def assigned(client: Consumer) -> set[int]:
    return {partition.partition for partition in client.assignment()}


def poll_until(condition: Callable[[], bool], what: str, *clients: Consumer) -> None:
    """Keep the clients alive until the condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        for client in clients:
            client.poll(POLL_SECONDS / 2)


def is_shared(*clients: Consumer) -> bool:
    """Every partition has one owner, and everybody owns something."""
    parts = [assigned(client) for client in clients]
    return all(parts) and sum(map(len, parts)) == PARTITIONS == len(set().union(*parts))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_as_they_come_and_go(broker: Broker, topic: str, strategy: str) -> None:
    settings = {**GROUP_SETTINGS, "partition_assignment_strategy": strategy}
    server = broker.bootstrap_servers
    with consumer(server, topic, **settings) as first:
        first.subscribe([topic])
        poll_until(lambda: assigned(first) == set(range(PARTITIONS)), "one member did not get everything", first)
        with consumer(server, topic, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: is_shared(first, second), "two members do not share", first, second)
            with consumer(server, topic, **settings) as third:
                third.subscribe([topic])
                members = (first, second, third)
                poll_until(lambda: is_shared(*members), "three members do not share", *members)
            poll_until(lambda: is_shared(first, second), "who is left does not take over", first, second)
        poll_until(lambda: is_shared(first), "the last one does not take over", first)


def test_cooperative_members_keep_what_they_need_not_give_away(broker: Broker, topic: str) -> None:
    settings = {**GROUP_SETTINGS, "partition_assignment_strategy": "cooperative-sticky"}
    lost: set[int] = set()

    def revoked(client: Consumer, partitions: list[TopicPartition]) -> None:
        lost.update(partition.partition for partition in partitions)

    with consumer(broker.bootstrap_servers, topic, **settings) as first:
        first.subscribe([topic], on_revoke=revoked)
        poll_until(lambda: is_shared(first), "one member did not get everything", first)
        with consumer(broker.bootstrap_servers, topic, **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: is_shared(first, second), "two members do not share", first, second)
            assert lost == assigned(second), "partitions were taken away that nobody else got"


def test_a_static_member_that_comes_back_in_time_finds_its_partitions_and_disturbs_nobody(
    broker: Broker, topic: str
) -> None:
    server = broker.bootstrap_servers
    rebalances: list[str] = []
    settings = {**GROUP_SETTINGS, "partition_assignment_strategy": "range"}
    with consumer(server, topic, group_instance_id="a", **settings) as first:
        first.subscribe(
            [topic],
            on_assign=lambda *_: rebalances.append("assigned"),
            on_revoke=lambda *_: rebalances.append("revoked"),
        )
        poll_until(lambda: is_shared(first), "one member did not get everything", first)
        with consumer(server, topic, group_instance_id="b", **settings) as second:
            second.subscribe([topic])
            poll_until(lambda: is_shared(first, second), "two members do not share", first, second)
            theirs = assigned(second)
        rebalances.clear()
        with consumer(server, topic, group_instance_id="b", **settings) as again:
            again.subscribe([topic])
            poll_until(lambda: assigned(again) == theirs, "the static member lost its partitions", first, again)
            assert rebalances == [], "the others were disturbed"


def test_a_group_goes_on_where_it_committed(broker: Broker, topic: str) -> None:
    records = [{"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(600)]
    produce(broker.bootstrap_servers, topic, records)
    seen: list[tuple[int | None, int | None]] = []
    for count in (200, 250, 150):
        with consumer(broker.bootstrap_servers, topic, **GROUP_SETTINGS) as client:
            client.subscribe([topic])
            messages = take(client, count)
            client.commit(offsets=last_offsets(topic, messages), asynchronous=False)
            seen += [(message.partition(), message.offset()) for message in messages]
    assert len(seen) == len(set(seen)) == 600, "something was read twice or never"


def last_offsets(topic: str, messages: list) -> list[TopicPartition]:  # type: ignore[type-arg]
    """One past the last message of each partition."""
    ends = {message.partition(): message.offset() + 1 for message in messages}
    return [TopicPartition(topic, index, offset) for index, offset in ends.items()]


def test_committed_offsets_carry_their_metadata_and_unknown_ones_are_invalid(
    broker: Broker, topic: str
) -> None:
    with consumer(broker.bootstrap_servers, topic) as client:
        commit = [TopicPartition(topic, 0, 7, "seven"), TopicPartition(topic, 1, 0)]
        client.commit(offsets=commit, asynchronous=False)
        asked = [TopicPartition(topic, index) for index in range(3)]
        found = client.committed(asked, DEADLINE_SECONDS)
    assert [(partition.offset, partition.metadata or "") for partition in found] == [(7, "seven"), (0, ""), (-1001, "")]


def test_automatic_commits_are_there_after_closing(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"x", "partition": 0}] * 30)
    settings = {**GROUP_SETTINGS, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with consumer(broker.bootstrap_servers, topic, **settings) as client:
        client.subscribe([topic])
        take(client, 30)
    with consumer(broker.bootstrap_servers, topic) as client:
        (found,) = client.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)
    assert found.offset == 30


def test_a_pattern_finds_topics_that_are_made_later(broker: Broker, name: str) -> None:
    settings = {**GROUP_SETTINGS, "topic_metadata_refresh_interval_ms": 300}
    create_topic(broker.bootstrap_servers, f"{name}-a")
    with consumer(broker.bootstrap_servers, name, **settings) as client:
        client.subscribe([f"^{name}-.*"])
        poll_until(lambda: len(client.assignment()) == 1, "the first topic was not found", client)
        create_topic(broker.bootstrap_servers, f"{name}-b")
        produce(broker.bootstrap_servers, f"{name}-b", [{"value": b"late"}])
        messages = poll(client, lambda messages: len(messages) == 1)
    assert [(message.topic(), message.value()) for message in messages] == [(f"{name}-b", b"late")]
