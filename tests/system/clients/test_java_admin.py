"""Java's admin client, by Kafka's own tools. Topics, settings and groups have tests beside their own code, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from raftlog.testing import Cluster, cluster
from tests import java
from tests.system.clients.confluent import consumer, produce
from tests.system.traps.raw import create_topic

pytestmark = java.marks
TOPIC = "the-topic"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """A broker with one topic of three partitions, ten records in each, and a group that has read some."""
    with cluster() as started:
        create_topic(started.bootstrap_servers, TOPIC, partitions=3, settings={"segment.bytes": "1048576"})
        records = [{"value": b"%d" % number, "partition": number % 3} for number in range(30)]
        produce(started.bootstrap_servers, TOPIC, records, enable_idempotence=True)
        with consumer(started.bootstrap_servers, "the-group") as client:
            client.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
        yield started


@pytest.fixture(scope="module")
def admin(brokers: Cluster) -> AdminClient:
    """librdkafka's, to look at what Java's has done without starting Java again."""
    return AdminClient({"bootstrap.servers": brokers.bootstrap_servers})


def tool(brokers: Cluster, name: str, *arguments: str) -> str:
    return java.run(name, "--bootstrap-server", brokers.bootstrap_servers, *arguments)


def test_topics_are_grown_and_listed(brokers: Cluster, admin: AdminClient) -> None:
    create_topic(brokers.bootstrap_servers, "another")
    tool(brokers, "topics", "--alter", "--topic", "another", "--partitions", "4")
    assert TOPIC in tool(brokers, "topics", "--list").split()
    assert len(admin.list_topics("another", 30).topics["another"].partitions) == 4


def test_settings_are_altered(brokers: Cluster, admin: AdminClient) -> None:
    entity = ("--entity-type", "topics", "--entity-name", TOPIC)
    tool(brokers, "configs", "--alter", *entity, "--add-config", "retention.ms=4711,cleanup.policy=[compact,delete]")
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values()
    values = {name: entry.value for name, entry in described.result(30).items()}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("4711", "compact,delete")


def test_offsets_are_told_and_records_deleted(brokers: Cluster, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 2, "offset": 7}], "version": 1}))
    deleted = tool(brokers, "delete-records", "--offset-json-file", str(wanted))
    assert f"partition: {TOPIC}-2\tlow_watermark: 7" in deleted
    told = tool(brokers, "get-offsets", "--topic", TOPIC, "--time", "earliest").split()
    assert told == [f"{TOPIC}:0:0", f"{TOPIC}:1:0", f"{TOPIC}:2:7"]


def test_groups_are_listed_and_their_offsets_deleted(brokers: Cluster) -> None:
    assert "the-group" in tool(brokers, "groups", "--list")
    deleted = tool(brokers, "consumer-groups", "--delete-offsets", "--group", "the-group", "--topic", f"{TOPIC}:0")
    assert "Successful" in deleted


def test_log_directories_hold_each_partition(brokers: Cluster) -> None:
    printed = tool(brokers, "log-dirs", "--describe", "--topic-list", TOPIC)
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(brokers.brokers[0].data_dir) and directory["error"] is None
    assert {partition["partition"] for partition in directory["partitions"]} == {f"{TOPIC}-{i}" for i in range(3)}
    assert all(partition["size"] > 0 for partition in directory["partitions"])


def test_versions_of_every_api_are_understood(brokers: Cluster) -> None:
    printed = tool(brokers, "broker-api-versions")
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "Fetch(1): 4 to 18 [usable: 18]" in printed
    assert "unsupported" not in printed.split("ApiVersions(18)")[1].split("\n")[0]


def test_the_cluster_s_endpoints_are_told(brokers: Cluster) -> None:
    port = brokers.bootstrap_servers.rpartition(":")[2]
    endpoints = java.run("cluster", "list-endpoints", "--bootstrap-server", brokers.bootstrap_servers)
    assert endpoints.splitlines()[1].split()[:3] == ["1", "127.0.0.1", port]


def test_the_producers_of_a_partition_are_told(brokers: Cluster) -> None:
    printed = tool(brokers, "transactions", "describe-producers", "--topic", TOPIC, "--partition", "0")
    fields = printed.splitlines()[1].split()
    assert fields[1] == "0" and fields[3] == "9", "epoch 0, and the tenth sequence number"


def test_kafka_s_log_dumper_reads_our_files(brokers: Cluster) -> None:
    segment = brokers.brokers[0].data_dir / f"{TOPIC}-0" / "00000000000000000000.log"
    printed = java.run("dump-log", "--files", str(segment), "--deep-iteration", "--print-data-log")
    assert "isvalid: true" in printed and "isvalid: false" not in printed
    assert [line.rpartition("payload: ")[2] for line in printed.splitlines() if "payload: " in line] == [
        str(number) for number in range(0, 30, 3)
    ]
