"""Our cleaner and Kafka's on copies of the same log: what is left must be the same batches.

The log is Kafka's own, written by librdkafka with transactions, tombstones and every codec; two rounds, so that the
second one removes the tombstones and markers that the first one marked.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import start_kafka
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store.cleaner import LogCleaner
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.wire.batch import BatchHeader, Record, decode_batch, iterate_batches
from tests import java
from tests.broker.core.log.test_validation_kafka import KAFKA, free_port
from tests.broker.store.compaction_world import run_steps
from tests.broker.store.log_world import unlimited

TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}
NEVER_MS, SOON_MS = 100_000_000, 300


class WallClock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()


class Kafka:
    """A Kafka broker that is started with its cleaner on or off."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.data = directory / "broker-1" / "data"

    def start(self, backoff_ms: int) -> None:
        settings = (f"log.cleaner.backoff.ms={backoff_ms}", "transaction.state.log.num.partitions=1")
        options = [word for setting in settings for word in ("--set", setting)]
        start_kafka("--dir", str(self.directory), "--nodes", "1", "--port", str(self.port), *options)

    def stop(self) -> None:
        words = [str(KAFKA), "stop", "--dir", str(self.directory)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def cleaned_offset(self) -> int:
        lines = (self.data / "cleaner-offset-checkpoint").read_text().splitlines()
        return next((int(line.split()[2]) for line in lines if line.startswith("compared 0 ")), 0)

    def compact(self) -> None:
        """Run with the cleaner on until it has been through the log."""
        before = self.cleaned_offset()
        self.start(SOON_MS)
        deadline = time.monotonic() + 60
        while self.cleaned_offset() == before:
            assert time.monotonic() < deadline
        self.stop()
        for path in (self.data / "compared-0").glob("*.deleted"):
            path.unlink()


def fill(bootstrap_servers: str, random: Random) -> None:
    """Several segments: plain and transactional batches, three codecs, tombstones, aborts."""
    common = {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "log_level": 0}
    plain = [Producer({**common, "compression.type": codec, "enable.idempotence": True}) for codec in ("none", "gzip")]
    transactional = [
        Producer({**common, "compression.type": "lz4", "transactional.id": f"t{number}"}) for number in range(2)
    ]
    for producer in transactional:
        producer.init_transactions()
    for _ in range(250):
        producer = random.choice(plain if random.random() < 0.7 else transactional)
        in_transaction = producer in transactional
        if in_transaction:
            producer.begin_transaction()
        for _ in range(random.randrange(1, 60)):
            value = None if random.random() < 0.1 else random.randbytes(random.randrange(10, 700))
            producer.produce("compared", value, key=b"%d" % random.randrange(400))
        producer.flush()
        if in_transaction and random.random() < 0.6:
            producer.commit_transaction()
        elif in_transaction:
            producer.abort_transaction()


def batches_of(directory: Path) -> list[tuple[str, BatchHeader, list[Record]]]:
    """(segment, header, records); without what depends on the moment of the run and on the codec's library."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iterate_batches(data):
            records = decode_batch(data[position : position + header.size])
            found.append((path.name, header._replace(crc=0, batch_length=0, base_timestamp=0), records))
    return found


def compact_copy(source: Path, target: Path, cleaned_offset: int) -> None:
    """Our cleaner on a copy of a log."""
    shutil.copytree(source, target)
    end = batches_of(source)[-1][1].next_offset
    store = Store(OsDisk(), WallClock())
    log = PartitionLog(
        store,
        "compared",
        0,
        str(target),
        LogConfig.from_mapping({**TOPIC, "file.delete.delay.ms": "0"}),
        recovery_point=end,
        high_watermark=end,
        cleaned_offset=cleaned_offset,
        clean=True,
    )
    log.open()
    run_steps(LogCleaner(store, b"salt", unlimited(store.clock)).clean(log, end))
    log.storage.close()


def compare_rounds(kafka: Kafka, directory: Path) -> None:
    address = f"127.0.0.1:{kafka.port}"
    for number in range(2):
        kafka.start(NEVER_MS)
        if number == 0:
            admin = AdminClient({"bootstrap.servers": address})
            for created in admin.create_topics([NewTopic("compared", 1, 1, config=TOPIC)]).values():
                created.result()
        fill(address, Random(number))
        kafka.stop()
        log, ours = kafka.data / "compared-0", directory / f"ours-{number}"
        before = len(batches_of(log))
        compact_copy(log, ours, kafka.cleaned_offset())
        kafka.compact()
        left = batches_of(ours)
        assert left == batches_of(log)
        assert len(left) < before
        assert sorted(path.name for path in ours.glob("*.txnindex")) == sorted(p.name for p in log.glob("*.txnindex"))
        assert all((log / path.name).read_bytes() == path.read_bytes() for path in ours.glob("*.txnindex"))


@java.needed
@pytest.mark.slow
def test_kafka_and_we_leave_the_same_batches(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka")
    try:
        compare_rounds(kafka, tmp_path)
    finally:
        # No harm when it is stopped already.
        kafka.stop()
