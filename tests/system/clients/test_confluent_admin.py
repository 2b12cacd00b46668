"""librdkafka's admin client: topics, partitions, settings, records, groups and their offsets."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conftest import Broker
from tests.system.clients.confluent import DEADLINE_SECONDS, consumer, produce, read_all, take

T = TypeVar("T")


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def result(future: Future[T]) -> T:
    return future.result(DEADLINE_SECONDS)


def only(futures: dict[Any, Future[T]]) -> T:
    """The result of the only future."""
    (future,) = futures.values()
    return result(future)


def error_of(future: Future[Any]) -> str:
    with pytest.raises(KafkaException) as raised:
        result(future)
    return str(raised.value.args[0].name())


def test_topics_are_created_listed_described_grown_and_deleted(admin: AdminClient, name: str) -> None:
    only(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "12345"})]))
    assert error_of(admin.create_topics([NewTopic(name, 3, 1)])[name]) == "TOPIC_ALREADY_EXISTS"
    assert len(admin.list_topics(name, DEADLINE_SECONDS).topics[name].partitions) == 3
    only(admin.create_partitions([NewPartitions(name, 5)]))
    assert error_of(admin.create_partitions([NewPartitions(name, 2)])[name]) == "INVALID_PARTITIONS"
    described = result(admin.describe_topics(TopicCollection([name]))[name])
    assert [partition.id for partition in described.partitions] == [0, 1, 2, 3, 4]
    assert {partition.leader.id for partition in described.partitions} == {1}
    assert not described.is_internal and described.topic_id is not None
    only(admin.delete_topics([name]))
    assert error_of(admin.delete_topics([name])[name]) == "UNKNOWN_TOPIC_OR_PART"
    assert name not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


@pytest.mark.parametrize("new, error", [
    (NewTopic("a/b", 1, 1), "TOPIC_EXCEPTION"),
    (NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
    (NewTopic("none", 0, 1), "INVALID_PARTITIONS"),
    (NewTopic("two", 1, 2), "INVALID_REPLICATION_FACTOR"),
    (NewTopic("odd", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
    (NewTopic("odder", 1, 1, config={"no.such.setting": "1"}), "INVALID_CONFIG"),
])  # fmt: skip
def test_what_cannot_be_a_topic_is_refused_by_name(admin: AdminClient, new: NewTopic, error: str) -> None:
    assert error_of(admin.create_topics([new])[new.topic]) == error


def test_a_validation_creates_nothing(admin: AdminClient, name: str) -> None:
    only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=DEADLINE_SECONDS).topics


def test_settings_of_a_topic_are_described_altered_and_given_back(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def described() -> dict[str, ConfigEntry]:
        return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))

    before = described()["retention.ms"]
    assert (before.value, before.source, before.is_default) == ("604800000", ConfigSource.DEFAULT_CONFIG.value, True)
    change = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(change)
    only(admin.incremental_alter_configs([resource]))
    after = described()["retention.ms"]
    assert (after.value, after.source) == ("1000000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    back = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)],
    )
    only(admin.incremental_alter_configs([back]))
    assert described()["retention.ms"].value == "604800000"
    wrong = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("segment.bytes", "x", incremental_operation=AlterConfigOpType.SET)],
    )
    (future,) = admin.incremental_alter_configs([wrong]).values()
    assert error_of(future) == "INVALID_CONFIG"


def test_settings_of_the_broker_are_described_with_their_sources(admin: AdminClient) -> None:
    described = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert described["node.id"].value == "1" and described["node.id"].is_read_only
    assert described["group.initial.rebalance.delay.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert described["log.retention.hours"].source == ConfigSource.DEFAULT_CONFIG.value


def test_the_cluster_is_described(admin: AdminClient, broker: Broker) -> None:
    cluster = result(admin.describe_cluster(request_timeout=DEADLINE_SECONDS))
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap_servers]
    assert cluster.cluster_id and cluster.controller.id == cluster.nodes[0].id


def test_deleted_records_are_gone_and_offsets_say_so(
    broker: Broker, admin: AdminClient, topic: str
) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(10)])
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 6)]))
    assert deleted.low_watermark == 6

    def offset(spec: OffsetSpec) -> int:
        listed = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(only(listed).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (6, 10)
    messages = read_all(broker.bootstrap_servers, topic, 4, auto_offset_reset="earliest")
    assert [message.offset() for message in messages] == [6, 7, 8, 9]


def test_groups_are_listed_described_and_deleted_when_they_are_empty(
    broker: Broker, admin: AdminClient, topic: str
) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"x"}])
    with consumer(broker.bootstrap_servers, topic, client_id="describe-me") as client:
        client.subscribe([topic])
        take(client, 1)
        client.commit(asynchronous=False)
        described = result(admin.describe_consumer_groups([topic])[topic])
        assert described.state is ConsumerGroupState.STABLE
        (member,) = described.members
        assert (member.client_id, member.host) == ("describe-me", "/127.0.0.1")
        assert member.assignment.topic_partitions == [TopicPartition(topic, 0)]
        assert error_of(admin.delete_consumer_groups([topic])[topic]) == "NON_EMPTY_GROUP"
        listed = result(admin.list_consumer_groups(states={ConsumerGroupState.STABLE}))
        assert topic in {group.group_id for group in listed.valid}
    assert result(admin.describe_consumer_groups([topic])[topic]).state is ConsumerGroupState.EMPTY
    only(admin.delete_consumer_groups([topic]))
    assert error_of(admin.delete_consumer_groups([topic])[topic]) == "GROUP_ID_NOT_FOUND"


def test_offsets_of_a_group_are_listed_and_altered(broker: Broker, admin: AdminClient, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(10)])
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 4)])
    only(admin.alter_consumer_group_offsets([wanted]))
    listed = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)]))
    assert [(partition.topic, partition.offset) for partition in listed.topic_partitions] == [(topic, 4)]
    with consumer(broker.bootstrap_servers, topic) as client:
        client.subscribe([topic])
        assert take(client, 1)[0].value() == b"4"
        (partition,) = only(admin.alter_consumer_group_offsets([wanted])).topic_partitions
        assert partition.error is not None, "a group with members keeps its offsets"
        assert partition.error.name() == "UNKNOWN_MEMBER_ID"
