"""Our coordinators on the logs of Kafka's: groups, offsets and transactional ids are as Kafka's clients left them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.brokers import start_kafka
from raftlog.broker.core.coordinator.loading import CoordinatorLogReader
from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.loading import replay_common_offsets
from raftlog.broker.core.group.member import MemoryBudget
from raftlog.broker.core.group.records import decode_record as decode_group_record
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.transaction.records import decode_record as decode_transaction_record
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import TransactionState
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage
from tests import java
from tests.broker.store.test_store_kafka import kafka as kafka
from tests.broker.store.test_store_kafka import open_log, stop

pytestmark = [*java.marks, pytest.mark.slow]


def logs_of(data: Path, topic: str) -> Iterator[CoordinatorLogReader]:
    """The partitions of a coordinator's topic that are not empty, each read to its end."""
    for directory in sorted(data.glob(f"{topic}-*")):
        log = open_log(directory, LogConfig())
        reader = CoordinatorLogReader(0)
        while reader.next_offset < log.log_end_offset:
            reader.feed(log.read_bytes(reader.next_offset, 1 << 20, log.log_end_offset, min_one=True))
        log.storage.close()
        if reader.records_read:
            yield reader


def groups_of(data: Path) -> dict[str, Group]:
    settings, groups = ConsumerGroupSettings(), {}
    for reader in logs_of(data, "__consumer_offsets"):
        shard = GroupCoordinatorShard(GroupConfig(), MemoryBudget(), MetadataImage(), lambda image, group_id: settings)
        for pair in replay_common_offsets(shard, reader.survivors()):
            if pair is not None and (record := decode_group_record(*pair)) is not None:
                shard.replay(record)
        for producer_id, key, value in reader.pending():
            if (record := decode_group_record(key, value)) is not None:
                shard.replay_pending(producer_id, record)
        for group in list(shard.groups.values()):
            shard.restore(group, Now(0, time.time_ns() // 1_000_000))
        shard.check_invariants()
        groups.update(shard.groups)
    return groups


def transactions_of(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for reader in logs_of(data, "__transaction_state"):
        shard = TransactionCoordinatorShard()
        for pair in reader.survivors():
            if (record := decode_transaction_record(*pair)) is not None:
                shard.load(record)
        shard.check_invariants()
        found.update(shard.transactions)
    return found


def member(address: str, group: str, **settings: str) -> Consumer:
    """A consumer of `t` that has partitions."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, **settings})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline, f"group {group} gives no partitions"
        consumer.poll(0.1)
    return consumer


def transaction(address: str, name: str, consumer: Consumer, partition: int, offset: int) -> Producer:
    """One that is open, with a record and an offset."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=partition)
    producer.send_offsets_to_transaction(
        [TopicPartition("t", partition, offset)], consumer.consumer_group_metadata(), 30
    )
    assert producer.flush(30) == 0
    return producer


def test_groups_and_transactions_of_kafka_are_read_as_its_clients_left_them(
    kafka: tuple[Path, list[str], str],
) -> None:
    data, start, address = kafka
    start_kafka(*start)
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", 4, 1)])["t"].result()
    with ExitStack() as consumers:
        classic = consumers.enter_context(closing(member(address, "classic", **{"client.id": "one"})))
        classic.commit(offsets=[TopicPartition("t", 0, 5), TopicPartition("t", 1, 6)], asynchronous=False)
        newer = consumers.enter_context(closing(member(address, "newer", **{"group.protocol": "consumer"})))
        newer.commit(offsets=[TopicPartition("t", 2, 7)], asynchronous=False)
        transaction(address, "done", classic, 1, 61).commit_transaction(30)
        transaction(address, "undone", classic, 2, 62).abort_transaction(30)
        still_open = transaction(address, "open", classic, 3, 63)
        stop(data.parent.parent)
        del still_open

    groups, transactions = groups_of(data), transactions_of(data)
    assert sorted(groups) == ["classic", "newer"]
    before, after = groups["classic"], groups["newer"]
    assert isinstance(before, ClassicGroup) and isinstance(after, ConsumerGroup)
    assert {index: each.offset for index, each in before.offsets.by_topic["t"].items()} == {0: 5, 1: 61}
    assert {index: each.offset for index, each in after.offsets.by_topic["t"].items()} == {2: 7}
    assert len(list(before.offsets.pending.producers())) == 1, "that of the open transaction"
    (only,) = before.members.values()
    assert only.client_id == "one" and before.generation == 1 and before.protocol == "range" and only.assignment
    (only_newer,) = after.members.values()
    (assigned,) = only_newer.current.assigned.values()
    assert sorted(assigned) == [0, 1, 2, 3] and only_newer.subscription.topics == {"t"}
    states = {name: (each.state, each.partitions) for name, each in transactions.items()}
    assert {name: state for name, (state, _) in states.items()} == {
        "done": TransactionState.COMPLETE_COMMIT,
        "undone": TransactionState.COMPLETE_ABORT,
        "open": TransactionState.ONGOING,
    }
    assert ("t", 3) in states["open"][1] and len(states["open"][1]) == 2, "its record, and the group's offsets"
