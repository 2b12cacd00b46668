"""What consumer groups cost: commits of many partitions, a member that leaves, a coordinator that dies, memory.

    python -m benchmarks.groups [--only commits,leave-classic,leave-consumer,failover,memory] [--rounds 3]
                               [--against TREE] [--output FILE]

The clients are librdkafka's, the same for both; memory is measured with requests made by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.brokers import Broker, beside_raftlog, create_topic
from benchmarks.cluster_brokers import KafkaSet, RaftlogSet
from benchmarks.measure import Row, Sample, alternate, progress
from benchmarks.raw_client import RawClient, connect
from benchmarks.table import run_chosen, together
from raftlog.wire.apis import ApiKey
from raftlog.wire.messages import find_coordinator, join_group, offset_commit

PARTITIONS = 1_000
MEMBERS = 100
HEARTBEAT_MS = 200
OFFSETS = 100_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS)}
SETTINGS |= {"group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS)}


def consumer(bootstrap: str, group: str, **settings: Any) -> Any:
    """A librdkafka consumer that commits when it is told to."""
    from confluent_kafka import Consumer

    common = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    return Consumer({**common, "topic.metadata.refresh.fast.interval.ms": 100, **settings})


def commits(brokers: list[Broker], rounds: int, count: int = 300) -> Row:
    """Commits a second of one group, one after the other, each of 1,000 partitions."""
    from confluent_kafka import TopicPartition

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


def leave(brokers: list[Broker], rounds: int, protocol: str) -> Row:
    """Seconds from when one of a hundred members leaves until the others have all partitions."""
    row = Row(f"{MEMBERS} members ({protocol}), one leaves: all have their partitions", "s", higher_is_better=False)
    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": HEARTBEAT_MS, "partition.assignment.strategy": "cooperative-sticky"}
    for broker in brokers:
        create_topic(broker.bootstrap, f"leave-{protocol}", 2 * MEMBERS)

    def work(broker: Broker, number: int) -> Sample:
        members = [consumer(broker.bootstrap, f"leave-{number + 9}", **settings) for _ in range(MEMBERS)]
        for member in members:
            member.subscribe([f"leave-{protocol}"])
        wait_for_all(members, 2 * MEMBERS)
        begin = time.perf_counter()
        members.pop().close()
        wait_for_all(members, 2 * MEMBERS)
        seconds = time.perf_counter() - begin
        for member in members:
            member.unsubscribe()
        for member in members:
            member.close()
        return Sample(seconds)

    return alternate(row, brokers, work, rounds=rounds, warm_up=0)


def wait_for_all(members: list[Any], partitions: int, seconds_max: float = 120) -> None:
    """Poll until every partition has one owner and no owner has three more than another."""
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        for member in members:
            member.poll(0)
        counts = [len(member.assignment()) for member in members]
        if sum(counts) == partitions and max(counts) - min(counts) <= 2:
            return
        time.sleep(0.01)
    raise TimeoutError(f"the partitions are not all assigned after {seconds_max} s: {counts}")


def failover(rounds: int, *, with_kafka: bool) -> Row:
    """Seconds from kill -9 of the coordinator of 100,000 offsets until the next commit is answered."""
    row = Row(f"coordinator of {OFFSETS:,} offsets killed: next commit", "s", higher_is_better=False)
    topics = [f"failover-{number}" for number in range(OFFSETS // PARTITIONS)]
    for kind in (RaftlogSet, KafkaSet) if with_kafka else (RaftlogSet,):
        with kind(3) as brokers:
            for topic in topics:
                create_topic(brokers.bootstrap, topic, PARTITIONS)
            for number in range(rounds):
                seconds = one_failover(brokers, topics, number)
                progress(f"{row.work}: {brokers.name} {seconds:.3f} s")
                row.samples.setdefault(brokers.name, []).append(Sample(seconds))
    return row


def one_failover(brokers: Any, topics: list[str], number: int) -> float:
    """Commit everything, kill the coordinator, commit again; the broker is back afterwards."""
    from confluent_kafka import KafkaException, TopicPartition

    client = consumer(brokers.bootstrap, "failover")
    for topic in topics:
        client.commit(offsets=[TopicPartition(topic, i, number) for i in range(PARTITIONS)], asynchronous=False)
    node = asyncio.run(coordinator_of(brokers.bootstrap, "failover"))
    begin = time.perf_counter()
    brokers.signal(node, signal.SIGKILL)
    while True:
        try:
            client.commit(offsets=[TopicPartition(topics[0], 0, number)], asynchronous=False)
            break
        except KafkaException:
            time.sleep(0.01)
    seconds = time.perf_counter() - begin
    client.close()
    brokers.restart(node)
    brokers.wait_until_in_sync("__consumer_offsets")
    return seconds


async def coordinator_of(bootstrap: str, group: str) -> int:
    """The node that coordinates a group; asked until somebody does."""
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
    client = await connect(bootstrap.split(",")[0])
    while True:
        answer = await client.call(ApiKey.FIND_COORDINATOR, 4, request, find_coordinator.FindCoordinatorResponse)
        if not answer.coordinators[0].error_code:
            return answer.coordinators[0].node_id
        await asyncio.sleep(0.1)


def memory(brokers: list[Broker]) -> list[Row]:
    """Bytes of resident memory for each committed offset, and for each member that waits to be given its partitions."""
    of_offset = Row("memory per committed offset", "B", higher_is_better=False)
    of_member = Row("memory per member of a classic group", "B", higher_is_better=False)
    for broker in brokers:
        for topic in range(OFFSETS // PARTITIONS):
            create_topic(broker.bootstrap, f"memory-{topic}", PARTITIONS)
        asyncio.run(coordinator_of(broker.bootstrap, "memory"))
        for row, fill, count in ((of_offset, commit_offsets, OFFSETS), (of_member, join_members, 10_000)):
            before = broker.resident_mb()
            asyncio.run(fill(broker.bootstrap, count))
            each = (broker.resident_mb() - before) * 1e6 / count
            progress(f"{row.work}: {broker.name} {each:.0f} B")
            row.samples[broker.name] = [Sample(each)]
    return [of_offset, of_member]


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
    await asyncio.gather(*[join(client, f"members-{number}") for number in range(count)])


async def join(client: RawClient, group: str) -> None:
    """A group of one member of its own, by JoinGroup v3, which needs no second turn."""
    subscription = b"\0\1\0\0\0\1\0\10memory-0\xff\xff\xff\xff"
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    answer = await client.call(ApiKey.JOIN_GROUP, 3, request, join_group.JoinGroupResponse)
    assert not answer.error_code, answer.error_code


def main() -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--against", metavar="TREE", help="another checkout of raftlog, in place of Kafka")
    options = parser.parse_args()
    others = beside_raftlog(options.against)
    rounds = options.rounds
    works: dict[str, Callable[[], list[Row]]] = {
        "commits": lambda: together(lambda b: [commits(b, rounds)], others, SETTINGS),
        "leave-classic": lambda: together(lambda b: [leave(b, rounds, "classic")], others, SETTINGS),
        "leave-consumer": lambda: together(lambda b: [leave(b, rounds, "consumer")], others, SETTINGS),
        "failover": lambda: [failover(rounds, with_kafka=bool(others) and options.against is None)],
        "memory": lambda: together(memory, [], SETTINGS),
    }
    return run_chosen(parser, options, works)


if __name__ == "__main__":
    sys.exit(main())
