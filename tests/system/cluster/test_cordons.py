"""Brokers whose directories are cordoned get no new partitions, by unmodified clients' requests (KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from raftlog.testing import BrokerProcess, Cluster, cluster
from raftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.system.clients.confluent import produce, read_all
from tests.system.traps.raw import RawConnection, create_topic
from tests.waiting import wait_until

CORDONED = "cordoned.log.dirs"


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with cluster(3) as started:
        yield started


class Admin:
    """librdkafka's admin client."""

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap})

    def cordon(self, broker: int, directories: str | None) -> None:
        operation = AlterConfigOpType.DELETE if directories is None else AlterConfigOpType.SET
        entry = ConfigEntry(CORDONED, directories, incremental_operation=operation)
        wanted = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        (altered,) = self._client.incremental_alter_configs([wanted]).values()
        altered.result(30)

    def create(self, topic: str, partitions: int, replicas: int) -> str | None:
        """What is wrong, if anything is."""
        return self._error(self._client.create_topics([NewTopic(topic, partitions, replicas)])[topic])

    def grow(self, topic: str, partitions: int) -> str | None:
        return self._error(self._client.create_partitions([NewPartitions(topic, partitions)])[topic])

    @staticmethod
    def _error(made: object) -> str | None:
        try:
            made.result(30)  # type: ignore[attr-defined]
        except KafkaException as error:
            return str(error.args[0].str())
        return None

    def replicas(self, topic: str) -> set[int]:
        partitions = self._client.list_topics(topic, 30).topics[topic].partitions.values()
        return {replica for partition in partitions for replica in partition.replicas}


def cordons(address: str) -> list[bool]:
    with RawConnection(address) as connection:
        return [each.is_cordoned for each in connection.ask(DescribeLogDirsRequest(topics=None), 5).results]


def test_a_broker_with_all_directories_cordoned_gets_no_new_replicas_and_keeps_those_it_has(brokers: Cluster) -> None:
    bootstrap = brokers.bootstrap_servers
    admin = Admin(bootstrap)
    assert admin.create("before", 3, 3) is None
    admin.cordon(2, "*")
    wait_until(lambda: cordons(brokers.broker(2).address) == [True], "the broker knows")
    assert cordons(brokers.broker(1).address) == [False]
    wait_until(lambda: "cordoned" in (admin.create("too-many", 1, 3) or ""), "the controller knows")
    assert admin.create("after", 6, 2) is None and admin.replicas("after") == {1, 3}
    assert admin.grow("after", 9) is None and admin.replicas("after") == {1, 3}
    assert "cannot be reached because only 2 broker(s) are registered or some" in (admin.grow("before", 6) or "")
    produce(bootstrap, "before", [{"value": b"%d" % number} for number in range(30)], acks="all")
    assert len(read_all(bootstrap, "before", 30, partitions=3)) == 30 and admin.replicas("before") == {1, 2, 3}

    brokers.broker(2).stop()
    brokers.broker(2).start()
    assert cordons(brokers.broker(2).address) == [True], "it holds after a restart"
    assert admin.create("later", 6, 2) is None and admin.replicas("later") == {1, 3}
    admin.cordon(2, None)
    wait_until(lambda: admin.create("three", 1, 3) is None, "the controller knows")


def test_a_broker_alone_places_nothing_in_a_directory_that_its_file_or_a_client_cordons(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    settings = {"log.dirs": f"{one},{two}", CORDONED: str(two)}
    broker = BrokerProcess(1, one, settings=settings, log_file=tmp_path / "log")
    broker.start()
    try:
        admin = Admin(broker.address)
        create_topic(broker.address, "a", partitions=4)
        for index in range(4):
            produce(broker.address, "a", [{"value": b"x", "partition": index}])
        assert len(list(one.glob("a-*"))) == 4 and not list(two.glob("a-*"))
        admin.cordon(1, str(one))
        create_topic(broker.address, "b")
        produce(broker.address, "b", [{"value": b"x"}])
        assert list(two.glob("b-0")) and cordons(broker.address) == [True, False]
        admin.cordon(1, "*")
        wait_until(lambda: "cordoned" in (admin.create("c", 1, 1) or ""), "nothing is placed anywhere")
        produce(broker.address, "a", [{"value": b"y", "partition": 0}])
        broker.stop()
        broker.start()
        assert "cordoned" in (admin.create("d", 1, 1) or "") and cordons(broker.address) == [True, True]
        admin.cordon(1, None)
        assert cordons(broker.address) == [False, True]
        wait_until(lambda: admin.create("e", 1, 1) is None, "the file counts again")
    finally:
        broker.kill()
