"""What consumer groups cost: commits of many partitions, a member that leaves, a coordinator that dies, memory.

    python -m benchmarks.groups [--only commits,leave-classic,leave-consumer,failover,memory] [--rounds 3]
                               [--heartbeat-ms 200] [--against TREE] [--output FILE]

The clients are librdkafka's, the same for both; memory is measured with requests made by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.brokers import Broker, Raftlog, beside_raftlog, create_topic
from benchmarks.cluster_brokers import KafkaSet, RaftlogSet
from benchmarks.measure import OURS, Row, Sample, alternate, progress
from benchmarks.raw_client import RawClient, connect
from benchmarks.table import run_chosen, together
from raftlog.broker.core.log.producers import BATCHES_REMEMBERED
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages import (
    consumer_group_heartbeat,
    find_coordinator,
    init_producer_id,
    join_group,
    offset_commit,
    produce,
)

PARTITIONS = 1_000
MEMBERS = 100
HEARTBEAT_MS = 200
REST_SECONDS, REST_HEARTBEATS = 1.5, 5
FORMING_SECONDS_MAX = 45.0
ATTEMPTS = 4
OFFSETS = 100_000
TRANSACTIONAL_IDS = 10_000
LOADING_TRIES = 100
NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS)
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
QUICK_METADATA = {"topic.metadata.refresh.fast.interval.ms": 100}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def consumer(bootstrap: str, group: str, **settings: Any) -> Any:
    """A librdkafka consumer that commits when it is told to."""
    common = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    return Consumer({**common, **QUICK_METADATA, **settings})


def commits(brokers: list[Broker], rounds: int, count: int = 300) -> Row:
    """Commits a second of one group, one after the other, each of 1,000 partitions."""
    row = Row(f"commits of {PARTITIONS:,} partitions, one consumer", "commits/s", higher_is_better=True)
    for broker in brokers:
        create_topic(broker.bootstrap, "commits", PARTITIONS)

    def work(broker: Broker, number: int) -> Sample:
        client = consumer(broker.bootstrap, "commits")
        sent = [[TopicPartition("commits", i, n) for i in range(PARTITIONS)] for n in (number + 5, number + 6)]
        client.commit(offsets=sent[0], asynchronous=False)
        cpu, begin = broker.cpu_seconds(), time.perf_counter()
        for n in range(count):
            client.commit(offsets=sent[n % 2], asynchronous=False)
        seconds = time.perf_counter() - begin
        progress(f"{broker.name}: {1000 * (broker.cpu_seconds() - cpu) / count:.2f} ms of the broker's CPU a commit")
        client.close()
        return Sample(count / seconds)

    return alternate(row, brokers, work, rounds=rounds)


def heartbeats_every(milliseconds: int) -> dict[str, str]:
    """The broker's settings for members that send heartbeats so often."""
    return SETTINGS | {
        "group.consumer.min.heartbeat.interval.ms": str(milliseconds),
        "group.consumer.heartbeat.interval.ms": str(milliseconds),
    }


def leave(brokers: list[Broker], rounds: int, protocol: str, heartbeat_ms: int) -> Row:
    """Seconds from when one of a hundred members leaves until the others have all partitions.

    The group has been at rest for a while: librdkafka joins a classic group once a second at the most, and sooner it
    would be that which is measured.
    """
    row = Row(f"{MEMBERS} members ({protocol}), one leaves: all have their partitions", "s", higher_is_better=False)
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": heartbeat_ms, "partition.assignment.strategy": "cooperative-sticky"}
    for broker in brokers:
        create_topic(broker.bootstrap, f"leave-{protocol}", 2 * MEMBERS)

    def work(broker: Broker, number: int) -> Sample:
        members = group_at_rest(broker, f"leave-{number + 9}", f"leave-{protocol}", settings, heartbeat_ms)
        # With Kafka, not everybody need have any (see below).
        leaver = next(member for member in reversed(members) if member.assignment())
        members.remove(leaver)
        begin = time.perf_counter()
        leaver.close()
        wait_for_all(members, 2 * MEMBERS)
        seconds = time.perf_counter() - begin
        close_all(members)
        return Sample(seconds)

    return alternate(row, brokers, work, rounds=rounds, warm_up=1)


