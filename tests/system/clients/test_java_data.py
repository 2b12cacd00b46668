"""Java's producer and consumer, by Kafka's own tools, also against librdkafka's and over kill -9."""

from __future__ import annotations

import json
from pathlib import Path

from raftlog.testing import Cluster
from tests import java
from tests.conftest import Broker
from tests.system.clients.confluent import produce, read_all
from tests.system.traps.raw import create_topic
from tests.waiting import wait_until

pytestmark = java.marks
ACKNOWLEDGED = 6_000
PER_SECOND = 2_000
KILLS = 2
IDEMPOTENT = """enable.idempotence=true
retries=2147483647
delivery.timeout.ms=60000
reconnect.backoff.max.ms=300
"""


def test_the_console_producer_s_records_come_back_from_java_and_from_librdkafka(
    broker: Broker, topic: str
) -> None:
    java.run(
        "console-producer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="h:1\tk1\tv1\nh:2\tk2\tNULL\nh:3\tNULL\tv3\n",
    )
    by_librdkafka = [(m.key(), m.value(), m.headers()) for m in read_all(broker.bootstrap_servers, topic, 3)]
    assert by_librdkafka == [
        (b"k1", b"v1", [("h", b"1")]),
        (b"k2", None, [("h", b"2")]),
        (None, b"v3", [("h", b"3")]),
    ]
    printed = java.run(
        "console-consumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", "3", "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
    )
    assert printed.split("\n")[:3] == ["Offset:0\tk1\tv1", "Offset:1\tk2\tnull", "Offset:2\tnull\tv3"]


def test_java_reads_what_librdkafka_wrote_in_each_codec_as_committed(broker: Broker, topic: str) -> None:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        values = [{"value": f"{codec}-{number}".encode()} for number in range(20)]
        produce(broker.bootstrap_servers, topic, values, compression_type=codec)
    printed = java.run(
        "console-consumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", "100", "--isolation-level", "read_committed"),
    )
    assert printed.split() == [f"{codec}-{number}" for codec in codecs for number in range(20)]


def test_the_performance_tools_send_and_receive_all_they_should(broker: Broker, three_partitions: str) -> None:
    topic = three_partitions
    sent = java.run(
        "producer-perf",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", f"bootstrap.servers={broker.bootstrap_servers}", "acks=all", "compression.type=lz4"),
    )
    assert sent.splitlines()[-1].startswith("20000 records sent"), sent
    read = java.run(
        "consumer-perf",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--num-records", "20000"),
        *("--group", topic, "--timeout", "60000"),
    )
    assert int(read.splitlines()[-1].split(",")[4]) == 20_000, read


def test_records_make_the_round_trip_one_by_one(broker: Broker, name: str) -> None:
    printed = java.run(
        "e2e-latency",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", name, "--num-records", "100"),
        *("--producer-acks", "all", "--record-size", "100"),
    )
    assert "Avg latency" in printed


def test_java_s_idempotent_producer_loses_nothing_and_writes_nothing_twice_over_kill_9(
    own_broker: Cluster, tmp_path: Path
) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    config = tmp_path / "producer.properties"
    config.write_text(IDEMPOTENT)
    tool = java.Tool(
        "verifiable-producer",
        *("--bootstrap-server", own_broker.bootstrap_servers, "--topic", "t", "--acks", "-1"),
        *("--max-messages", str(ACKNOWLEDGED), "--throughput", str(PER_SECOND), "--command-config", str(config)),
    )
    for number in range(KILLS):
        wait_for_size(own_broker, (number + 1) * 20_000)
        own_broker.brokers[0].restart(kill=True)
    events = [json.loads(line) for line in tool.finish().splitlines() if line.startswith("{")]
    errors = [event for event in events if event["name"] == "producer_send_error"]
    assert not errors, errors[:3]
    acknowledged = [int(event["value"]) for event in events if event["name"] == "producer_send_success"]
    assert sorted(acknowledged) == list(range(ACKNOWLEDGED))
    stored = [int(message.value() or b"") for message in read_all(own_broker.bootstrap_servers, "t", ACKNOWLEDGED)]
    assert stored == list(range(ACKNOWLEDGED)), "in order, each once"


def wait_for_size(brokers: Cluster, size: int) -> None:
    """Until the partition's file has so many bytes: the producer is in the middle of it."""
    segment = brokers.brokers[0].data_dir / "t-0" / "00000000000000000000.log"
    is_so_long = lambda: segment.exists() and segment.stat().st_size >= size  # noqa: E731
    wait_until(is_so_long, f"the producer has written {size} bytes", java.DEADLINE_SECONDS)
