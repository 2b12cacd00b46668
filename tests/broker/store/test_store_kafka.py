"""Kafka's own tools and broker on our files, and our store on Kafka's."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import start_kafka
from raftlog.broker.core.log.checkpoint_text import format_offsets, parse_offsets
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.names import HIGH_WATERMARKS, RECOVERY_POINTS
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.compression import Compression
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from tests import java
from tests.broker.core.log.test_validation_kafka import free_port
from tests.broker.store.log_world import batch_of
from tests.paths import KAFKA

WRONG = re.compile(r"mismatch|corrupt|invalid|not valid|out of order|do not match|Exception|Found timestamp", re.I)

pytestmark = java.marks


class WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def open_log(directory: Path, config: LogConfig, *, end_offset: int = 0, clean: bool = False) -> PartitionLog:
    store = Store(OsDisk(), WallClock())
    log = PartitionLog(
        store, "t", 0, str(directory), config, recovery_point=end_offset, high_watermark=end_offset, clean=clean
    )
    log.open()
    return log


def append(log: PartitionLog, batch: bytes, epoch: int = 0, *, control: bool = False) -> None:
    origin = AppendOrigin.COORDINATOR if control else AppendOrigin.CLIENT
    result = log.append_as_leader(batch, epoch, WallClock().now_ms(), origin=origin)
    assert result.error is ErrorCode.NONE, result
    log.update_high_watermark(log.log_end_offset)


def marker(producer_id: int, *, commit: bool) -> bytes:
    now_ms = WallClock().now_ms()
    return encode_transaction_marker(
        TransactionMarker(commit, 3), producer_id=producer_id, producer_epoch=0, timestamp=now_ms
    )


def fill(log: PartitionLog) -> None:
    """Everything a log can hold: codecs, producers, transactions of both ends, epochs, times out of order."""
    now_ms = WallClock().now_ms()
    for turn in range(40):
        codec = list(Compression)[turn % 5]
        records = [Record(n, now_ms + turn * 10 - n * 7, b"key %d" % n, b"value " * 30) for n in range(1 + turn % 6)]
        append(log, encode_batch(records, compression=codec), epoch=turn // 10)
        append(log, batch_of([b"x"] * 3, now_ms + turn, producer_id=1, base_sequence=turn * 3), epoch=turn // 10)
        append(
            log,
            batch_of([b"y"] * 2, now_ms, producer_id=2, base_sequence=turn * 2, transactional=True),
            epoch=turn // 10,
        )
        if turn % 4 == 3:
            append(log, marker(2, commit=turn % 8 == 3), epoch=turn // 10, control=True)


def dump(directory: Path, suffixes: list[str], *options: str) -> str:
    files = ",".join(str(path) for suffix in suffixes for path in sorted(directory.glob(f"*{suffix}")))
    return java.run("dump-log", "--files", files, *options)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_kafkas_dump_log_reads_our_files_and_finds_nothing_wrong(tmp_path: Path, closed: bool) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    config = LogConfig(segment_bytes=4000, index_interval_bytes=200)
    log = open_log(directory, config)
    fill(log)
    segments = [segment.base_offset for segment in log.opened.segments]
    assert len(segments) > 3
    end = log.log_end_offset
    if not closed:
        log.storage.abandon()
        log = open_log(directory, config)
    log.storage.close()

    text = dump(directory, [".log", ".index", ".timeindex", ".snapshot", ".txnindex"], "--deep-iteration")
    wrong = [line for line in text.splitlines() if WRONG.search(line)]
    assert not wrong, wrong
    parts = dict(re.findall(r"^Dumping [^\n]*/(\S+)\n(.*?)(?=^Dumping |\Z)", text, re.M | re.S))
    deep = "".join(part for name, part in parts.items() if name.endswith(".log"))
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", deep, re.M)] == list(range(end))
    assert [int(start) for start in re.findall(r"Log starting offset: (\d+)", deep)] == segments
    for base in segments:
        assert parts[f"{base:020d}.index"].count("offset:") > 1
        assert parts[f"{base:020d}.timeindex"].count("timestamp:") > 0
    assert "producerId: 2" in parts[f"{end:020d}.snapshot"]
    aborted = [part.count("producerId: 2") for name, part in parts.items() if name.endswith(".txnindex")]
    assert sum(aborted) == 5
    checked = dump(directory, [".index", ".timeindex"], "--index-sanity-check")
    assert checked.count("passed sanity check") == 2 * len(segments), checked
    if closed:
        assert not WRONG.search(dump(directory, [".index"], "--verify-index-only"))


def test_kafkas_dump_log_reads_every_file_of_a_log_of_one_batch(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = open_log(directory, LogConfig())
    append(log, batch_of([b"x"], WallClock().now_ms()))
    log.storage.close()
    for suffix in {path.suffix for path in directory.iterdir()} & {".log", ".index", ".timeindex", ".snapshot"}:
        assert not WRONG.search(dump(directory, [suffix]))


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[tuple[Path, list[str], str]]:
    """(data directory, arguments of `start_kafka`, address) of a Kafka broker that is stopped in the end."""
    port = free_port()
    directory = tmp_path / "kafka"
    start = ["--dir", str(directory), "--nodes", "1", "--port", str(port), "--heap", "400m"]
    try:
        yield directory / "broker-1" / "data", start, f"127.0.0.1:{port}"
    finally:
        stop(directory)


def stop(directory: Path) -> None:
    subprocess.run([str(KAFKA), "stop", "--dir", str(directory)], check=False, capture_output=True, timeout=60)


def read_all(address: str, isolation: str, end: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message)
            elif message is not None and message.offset() >= end:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"only {len(found)} records within 30 s")


def transactions_of(address: str) -> dict[int, tuple[int, int]]:
    """Five transactions to partition 0 of `t`, one after the other in two segments at least, two of them aborted.

    Returns of each aborted one the first and the last offset of its records.
    """
    aborted: dict[int, tuple[int, int]] = {}
    for number in range(5):
        producer = Producer({"bootstrap.servers": address, "transactional.id": f"id {number}", "linger.ms": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        delivered: list[Message] = []
        keep = partial(lambda kept, _, message: kept.append(message), delivered)
        for _ in range(300):
            producer.produce("t", b"txn %d " % number + b"x" * 1000, on_delivery=keep)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
            aborted[number] = delivered[0].offset(), delivered[-1].offset()
        else:
            producer.commit_transaction(30)
    return aborted


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_transactions_that_kafka_wrote_are_read_as_it_meant_them(
    kafka: tuple[Path, list[str], str], clean: bool
) -> None:
    """From its producer snapshots and transaction indexes, or, after a kill, made again from the log."""
    data, start, address = kafka
    start_kafka(*start)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "1048576"})])["t"].result()
    aborted = transactions_of(address)
    stop(data.parent.parent)

    end = parse_offsets((data / RECOVERY_POINTS).read_text())["t", 0]
    indexes = {path.name: path.read_bytes() for path in (data / "t-0").glob("*.txnindex")}
    assert any(indexes.values()) and list((data / "t-0").glob("*.snapshot"))
    if not clean:
        for path in [*(data / "t-0").glob("*.txnindex"), *(data / "t-0").glob("*.snapshot")]:
            path.unlink()
    log = open_log(data / "t-0", LogConfig(segment_bytes=1 << 20), end_offset=end if clean else 0, clean=clean)
    log.update_high_watermark(end)
    log.check_invariants()
    assert log.log_end_offset == log.last_stable_offset == end == 1505
    found = [(each.first_offset, each.last_offset) for each in log.aborted_transactions(0, end)]
    assert found == [(first, last + 1) for first, last in aborted.values()], "the marker follows the last record"
    entries = log.opened.producers
    assert [(entry.epoch, entry.transaction_start, entry.last_sequence) for entry in entries] == [(0, -1, 299)] * 5
    log.storage.close()
    again = {path.name: path.read_bytes() for path in (data / "t-0").glob("*.txnindex")}
    assert {name: content for name, content in again.items() if content} == {
        name: content for name, content in indexes.items() if content
    }


@pytest.mark.slow
def test_kafka_goes_on_with_a_log_of_ours_and_we_with_one_of_kafkas(kafka: tuple[Path, list[str], str]) -> None:
    data, start, address = kafka
    start_kafka(*start)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 1, 1, config={"segment.bytes": "1048576"})])["t"].result()
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(3000):
        producer.produce("t", b"kafka %d " % number + b"x" * 1000)
    assert producer.flush(30) == 0
    stop(data.parent.parent)

    points = parse_offsets((data / RECOVERY_POINTS).read_text())
    assert points["t", 0] == 3000
    log = open_log(data / "t-0", LogConfig(segment_bytes=1 << 20), end_offset=3000, clean=True)
    assert (log.log_end_offset, log.latest_epoch) == (3000, 0)
    assert [entry.last_sequence for entry in log.opened.producers] == [2999]
    fill(log)
    append(log, marker(2, commit=True), epoch=4, control=True)
    end = log.log_end_offset
    aborted = {
        offset
        for transaction in log.aborted_transactions(0, end)
        for offset in range(transaction.first_offset, transaction.last_offset)
    }
    log.storage.close()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        (data / name).write_text(format_offsets({**parse_offsets((data / name).read_text()), ("t", 0): end}))

    start_kafka(*start)
    found = read_all(address, "read_uncommitted", end)
    assert [message.value()[:6] for message in found[:3000]] == [b"kafka "] * 3000
    assert len(found) == end - 11, "all but the markers"
    committed = read_all(address, "read_committed", end)
    missing = {m.offset() for m in found} - {m.offset() for m in committed}
    assert missing and missing <= aborted
    producer = Producer({"bootstrap.servers": address})
    producer.produce("t", b"last")
    assert producer.flush(30) == 0
    stop(data.parent.parent)
    log = open_log(data / "t-0", LogConfig())
    assert log.log_end_offset == end + 1
    log.storage.abandon()
