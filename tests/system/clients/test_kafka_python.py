"""kafka-python: producing, consuming, groups, and the widest admin client that Python has."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, MemberToRemove, OffsetSpec
from kafka.errors import NoError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from raftlog.testing import Cluster
from tests.conftest import Broker
from tests.system.traps.raw import create_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DEADLINE_SECONDS = 45.0
POLL_MS = 1000
"""Long enough to join a group in: a poll that ends between JoinGroup and SyncGroup leaves kafka-python 3.0 a member
that neither sends heartbeats nor joins again."""
CODECS = [None, "gzip", "lz4", "zstd"]  # its snappy needs a library that is not among our extras
START_MS = time.time_ns() // 1_000_000 - 3_600_000


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def producer(bootstrap_servers: str, **settings: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=bootstrap_servers, **settings)


def consumer(bootstrap_servers: str, *topics: str, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
        **settings,
    )


def take(client: KafkaConsumer, count: int) -> list[Any]:
    """`count` records or more: as many as came in the last piece."""
    records: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for batch in client.poll(timeout_ms=POLL_MS, max_records=count - len(records)).values():
            records += batch
    return records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_is_produced_comes_back(broker: Broker, topic: str, codec: str | None, acks: Any) -> None:
    sent = [
        (None if number % 3 else b"k", None if number % 6 == 0 else b"%d" % number * 10, [("h", b"%d" % number)])
        for number in range(60)
    ]
    idempotent = acks == "all"
    settings = {"compression_type": codec, "acks": acks, "linger_ms": 5, "enable_idempotence": idempotent}
    with closing(producer(broker.bootstrap_servers, **settings)) as client:
        for number, (key, value, headers) in enumerate(sent):
            client.send(topic, value, key, headers=headers, timestamp_ms=START_MS + number)
        client.flush(DEADLINE_SECONDS)
    with closing(consumer(broker.bootstrap_servers, topic)) as client:
        received = take(client, 60)
    assert [(record.key, record.value, list(record.headers)) for record in received] == sent
    assert [record.timestamp - START_MS for record in received] == list(range(60))


def test_offsets_by_time_ends_and_seeks(broker: Broker, topic: str) -> None:
    with closing(producer(broker.bootstrap_servers)) as client:
        for number in range(40):
            client.send(topic, b"%d" % number, timestamp_ms=START_MS + 1000 * number)
        client.flush(DEADLINE_SECONDS)
    partition = TopicPartition(topic, 0)
    with closing(consumer(broker.bootstrap_servers, isolation_level="read_committed")) as client:
        client.assign([partition])
        assert (client.beginning_offsets([partition]), client.end_offsets([partition])) == (
            {partition: 0},
            {partition: 40},
        )
        assert client.offsets_for_times({partition: START_MS + 20_500})[partition].offset == 21
        client.seek(partition, 39)
        assert take(client, 1)[0].value == b"39"
        client.seek_to_beginning(partition)
        assert take(client, 1)[0].value == b"0"


def subscribed(bootstrap_servers: str, topic: str, group: str, **settings: Any) -> KafkaConsumer:
    """A member of a group.

    It hears of the topic before it joins: kafka-python 3.0 assigns nothing, for ever, when that happens while it joins,
    which a group that waits for nobody (group.initial.rebalance.delay.ms=0) makes likely.
    """
    client = consumer(bootstrap_servers, group_id=group, **settings)
    client.partitions_for_topic(topic)
    client.subscribe([topic])
    return client


class Member(threading.Thread):
    """A consumer of a group that polls until it is told to leave."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self._leave = threading.Event()
        self._client = subscribed(bootstrap_servers, topic, group, heartbeat_interval_ms=200, **settings)
        self.assignment: set[int] = set()
        self.start()

    def run(self) -> None:
        while not self._leave.is_set():
            self._client.poll(timeout_ms=POLL_MS)
            self.assignment = {partition.partition for partition in self._client.assignment()}
        self._client.close()
        self.assignment = set()

    def leave(self) -> None:
        self._leave.set()
        self.join(DEADLINE_SECONDS)


