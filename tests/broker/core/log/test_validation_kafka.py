"""The table of produce payloads against a real Kafka: what we say Kafka answers is what it answers."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import start_kafka
from raftlog.wire.errors import ErrorCode
from tests import java
from tests.broker.core.log.produce_cases import TOPICS, batch_of, cases, with_wrong_crc
from tests.paths import KAFKA


def free_port() -> int:
    """A port that was free a moment ago, with the next one free too: Kafka's controller takes that."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Kafka broker that has the table's topics."""
    directory, port = str(tmp_path_factory.mktemp("kafka")), free_port()
    start_kafka("--dir", directory, "--nodes", "1", "--port", str(port))
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
        for created in admin.create_topics(topics).values():
            created.result()
        yield port
    finally:
        subprocess.run([str(KAFKA), "stop", "--dir", directory], check=True, capture_output=True, timeout=60)


def wait_until_led(connection: socket.socket, topics: Iterable[str]) -> None:
    """A topic that was just created may have no leader for a moment."""
    damaged = with_wrong_crc(batch_of(1, 0))
    deadline = time.monotonic() + 20
    for name in topics:
        while produce(connection, name, damaged)[0] != ErrorCode.CORRUPT_MESSAGE:
            assert time.monotonic() < deadline


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


def produce(connection: socket.socket, topic: str, payload: bytes) -> tuple[int, tuple[int, ...]]:
    """Produce v8 written by hand, apart from our own codec: (error code, positions of the refused records)."""
    body = struct.pack(">hhi", 0, 8, 1) + text("probe") + struct.pack(">hhi", -1, -1, 5000)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, 0, len(payload)) + payload
    connection.sendall(struct.pack(">i", len(body)) + body)
    reply = read(connection, struct.unpack(">i", read(connection, 4))[0])
    position = 4 + 4 + 2 + len(topic) + 4 + 4
    error, _, _, _, count = struct.unpack_from(">hqqqi", reply, position)
    position += 30
    refused = []
    for _ in range(count):
        index, length = struct.unpack_from(">ih", reply, position)
        refused.append(index)
        position += 6 + max(0, length)
    return error, tuple(refused)


@java.needed
@pytest.mark.slow
def test_kafka_gives_each_payload_the_answer_of_the_table(kafka: int) -> None:
    with socket.create_connection(("127.0.0.1", kafka), timeout=20) as connection:
        wait_until_led(connection, TOPICS)
        wrong = []
        for case in cases(int(time.time() * 1000)):
            answer = produce(connection, case.topic, case.payload)
            if answer != (case.kafka, case.refused_records):
                wrong.append((case.name, case.topic, answer))
    assert wrong == []


def test_the_table_names_no_case_twice() -> None:
    names = [case.name for case in cases(0)]
    assert len(names) == len(set(names))