def group_at_rest(broker: Broker, name: str, topic: str, settings: dict[str, Any], heartbeat_ms: int) -> list[Any]:
    """The members of a group that shares a topic, and has for a while.

    With Kafka, one of the consumer protocol may come to rest with partitions that nobody has: another one is made then.
    """
    seconds_max = FORMING_SECONDS_MAX + 10 * heartbeat_ms / 1000
    for attempt in range(ATTEMPTS):
        members = [consumer(broker.bootstrap, f"{name}-{attempt}", **settings) for _ in range(MEMBERS)]
        for member in members:
            member.subscribe([topic])
        try:
            at_rest = max(REST_SECONDS, REST_HEARTBEATS * heartbeat_ms / 1000) + random.random() * heartbeat_ms / 1000
            wait_for_all(members, 2 * MEMBERS, at_rest, at_rest + seconds_max)
            return members
        except TimeoutError as error:
            progress(f"{broker.name}: {error}")
            close_all(members)
    raise TimeoutError(f"{broker.name}: no group has shared all partitions")


def close_all(members: list[Any]) -> None:
    """Together: one that leaves during a rebalance waits for the others."""
    with ThreadPoolExecutor(len(members)) as closing:
        list(closing.map(lambda member: member.close(), members))


def wait_for_all(members: list[Any], partitions: int, at_rest_seconds: float = 0.0, seconds_max: float = 120) -> None:
    """Poll until every partition has one owner, and nothing has moved for a while.

    How evenly they are shared does not count: Kafka's uniform assignor may leave one member 3 and another 1.
    """
    deadline = time.perf_counter() + seconds_max
    before: list[int] = []
    since = 0.0
    while time.perf_counter() < deadline:
        for member in members:
            member.poll(0)
        counts = [len(member.assignment()) for member in members]
        now = time.perf_counter()
        if counts != before:
            before, since = counts, now
        if sum(counts) == partitions and now - since >= at_rest_seconds:
            return
        time.sleep(0.01)
    raise TimeoutError(f"the partitions are not all assigned after {seconds_max} s: {before}")


def failover(rounds: int, *, with_kafka: bool) -> list[Row]:
    """Seconds from kill -9 of the coordinator of 100,000 offsets until the next commit is answered; and from kill -9 of
    the coordinator of 10,000 transactional ids until one of them is answered.
    """
    rows = [
        Row(f"coordinator of {OFFSETS:,} offsets killed: next commit", "s", higher_is_better=False),
        Row(f"coordinator of {TRANSACTIONAL_IDS:,} transactional ids killed: next one", "s", higher_is_better=False),
    ]
    failovers = (commit_after_failover, begin_after_failover)
    # One coordinator for all groups, and one for all ids: what counts is how soon another has loaded them.
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "1",
    }
    for kind in (RaftlogSet, KafkaSet) if with_kafka else (RaftlogSet,):
        with kind(3, settings) as brokers:
            create_topic(brokers.bootstrap, "failover", PARTITIONS, replicas=3)
            asyncio.run(begin_at_coordinator(brokers.bootstrap, TRANSACTIONAL_IDS))
            for number, (row, one) in product(range(rounds), zip(rows, failovers, strict=True)):
                seconds = one(brokers, number)
                progress(f"{row.work}: {brokers.name} {seconds:.3f} s")
                row.samples.setdefault(brokers.name, []).append(Sample(seconds))
    return rows