def test_members_share_and_take_over(broker: Broker, three_partitions: str) -> None:
    topic = three_partitions
    first = Member(broker.bootstrap_servers, topic, topic)
    wait_until(lambda: first.assignment == {0, 1, 2}, "one member did not get everything")
    second = Member(broker.bootstrap_servers, topic, topic)
    wait_until(
        lambda: bool(second.assignment) and not first.assignment & second.assignment
        and first.assignment | second.assignment == {0, 1, 2},
        "two members do not share",
    )  # fmt: skip
    first.leave()
    wait_until(lambda: second.assignment == {0, 1, 2}, "who is left does not take over")
    second.leave()


def test_a_group_goes_on_where_it_committed_over_a_stop(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    with closing(producer(own_broker.bootstrap_servers)) as client:
        for number in range(100):
            client.send("t", b"%d" % number)
        client.flush(DEADLINE_SECONDS)
    with closing(subscribed(own_broker.bootstrap_servers, "t", "g")) as client:
        take(client, 60)
        client.commit({TopicPartition("t", 0): OffsetAndMetadata(60, "sixty", -1)})
    own_broker.brokers[0].restart()
    with closing(subscribed(own_broker.bootstrap_servers, "t", "g")) as client:
        assert [record.offset for record in take(client, 40)] == list(range(60, 100))


def test_topics_and_their_settings(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "999"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    admin.create_partitions({name: 3})
    (described,) = admin.describe_topics([name])
    assert [partition["leader_id"] for partition in described["partitions"]] == [1, 1, 1]
    page = admin.describe_topic_partitions([name], response_partition_limit=2)
    assert len(page["topics"][0]["partitions"]) == 2
    assert page["next_cursor"] == {"topic_name": name, "partition_index": 2}
    assert modified(admin, name) == {"retention.ms": "999"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"segment.bytes": "2000000"})])
    assert modified(admin, name) == {"retention.ms": "999", "segment.bytes": "2000000"}
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})])
    assert modified(admin, name) == {"segment.bytes": "2000000"}
    assert name in admin.list_config_resources()["topic"]
    admin.delete_topics([name])
    assert name not in admin.list_topics()


def modified(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {key: entry["value"] for key, entry in described["topic"][topic].items()}


def test_records_producers_and_log_directories(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with closing(producer(broker.bootstrap_servers, enable_idempotence=True)) as client:
        for number in range(5):
            client.send(topic, b"%d" % number, partition=0).get(DEADLINE_SECONDS)
    assert admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset == 5
    assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 2
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 2
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert (state.producer_epoch, state.last_sequence) == (0, 4)
    (described,) = admin.describe_log_dirs([topic])
    (sizes,) = described["log_dirs"][0]["topics"]
    assert sizes["name"] == topic and sizes["partitions"][0]["partition_size"] > 0


def test_groups_and_their_offsets(broker: Broker, admin: KafkaAdminClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with closing(producer(broker.bootstrap_servers)) as client:
        client.send(topic, b"x", partition=0).get(DEADLINE_SECONDS)
    admin.alter_group_offsets(topic, {partition: OffsetAndMetadata(1, "m", -1)})
    assert admin.list_group_offsets(topic)[topic] == {partition: OffsetAndMetadata(1, "m", -1)}
    assert admin.reset_group_offsets(topic, {partition: OffsetSpec.EARLIEST})[partition]["offset"] == 0
    assert admin.delete_group_offsets(topic, [partition]) == {partition: NoError}
    assert admin.list_group_offsets(topic)[topic] == {}
    member = Member(broker.bootstrap_servers, topic, topic, group_instance_id="fixed")
    wait_until(lambda: bool(member.assignment), "the static member got nothing")
    described = admin.describe_groups([topic])[topic]
    assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
    assert [each["group_instance_id"] for each in described["members"]] == ["fixed"]
    member.leave()
    assert admin.describe_groups([topic])[topic]["members"], "a static member does not leave when it closes"
    admin.remove_group_members(topic, [MemberToRemove(group_instance_id="fixed")])
    assert admin.describe_groups([topic])[topic]["group_state"] == "Empty"
    assert topic in {group["group_id"] for group in admin.list_groups()}
    admin.delete_groups([topic])
    assert topic not in {group["group_id"] for group in admin.list_groups()}
