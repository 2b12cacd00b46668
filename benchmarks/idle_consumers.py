"""A thousand idle consumers parked in long polls: what they cost, and what they add to a produce's p99."""

from __future__ import annotations

import multiprocessing
import select
import socket
import struct
import time
from multiprocessing.connection import Connection

from benchmarks.brokers import Broker, create_topic
from benchmarks.measure import Row, Sample, alternate, beside, progress
from benchmarks.raw_client import frame
from benchmarks.single_node import one_at_a_time, percentile
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.headers import parse_response_header
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

VERSION = 12
# What the Java consumer and librdkafka wait by default.
WAIT_MS = 500
# How often the consumers of a round poll, with as many rests between.
_TURNS = 4
_EPOCH = 0x7A7B7C7D  # stands for the epoch where it is looked for in the frame


class Poller:
    """One consumer: long polls in an incremental session, as the Java consumer makes them.

    A poll costs no more than a receive, four bytes and a send: on two cores, what a thousand consumers cost would
    otherwise hide what they cost the broker.
    """

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        self._topics = [FetchTopic(topic=topic, partitions=[wanted])]
        self._frame = bytearray(self._framed(0, 0, self._topics))
        self._epoch = 0
        self._epoch_at: int | None = None
        self._buffer = b""

    def _framed(self, session: int, epoch: int, topics: list[FetchTopic]) -> bytes:
        request = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=50 << 20, session_id=session, session_epoch=epoch, topics=topics
        )
        return frame(ApiKey.FETCH, VERSION, 1, request)

    def send(self) -> None:
        self.socket.sendall(self._frame)

    def receive(self) -> bool:
        """Take what has come; when it is a whole reply, the next poll may be sent."""
        self._buffer += self.socket.recv(65536) or _closed()
        if len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            return False
        if self._epoch == 0:
            self._begin_session(self._buffer[4:])
        self._buffer = b""
        if self._epoch_at is not None:
            self._epoch += 1
            struct.pack_into(">i", self._frame, self._epoch_at, self._epoch)
        return True

    def _begin_session(self, reply: bytes) -> None:
        _, offset = parse_response_header(ApiKey.FETCH, VERSION, reply)
        session = decode(FetchResponse, VERSION, reply, offset).session_id
        # Where there was no slot for a session: the whole request every time, as those consumers then do.
        if session:
            self._frame = bytearray(self._framed(session, _EPOCH, []))
            self._epoch_at = self._frame.index(struct.pack(">i", _EPOCH))


def _closed() -> bytes:
    raise ConnectionError("closed by the broker")


def consumers(bootstrap: str, topic: str, count: int, pipe: Connection) -> None:
    """Run in a process of its own: `count` consumers that poll from "poll" to "rest", until "stop". Each order is sent
    back when it has become true of all.

    They begin one after the other over the length of a poll: nobody starts a thousand consumers in one instant.
    """
    pollers = [Poller(bootstrap, topic, number % 10) for number in range(count)]
    by_descriptor = {poller.socket.fileno(): poller for poller in pollers}
    waiting = select.epoll()
    for descriptor in (*by_descriptor, pipe.fileno()):
        waiting.register(descriptor, select.EPOLLIN)
    order, since, told = "rest", 0.0, True
    begun = parked = 0
    while order != "stop":
        now = time.monotonic()
        due = min(int((now - since) * 1000 * count / WAIT_MS) + 1, count) if order == "poll" else begun
        for poller in pollers[begun:due]:
            poller.send()
        parked += due - begun
        begun = due
        if not told and (now - since > WAIT_MS / 1000 * 3 if order == "poll" else not parked):
            pipe.send(order)
            told = True
        for descriptor, _ in waiting.poll(0.1 if told or begun == count else 0.002):
            if descriptor == pipe.fileno():
                order, since, told, begun = pipe.recv(), now, False, 0
            elif not by_descriptor[descriptor].receive():
                continue
            elif order == "poll":
                by_descriptor[descriptor].send()
            else:
                parked -= 1


def rows(brokers: list[Broker], rounds: int, count: int = 1000, seconds: float = 10) -> list[Row]:
    """CPU share of the parked consumers, and the p99 of single produces without and with them.

    In rounds, and after one that does not count: a JVM that has just begun takes the processor from everybody. Within
    a round, the consumers rest and poll in turns: what the machine is like changes from one ten seconds to the next.
    """
    share = Row(f"{count:,} idle consumers: broker CPU", "%", higher_is_better=False)
    for broker in brokers:
        create_topic(broker.bootstrap, "idle", 10)
        create_topic(broker.bootstrap, "busy")

    def work(broker: Broker, _: int) -> Sample:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=consumers, args=(broker.bootstrap, "idle", count, theirs)
        )
        process.start()
        resting: list[float] = []
        polling: list[float] = []
        cpu = parked = 0.0
        for _ in range(_TURNS):
            resting += one_at_a_time(broker, "busy", seconds / _TURNS, 200)
            _order(ours, "poll")
            cpu_before, begin = broker.cpu_seconds(), time.perf_counter()
            time.sleep(seconds / _TURNS)
            cpu += broker.cpu_seconds() - cpu_before
            parked += time.perf_counter() - begin
            polling += one_at_a_time(broker, "busy", seconds / _TURNS, 200)
            _order(ours, "rest")
        ours.send("stop")
        process.join(30)
        without, beside_them = percentile(resting, 0.99), percentile(polling, 0.99)
        progress(f"idle consumers: {broker.name} {cpu / parked:.1%} CPU, p99 {without:.2f} -> {beside_them:.2f} ms")
        return Sample(cpu / parked * 100, beside=beside_them - without)

    alternate(share, brokers, work, rounds=rounds)
    return [share, beside(share, f"{count:,} idle consumers: added p99 of a produce", "ms")]


def _order(pipe: Connection, order: str) -> None:
    pipe.send(order)
    if not pipe.poll(30) or pipe.recv() != order:
        raise RuntimeError(f"the idle consumers do not {order}")
