"""What one request costs the broker: CPU microseconds per request, and a profile of where they go.

    python -m benchmarks.request_cost [--requests 40000] [--rounds 1] [--against TREE|--faults|--metrics] [--profile]

With --against TREE another checkout of raftlog is measured beside, in turns: old and new code. With --faults it is the
same code, started so that faults may happen to it (docs/TESTING.md), of which none does; with --metrics a broker that
counts and times for Prometheus.
"""

from __future__ import annotations

import argparse
import io
import os
import pstats
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.brokers import Broker, Raftlog, beside_raftlog, create_topic
from benchmarks.measure import Row, Sample, alternate, table
from benchmarks.table import together
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.codec import encode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.schema import Message

DEPTH = 20
TOPICS = ("cost", *(f"cost{n}" for n in range(1, 10)))


class Profiled(Raftlog):
    """A broker that writes its own profile when it stops."""

    def command(self) -> list[str]:
        command = super().command()
        place = command.index("-m")
        return [*command[:place], "-m", "cProfile", "-o", str(self.directory / "profile"), *command[place:]]


class WithFaults(Raftlog):
    """A broker that faults may happen to."""

    name = "with faults"

    def command(self) -> list[str]:
        return [*super().command(), "--faults", str(self.directory / "cluster")]


class WithMetrics(Raftlog):
    """A broker that serves metrics."""

    name = "with metrics"

    def command(self) -> list[str]:
        return [*super().command(), "--metrics-listen", "127.0.0.1:0"]


def framed(key: ApiKey, version: int, message: Message) -> bytes:
    """A whole request."""
    body = encode(message, version, encode_request_header(key, version, 1, "cost"))
    return struct.pack(">i", len(body)) + body


def produce(size: int, topic: str = "cost") -> bytes:
    """One batch of about `size` bytes in records of 100 bytes."""
    records = [Record(n, int(time.time() * 1000), None, os.urandom(100)) for n in range(max(1, size // 108))]
    data = PartitionProduceData(index=0, records=encode_batch(records))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return framed(ApiKey.PRODUCE, 12, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics))


def fetch(offset: int, bytes_max: int) -> bytes:
    """One partition from an offset on, without a session."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="cost", partitions=[wanted])])
    return framed(ApiKey.FETCH, 12, request)


def send_all(bootstrap: str, requests: Sequence[bytes], count: int) -> None:
    """Send `count` copies of them in turn, DEPTH at a time, and read the replies."""
    burst = b"".join(requests) * (DEPTH // len(requests))
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb", buffering=1 << 20) as replies:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count // DEPTH):
            sock.sendall(burst)
            for _ in range(DEPTH):
                (length,) = struct.unpack(">i", replies.read(4))
                replies.read(length)


def measure(broker: Broker, requests: Sequence[bytes], count: int) -> float:
    """CPU microseconds per request."""
    send_all(broker.bootstrap, requests, DEPTH * 5)
    before = broker.cpu_seconds()
    send_all(broker.bootstrap, requests, count)
    return (broker.cpu_seconds() - before) / (count // DEPTH * DEPTH) * 1e6


def rows(brokers: list[Broker], kinds: dict[str, Sequence[bytes]], rounds: int, count: int) -> list[Row]:
    """One row for each kind of request."""
    for broker in brokers:
        for topic in TOPICS:
            create_topic(broker.bootstrap, topic)
    return [
        alternate(
            Row(name, "µs of CPU", higher_is_better=False),
            brokers,
            lambda broker, _, requests=requests: Sample(measure(broker, requests, count)),  # type: ignore[misc]
            rounds=rounds,
        )
        for name, requests in kinds.items()
    ]


def main() -> int:
    """Print one line per kind of request, then the profile if it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=1)
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument("--against", metavar="TREE", help="another checkout of raftlog, measured beside")
    beside.add_argument("--faults", action="store_true", help="beside a broker that faults may happen to")
    beside.add_argument("--metrics", action="store_true", help="beside a broker that serves metrics")
    parser.add_argument("--profile", action="store_true", help="of small produce requests")
    options = parser.parse_args()
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="cost")])
    kinds: dict[str, Sequence[bytes]] = {
        "Produce, one batch of 100 B": [produce(100)],
        "Produce, one batch of 16 KB": [produce(16_000)],
        "Produce, one batch of 100 B to each of ten topics in turn": [produce(100, topic) for topic in TOPICS],
        "Fetch of 1 KB": [fetch(0, 1_000)],
        "Fetch of 100 KB": [fetch(1_000, 100_000)],
        "Metadata of one topic": [framed(ApiKey.METADATA, 12, metadata)],
        "Heartbeat of an unknown group": [
            framed(ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        ],
        "ApiVersions": [
            framed(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="cost", client_software_version="1"))
        ],
    }
    others: list[type[Broker]] = beside_raftlog(options.against) if options.against else []
    if options.faults:
        others = [WithFaults]
    if options.metrics:
        others = [WithMetrics]
    print(table(together(lambda brokers: rows(brokers, kinds, options.rounds, options.requests), others)))
    if options.profile:
        with Profiled() as broker:
            create_topic(broker.bootstrap, "cost")
            send_all(broker.bootstrap, kinds["Produce, one batch of 100 B"], options.requests)
            broker.stop()
            text = io.StringIO()
            pstats.Stats(str(broker.directory / "profile"), stream=text).sort_stats("tottime").print_stats(25)
            print(text.getvalue().replace(str(Path(__file__).resolve().parent.parent) + "/", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
