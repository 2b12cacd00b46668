"""Clients that mean harm or are merely many, and how long each keeps everybody else waiting.

    python -m benchmarks.hostile [NAME...] [--other CHECKOUT]

A bystander in a process of its own asks for the versions every millisecond, which costs the broker nothing: its longest
wait is the longest stall of the event loop, and what the machine's other processes add to it. It comes from an address
of its own, as another machine would: the broker's time is shared between addresses first. Each attack has a broker
of its own. A second process writes records of 900 kB during attacks on memory.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks.brokers import Broker, Raftlog, beside_raftlog, create_topic, wait_for_topic
from benchmarks.hostile_requests import REQUESTS, create_many_topics
from benchmarks.measure import progress
from benchmarks.raw_client import SECONDS_MAX, Asking, frame, opened
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.compression import Compression
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CALM_SECONDS = 3.0
"""How long an attack is watched after its last byte."""
PRODUCE_VERSION = FETCH_VERSION = 9
LARGE_BYTES = 95_000_000
BOMB_BYTES = 120 << 20
PARALLEL_JOINS = 100
"""JoinGroup requests that one connection has under way."""
FRAMES_OF_ONE_BYTE = 40
ONLOOKERS_ADDRESS = "127.0.0.2"


class Seen(NamedTuple):
    """Of an attack: the bystander's longest wait (s), of the producer too, the broker's most memory (MB)."""

    stall: float
    produce: float
    megabytes: float


# ── who looks on ──────────────────────────────────────────────────────────────────────────────────────────────


def watch(bootstrap: str, request: bytes, pause: float, pipe: Connection) -> None:
    """Ask until told to stop; says the longest wait since it was told to begin. Runs in a process of its own."""
    asking = Asking(bootstrap, ONLOOKERS_ADDRESS)
    longest = 0.0
    asking.ask(request)
    pipe.send("ready")
    while True:
        began = time.perf_counter()
        asking.ask(request)
        longest = max(longest, time.perf_counter() - began)
        if pipe.poll(pause):
            if pipe.recv() == "stop":
                pipe.send(longest)
                return
            longest = 0.0


class Onlooker:
    """`watch` in its process."""

    def __init__(self, bootstrap: str, request: bytes, pause: float) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=watch, args=(bootstrap, request, pause, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def begin(self) -> None:
        """What was so far does not count."""
        self._pipe.send("begin")

    def end(self) -> float:
        """The longest wait, in seconds; infinite when one took longer than it was given."""
        try:
            self._pipe.send("stop")
            if not self._pipe.poll(SECONDS_MAX):
                return float("inf")
            return float(self._pipe.recv())
        except (EOFError, ConnectionError):
            return float("inf")
        finally:
            self._process.kill()


def produce_frame(topic: str, records: bytes) -> bytes:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=30_000, topic_data=[data])
    return frame(ApiKey.PRODUCE, PRODUCE_VERSION, 1, request)


def batch_of(size: int, compression: Compression = Compression.NONE) -> bytes:
    """A batch of one record with a value of so many zeros."""
    return encode_batch([Record(0, time.time_ns() // 1_000_000, b"k", bytes(size))], compression=compression)


# ── attacks: each returns when its last byte is sent, with what must stay open ────────────────────────────────


def nobody(_: Broker) -> list[socket.socket]:
    """Nothing happens: what the machine itself does to the bystander."""
    return []


def half_requests(broker: Broker) -> list[socket.socket]:
    """Two connections send 94 of 95 MB each, and stop; a third begins with less."""
    connections = [opened(broker.bootstrap) for _ in range(3)]
    for connection, size in zip(connections, (LARGE_BYTES - 1_000_000, LARGE_BYTES - 1_000_000, 600_000), strict=True):
        connection.sendall(struct.pack(">ihhih", LARGE_BYTES, ApiKey.PRODUCE, 9, 1, -1) + bytes(size))
    return connections


def bomb(codec: Compression, count: int = 1) -> Callable[[Broker], list[socket.socket]]:
    """Batches below max.message.bytes that unfold to 120 MiB (with snappy 20), to a compacted topic."""

    def attack(broker: Broker) -> list[socket.socket]:
        size = 20 << 20 if codec is Compression.SNAPPY else BOMB_BYTES
        request = produce_frame("compacted", batch_of(size, codec))
        connections = [opened(broker.bootstrap) for _ in range(count)]
        for connection in connections:
            connection.sendall(request)
        return connections

    return attack


def times_of_bombs(broker: Broker) -> list[socket.socket]:
    """A bomb in a topic that takes it as it is, and eight who ask for a record by its time."""
    asking = Asking(broker.bootstrap)
    asking.ask(produce_frame("plain", batch_of(BOMB_BYTES, Compression.GZIP)))
    consumers = [Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"}) for _ in range(8)]
    for consumer in consumers:
        consumer.offsets_for_times([TopicPartition("plain", 0, 1)], timeout=SECONDS_MAX)
        consumer.close()
    return [asking.socket]


def many_topics(broker: Broker) -> list[socket.socket]:
    """One CreateTopics request with 9,000 topics."""
    create_many_topics(broker)
    return []


def join_of(group: str) -> bytes:
    """JoinGroup of version 2, which lets a member in at once."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(100))]
    request = JoinGroupRequest(group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    request.protocol_type, request.protocols = "consumer", protocols
    return frame(ApiKey.JOIN_GROUP, 2, 1, request)


def many_joins(broker: Broker) -> list[socket.socket]:
    """5,000 members join one group at once."""
    asking = Asking(broker.bootstrap)
    deadline = time.monotonic() + SECONDS_MAX
    # A first group, until there is a coordinator: version 2 answers with the throttle time, then the error code.
    while asking.ask(frame(ApiKey.FIND_COORDINATOR, 0, 1, FindCoordinatorRequest(key="first")))[4:6] != b"\0\0" or (
        asking.ask(join_of("first"))[8:10] != b"\0\0"
    ):
        if time.monotonic() > deadline:
            raise TimeoutError("no coordinator")
        time.sleep(0.1)
    connections = [opened(broker.bootstrap) for _ in range(50)]
    requests = join_of("many") * PARALLEL_JOINS
    for connection in connections:
        connection.sendall(requests)
    time.sleep(CALM_SECONDS)
    return [asking.socket, *connections]


def slow_connections(broker: Broker) -> list[socket.socket]:
    """2,000 connections that send their requests byte by byte."""
    connections = [opened(broker.bootstrap) for _ in range(2_000)]
    request = struct.pack(">ihhih", LARGE_BYTES, ApiKey.PRODUCE, 9, 1, -1) + bytes(FRAMES_OF_ONE_BYTE)
    for byte in request[:FRAMES_OF_ONE_BYTE]:
        for connection in connections:
            connection.send(bytes([byte]))
    return connections


def parked_fetches(broker: Broker) -> list[socket.socket]:
    """5,000 consumers wait for one partition, and a record comes."""
    wanted = FetchTopic(topic="plain", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1)
    request.topics = [wanted]
    framed = frame(ApiKey.FETCH, FETCH_VERSION, 1, request)
    connections = [opened(broker.bootstrap) for _ in range(5_000)]
    for connection in connections:
        connection.sendall(framed)
    time.sleep(2)
    asking = Asking(broker.bootstrap)
    asking.ask(produce_frame("plain", batch_of(10)))
    for connection in connections:
        connection.recv(4)
    return [*connections, asking.socket]


def garbage(broker: Broker) -> list[socket.socket]:
    """200 connections that do not speak Kafka's protocol."""
    connections = [opened(broker.bootstrap) for _ in range(200)]
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    return connections


ATTACKS: dict[str, Callable[[Broker], list[socket.socket]]] = {
    "nobody": nobody,
    "half-requests": half_requests,
    **{f"bomb-{codec.name.lower()}": bomb(codec) for codec in Compression if codec is not Compression.NONE},
    "bombs-gzip": bomb(Compression.GZIP, 8),
    "times-of-bombs": times_of_bombs,
    "topics": many_topics,
    "joins": many_joins,
    "slow": slow_connections,
    "parked": parked_fetches,
    "garbage": garbage,
    **{name: attack for name, (_, attack) in REQUESTS.items()},
}


# ── what becomes of it ────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def broker_with_topics(kind: type[Broker]) -> Iterator[Broker]:
    with kind({"group.initial.rebalance.delay.ms": "3000"}) as broker:
        create_topic(broker.bootstrap, "compacted", config={"cleanup.policy": "compact"})
        create_topic(broker.bootstrap, "plain")
        create_topic(broker.bootstrap, "large")
        wait_for_topic(broker.bootstrap, "large")
        yield broker


def attacked(kind: type[Broker], name: str) -> Seen:
    """What others saw of an attack on a broker of its own."""
    with broker_with_topics(kind) as broker:
        bystander = Onlooker(broker.bootstrap, frame(ApiKey.API_VERSIONS, 0, 1, ApiVersionsRequest()), 0.001)
        producer = None
        if name in ("nobody", "half-requests"):
            producer = Onlooker(broker.bootstrap, produce_frame("large", batch_of(900_000)), 0.02)
        if name in REQUESTS:
            REQUESTS[name][0](broker)
        time.sleep(1)
        for onlooker in filter(None, (bystander, producer)):
            onlooker.begin()
        connections = ATTACKS[name](broker)
        most, until = 0.0, time.monotonic() + CALM_SECONDS
        while time.monotonic() < until:
            most = max(most, broker.resident_mb())
            time.sleep(0.05)
        seen = Seen(bystander.end(), producer.end() if producer is not None else 0.0, most)
        for connection in connections:
            connection.close()
    return seen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(ATTACKS)}; all without one")
    parser.add_argument("--other", metavar="CHECKOUT", help="measure the raftlog of this checkout, too")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ATTACKS)
    if unknown:
        parser.error(f"no attack is called {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kinds: list[type[Broker]] = [Raftlog, *(beside_raftlog(arguments.other) if arguments.other else [])]
    print("| attack | broker | longest stall | longest produce | most memory |\n| --- | --- | --- | --- | --- |")
    for name in arguments.names or ATTACKS:
        for kind in kinds:
            progress(f"{name}: {kind.name}")
            seen = attacked(kind, name)
            produce = f"{seen.produce * 1000:,.0f} ms" if seen.produce else ""
            cells = [name, kind.name, f"{seen.stall * 1000:,.0f} ms", produce, f"{seen.megabytes:,.0f} MB"]
            print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
