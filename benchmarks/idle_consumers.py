"""A thousand idle consumers parked in long polls: what they cost, and what they add to a produce's p99."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from benchmarks.brokers import Broker, create_topic
from benchmarks.measure import Row, Sample, alternate, progress
from benchmarks.raw_client import RawClient, connect, frame
from benchmarks.single_node import one_at_a_time, percentile
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.headers import parse_response_header
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

VERSION = 12
# What the Java consumer and librdkafka wait by default.
WAIT_MS = 500


async def poll(client: RawClient, topic: str, partition: int, until: asyncio.Event) -> None:
    """Long polls in an incremental session, as the Java consumer makes them."""
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    first = FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=50 << 20, session_id=0, session_epoch=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    reply = await client.send(frame(ApiKey.FETCH, VERSION, 1, first))
    _, offset = parse_response_header(ApiKey.FETCH, VERSION, reply)
    session = decode(FetchResponse, VERSION, reply, offset).session_id
    epoch = 1
    while not until.is_set():
        if session == 0:
            # There was no slot for one: the whole request every time, as those consumers then do.
            await client.send(frame(ApiKey.FETCH, VERSION, epoch, first))
            continue
        following = FetchRequest(
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=50 << 20, session_id=session, session_epoch=epoch, topics=[]
        )
        await client.send(frame(ApiKey.FETCH, VERSION, epoch, following))
        epoch += 1


def consumers(bootstrap: str, topic: str, count: int, pipe: Connection) -> None:
    """Run in a process of its own: `count` consumers, until the pipe says stop."""

    async def run() -> None:
        clients = [await connect(bootstrap) for _ in range(count)]
        until = asyncio.Event()
        tasks = [asyncio.create_task(poll(client, topic, n % 10, until)) for n, client in enumerate(clients)]
        await asyncio.sleep(WAIT_MS / 1000 * 2)
        pipe.send("parked")
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        until.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def rows(brokers: list[Broker], rounds: int, count: int = 1000, seconds: float = 5) -> list[Row]:
    """CPU share of the parked consumers, and the p99 of single produces without and with them.

    In rounds, and after one that does not count: a JVM that has just begun takes the processor from everybody.
    """
    share = Row(f"{count:,} idle consumers: broker CPU", "%", higher_is_better=False)
    added = Row(f"{count:,} idle consumers: added p99 of a produce", "ms", higher_is_better=False)
    for broker in brokers:
        create_topic(broker.bootstrap, "idle", 10)
        create_topic(broker.bootstrap, "busy")

    def work(broker: Broker, number: int) -> Sample:
        before = percentile(one_at_a_time(broker, "busy", seconds, 200), 0.99)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=consumers, args=(broker.bootstrap, "idle", count, theirs)
        )
        process.start()
        ours.recv()
        cpu, begin = broker.cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        used = (broker.cpu_seconds() - cpu) / (time.perf_counter() - begin)
        after = percentile(one_at_a_time(broker, "busy", seconds, 200), 0.99)
        ours.send("stop")
        process.join(30)
        progress(f"idle consumers: {broker.name} {used:.1%} CPU, p99 {before:.2f} -> {after:.2f} ms")
        if number >= 0:
            added.samples.setdefault(broker.name, []).append(Sample(after - before))
        return Sample(used * 100)

    alternate(share, brokers, work, rounds=rounds)
    return [share, added]
