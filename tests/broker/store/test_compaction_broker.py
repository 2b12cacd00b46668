"""Compaction in a running broker, seen by a client: values stay, records go, and a kill -9 changes nothing."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.testing import cluster

KEYS = 40
SETTINGS = {"log.cleaner.backoff.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}


def read_all(bootstrap_servers: str) -> dict[int, tuple[bytes, bytes | None]]:
    """(key, value) of every record of the topic, by offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "check.crcs": True})
    partition = TopicPartition("compacted", 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10)
    consumer.assign([partition])
    found: dict[int, tuple[bytes, bytes | None]] = {}
    last = -1
    while last < end - 1:
        for message in consumer.consume(500, timeout=0.1):
            assert message.error() is None
            last = message.offset()
            found[last] = (message.key(), message.value())
    consumer.close()
    return found


def newest(records: dict[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    return dict(records[offset] for offset in sorted(records))


@pytest.mark.long
def test_a_compacted_topic_keeps_the_newest_value_of_each_key(tmp_path: Path) -> None:
    with cluster(directory=tmp_path, settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic("compacted", 1, 1, config=COMPACTED)]).values():
            created.result(10)
        written, random = 0, Random(1)
        for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "enable.idempotence": True}
            )
            for number in range(1500):
                # Noise, so that no codec makes the segments vanish.
                value = random.randbytes(1000)
                producer.produce("compacted", value if number % 10 else None, key=b"key-%d" % (number % KEYS))
                written += 1
            assert producer.flush(20) == 0
        expected = newest(read_all(broker.bootstrap_servers))
        assert len(expected) == KEYS
        deadline = time.monotonic() + 30
        while len(records := read_all(broker.bootstrap_servers)) > written / 2:
            assert newest(records) == expected
            assert time.monotonic() < deadline, broker.brokers[0].log()
        assert newest(records) == expected
        broker.brokers[0].restart(kill=True)
        again = read_all(broker.bootstrap_servers)
        assert set(again) <= set(records)
        assert newest(again) == expected
    directory = tmp_path / "broker-1"
    assert not [path.name for path in (directory / "compacted-0").iterdir() if path.suffix in (".cleaned", ".swap")]
    assert (directory / "cleaner-offset-checkpoint").exists()