def commit_after_failover(brokers: Any, number: int) -> float:
    """Commit for a hundred groups, kill their coordinator, commit again; the broker is back afterwards."""
    offsets = [TopicPartition("failover", i, number) for i in range(PARTITIONS)]
    for group in range(OFFSETS // PARTITIONS - 1):
        other = consumer(brokers.bootstrap, f"failover-{group}")
        other.commit(offsets=offsets, asynchronous=False)
        other.close()
    client = consumer(brokers.bootstrap, "failover")
    client.commit(offsets=offsets, asynchronous=False)
    node, _ = asyncio.run(coordinator_of(brokers.bootstrap, "failover"))
    begin = time.perf_counter()
    brokers.signal(node, signal.SIGKILL)
    while True:
        try:
            client.commit(offsets=offsets[:1], asynchronous=False)
            break
        except KafkaException:
            time.sleep(0.01)
    seconds = time.perf_counter() - begin
    client.close()
    brokers.restart(node)
    brokers.wait_until_in_sync("__consumer_offsets")
    return seconds


def begin_after_failover(brokers: Any, _: int) -> float:
    """Kill the coordinator of all transactional ids; one of their producers commits what it has written."""
    settings = {"bootstrap.servers": brokers.bootstrap, "log_level": 0, **QUICK_METADATA}
    client = Producer({**settings, "transactional.id": f"producer-{0:020}"})
    client.init_transactions()
    node, _ = asyncio.run(coordinator_of(brokers.bootstrap, "", TRANSACTION))
    elsewhere = next(partition for partition in range(PARTITIONS) if brokers.leader("failover", partition) != node)
    for is_last in (False, True):
        client.begin_transaction()
        client.produce("failover", b"", partition=elsewhere)
        if not is_last:
            client.commit_transaction()
    client.flush()
    begin = time.perf_counter()
    brokers.signal(node, signal.SIGKILL)
    while True:
        try:
            client.commit_transaction(0.5)
            break
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
    seconds = time.perf_counter() - begin
    brokers.restart(node)
    brokers.wait_until_in_sync("__transaction_state")
    return seconds


async def begin_at_coordinator(bootstrap: str, count: int) -> None:
    """Have so many producers begin, asked of their coordinator."""
    _, address = await coordinator_of(bootstrap, "", TRANSACTION)
    await begin_producers(address, count)


async def coordinator_of(bootstrap: str, key: str, kind: int = GROUP) -> tuple[int, str]:
    """The node that coordinates a group or a transactional id, and its address; asked until somebody does."""
    request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    client = await connect(bootstrap.split(",")[0])
    while True:
        answer = await client.call(ApiKey.FIND_COORDINATOR, 4, request, find_coordinator.FindCoordinatorResponse)
        (found,) = answer.coordinators
        if not found.error_code:
            return found.node_id, f"{found.host}:{found.port}"
        await asyncio.sleep(0.1)


def memory() -> list[Row]:
    """Bytes of resident memory for each committed offset, member (in a group of its own), transactional id, and
    producer id in a partition.
    """
    rows = []
    for what, fill, count in (
        ("committed offset", commit_offsets, OFFSETS),
        ("member of a classic group", join_members, 10_000),
        ("member of a consumer group", join_consumer_members, 10_000),
        ("transactional id", begin_producers, 10_000),
        ("producer id that wrote one batch", produce_once, 10_000),
        (f"producer id that wrote {BATCHES_REMEMBERED} batches or more", produce_often, 10_000),
    ):
        # A broker for each: what one leaves free, the next would take.
        with Raftlog(SETTINGS) as broker:
            create_topic(broker.bootstrap, "memory", 2)
            for topic in range(OFFSETS // PARTITIONS if fill is commit_offsets else 0):
                create_topic(broker.bootstrap, f"memory-{topic}", PARTITIONS)
            asyncio.run(coordinator_of(broker.bootstrap, "memory"))
            asyncio.run(coordinator_of(broker.bootstrap, "memory", TRANSACTION))
            before = broker.resident_mb()
            asyncio.run(fill(broker.bootstrap, count))
            each = (broker.resident_mb() - before) * 1e6 / count
        progress(f"memory per {what}: {each:.0f} B")
        rows.append(Row(f"memory per {what}", "B", higher_is_better=False, samples={OURS: [Sample(each)]}))
    return rows


async def commit_offsets(bootstrap: str, count: int) -> None:
    client = await connect(bootstrap)
    for topic in range(count // PARTITIONS):
        partitions = [
            offset_commit.OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata="")
            for i in range(PARTITIONS)
        ]
        named = offset_commit.OffsetCommitRequestTopic(name=f"memory-{topic}", partitions=partitions)
        request = offset_commit.OffsetCommitRequest(group_id="memory", topics=[named])
        answer = await client.call(ApiKey.OFFSET_COMMIT, 9, request, offset_commit.OffsetCommitResponse)
        assert not any(each.error_code for each in answer.topics[0].partitions)


async def join_members(bootstrap: str, count: int) -> None:
    client = await connect(bootstrap)
    await in_parts(lambda number: join(client, f"members-{number}"), count)


async def join(client: RawClient, group: str) -> None:
    """A group of one member of its own, by JoinGroup v3, which needs no second turn."""
    subscription = b"\0\1\0\0\0\1\0\6memory\xff\xff\xff\xff"
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    answer = await client.call(ApiKey.JOIN_GROUP, 3, request, join_group.JoinGroupResponse)
    assert not answer.error_code, answer.error_code


async def join_consumer_members(bootstrap: str, count: int) -> None:
    client = await connect(bootstrap)

    async def beat(number: int) -> None:
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=f"consumer-members-{number}",
            member_id=f"{number:022}",
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=["memory"],
            topic_partitions=[],
        )
        kind = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse
        answer = await client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, kind)
        assert not answer.error_code, answer.error_message

    await in_parts(beat, count)


