"""Administration through unmodified clients: librdkafka's, kafka-python's, aiokafka's, and Kafka's own tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import msgpack
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PythonNewTopic

from raftlog.broker.config import BrokerConfig
from raftlog.broker.runtime.opening import open_controller
from raftlog.broker.store.disk import OsDisk
from raftlog.raft.journal import Entry, Journal
from raftlog.testing import BrokerProcess
from raftlog.testing.process import BrokerDied
from tests import java
from tests.conftest import Broker

pytestmark = pytest.mark.long

SECONDS = 20


def fresh(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"


def test_confluents_admin_client_creates_describes_changes_and_deletes(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    name = fresh("confluent")
    wanted = NewTopic(name, 2, 1, config={"retention.ms": "1000"})
    admin.create_topics([wanted])[name].result(SECONDS)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([wanted])[name].result(SECONDS)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(SECONDS)
    (described,) = [f.result(SECONDS) for f in admin.describe_topics(TopicCollection([name])).values()]
    assert [partition.leader.id for partition in described.partitions] == [1, 1, 1, 1]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    (values,) = [f.result(SECONDS) for f in admin.describe_configs([resource]).values()]
    assert (values["retention.ms"].value, values["cleanup.policy"].value) == ("1000", "delete,compact")
    assert values["segment.bytes"].is_default
    cluster = admin.describe_cluster().result(SECONDS)
    assert (cluster.controller.id, [node.id for node in cluster.nodes]) == (1, [1])
    assert len(cluster.cluster_id) == 22
    admin.delete_topics([name])[name].result(SECONDS)
    assert name not in admin.list_topics(timeout=SECONDS).topics


def test_kafka_pythons_admin_client_creates_describes_and_deletes(broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    name = fresh("kafka-python")
    try:
        admin.create_topics([PythonNewTopic(name, num_partitions=3, replication_factor=1)])
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 3
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


async def test_aiokafkas_admin_client_creates_lists_and_deletes(broker: Broker) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    name = fresh("aiokafka")
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic(name, num_partitions=2, replication_factor=1)])
        assert name in await admin.list_topics()
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        await admin.delete_topics([name])
    finally:
        await admin.close()


def test_topics_and_settings_outlive_kill_9(tmp_path: Path) -> None:
    broker = BrokerProcess(1, tmp_path / "data", log_file=tmp_path / "broker.log")
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        names = [fresh(f"t{n}") for n in range(20)]
        created = admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "777"}) for name in names])
        for future in created.values():
            future.result(SECONDS)
        before = admin.describe_cluster().result(SECONDS).cluster_id
        broker.restart(kill=True)
        admin = AdminClient({"bootstrap.servers": broker.address})
        found = admin.list_topics(timeout=SECONDS).topics
        assert all(len(found[name].partitions) == 3 for name in names)
        resource = ConfigResource(ConfigResource.Type.TOPIC, names[7])
        values = admin.describe_configs([resource])[resource].result(SECONDS)
        assert values["retention.ms"].value == "777"
        assert admin.describe_cluster().result(SECONDS).cluster_id == before
    finally:
        broker.kill()


def test_leader_epochs_grow_after_kill_9_and_not_after_an_orderly_stop(tmp_path: Path) -> None:
    broker = BrokerProcess(1, tmp_path / "data", log_file=tmp_path / "broker.log")
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
        broker.restart()
        broker.restart()
        broker.restart(kill=True)
        broker.stop()
    finally:
        broker.kill()
    assert leader_epochs(tmp_path / "data") == {"t": [1]}


def leader_epochs(data: Path) -> dict[str, list[int]]:
    """What the metadata of a stopped broker says."""

    async def read() -> dict[str, list[int]]:
        controller = open_controller(BrokerConfig({"node.id": "1", "log.dirs": str(data)}))
        await controller.start()
        topics = controller.image.topics.values()
        await controller.close()
        return {topic.name: [partition.leader_epoch for partition in topic.partitions] for topic in topics}

    return asyncio.run(read())


def test_a_broker_with_a_damaged_metadata_log_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    broker = BrokerProcess(1, tmp_path / "data", log_file=tmp_path / "broker.log")
    broker.start()
    broker.stop()
    (segment,) = (tmp_path / "data" / "__cluster_metadata").glob("*.journal")
    content = bytearray(segment.read_bytes())
    content[20] ^= 0xFF
    segment.write_bytes(bytes(content))
    with pytest.raises(BrokerDied, match="What to do"):
        broker.start()
    said = broker.log()
    assert str(segment) in said and "What to do" in said and "at byte" in said


def test_a_broker_does_not_start_on_metadata_of_a_newer_version_and_says_so(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "data" / "__cluster_metadata"), OsDisk())
    journal.append([Entry(1, 1, msgpack.packb((1, [(999, 0, "from the future")])))])
    journal.close()
    broker = BrokerProcess(1, tmp_path / "data", log_file=tmp_path / "broker.log")
    with pytest.raises(BrokerDied, match="a record of type 999"):
        broker.start()
    assert "start the broker with that version again" in broker.log()


def tool(broker: Broker, name: str, *arguments: str) -> str:
    return java.run(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)


@java.needed
def test_kafkas_own_tools_create_and_describe(broker: Broker) -> None:
    name = fresh("java")
    created = tool(
        broker, "topics", "--create", "--topic", name, "--partitions", "2", "--config", "cleanup.policy=compact,delete"
    )  # fmt: skip
    assert f"Created topic {name}." in created
    described = tool(broker, "topics", "--describe", "--topic", name)
    configs = "min.insync.replicas=1,cleanup.policy=compact,delete"
    assert f"PartitionCount: 2\tReplicationFactor: 1\tConfigs: {configs}" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1\tElr: ") == 2
    entity = ("--entity-type", "topics", "--entity-name", name)
    values = tool(broker, "configs", "--describe", "--all", *entity)
    assert "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy" in values