async def begin_producers(bootstrap: str, count: int) -> None:
    client = await connect(bootstrap)

    async def begin(number: int) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=f"producer-{number:020}", transaction_timeout_ms=60_000
        )
        kind = init_producer_id.InitProducerIdResponse
        for _ in range(LOADING_TRIES):
            answer = await client.call(ApiKey.INIT_PRODUCER_ID, 5, request, kind)
            if answer.error_code not in NOT_YET:
                break
            await asyncio.sleep(0.1)
        assert not answer.error_code, answer.error_code

    await in_parts(begin, count)


async def produce_once(bootstrap: str, count: int) -> None:
    await produce_as_many(bootstrap, count, 1)


async def produce_often(bootstrap: str, count: int) -> None:
    await produce_as_many(bootstrap, count, BATCHES_REMEMBERED)


async def produce_as_many(bootstrap: str, count: int, batches: int) -> None:
    """So many idempotent producers, each with its batches to one partition."""
    client = await connect(bootstrap)

    async def write(number: int) -> None:
        for sequence in range(batches):
            batch = encode_batch(
                [Record(0, 0, None, b"")], producer_id=number, producer_epoch=0, base_sequence=sequence
            )
            data = [produce.PartitionProduceData(index=0, records=batch)]
            topics = [produce.TopicProduceData(name="memory", partition_data=data)]
            request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
            answer = await client.call(ApiKey.PRODUCE, 9, request, produce.ProduceResponse)
            assert not answer.responses[0].partition_responses[0].error_code

    await in_parts(write, count)


async def in_parts(work: Callable[[int], Coroutine[Any, Any, None]], count: int) -> None:
    """A hundred at a time: what waits for its turn is memory too."""
    for first in range(0, count, 100):
        await asyncio.gather(*[work(number) for number in range(first, first + 100)])


def main() -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--heartbeat-ms", type=int, default=HEARTBEAT_MS, help="how often members that stay send one")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--against", metavar="TREE", help="another checkout of raftlog, in place of Kafka")
    options = parser.parse_args()
    others = beside_raftlog(options.against)
    rounds, every_ms = options.rounds, options.heartbeat_ms
    workloads: dict[str, Callable[[], list[Row]]] = {
        "commits": lambda: together(lambda b: [commits(b, rounds)], others, SETTINGS),
        "leave-classic": lambda: together(lambda b: [leave(b, rounds, "classic", every_ms)], others, SETTINGS),
        "leave-consumer": lambda: together(
            lambda b: [leave(b, rounds, "consumer", every_ms)], others, heartbeats_every(every_ms)
        ),
        "failover": lambda: failover(rounds, with_kafka=bool(others) and options.against is None),
        "memory": memory,
    }
    return run_chosen(parser, options, workloads)


if __name__ == "__main__":
    sys.exit(main())
