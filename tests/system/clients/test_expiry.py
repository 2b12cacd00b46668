"""What a running broker forgets with time: committed offsets, and idle producers. Its clock is moved by libfaketime."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from raftlog.testing import BrokerProcess
from raftlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raftlog.wire.messages.list_groups import ListGroupsRequest
from tests.system.clients.confluent import consumer, produce, take
from tests.system.traps.batches import Producer, send
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names
from tests.waiting import wait_until

FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
pytestmark = pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed")

SETTINGS = {
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "50",
    "producer.id.expiration.ms": "60000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


class Clock:
    """The clock of a broker: its process reads how far it is ahead from a file, whenever it looks at the time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_ahead(0)

    def set_ahead(self, seconds: int) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(f"+{seconds}s\n")
        new.rename(self.path)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture
def broker(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    for name, value in (
        ("LD_PRELOAD", FAKETIME[0]),
        ("FAKETIME_TIMESTAMP_FILE", str(clock.path)),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ):
        monkeypatch.setenv(name, value)
    broker = BrokerProcess(1, tmp_path / "data", settings=SETTINGS, log_file=tmp_path / "log")
    broker.start()
    yield broker
    broker.kill()


def groups(broker: BrokerProcess) -> set[str]:
    with RawConnection(broker.address) as connection:
        return {group.group_id for group in connection.ask(ListGroupsRequest(), 4).groups}


def committed(broker: BrokerProcess, group: str, topic: str = "t") -> int:
    """What the group has committed for partition 0; below 0 if nothing."""
    with consumer(broker.address, group) as client:
        (found,) = client.committed([TopicPartition(topic, 0)], 20)
    return int(found.offset)


def test_committed_offsets_expire_when_nobody_needs_them_and_stay_expired(broker: BrokerProcess, clock: Clock) -> None:
    for topic in ("t", "left"):
        create_topic(broker.address, topic)
        produce(broker.address, topic, [{"value": b"x"}] * 5)
    with consumer(broker.address, "empty") as member:
        member.subscribe(["t"])
        take(member, 5)
        member.commit(asynchronous=False)
    with consumer(broker.address, "simple") as client:
        client.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    with consumer(broker.address, "subscribed", heartbeat_interval_ms=100) as member:
        member.subscribe(["t"])
        take(member, 5)
        for topic in ("t", "left"):
            member.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        clock.set_ahead(50 * 60)
        assert committed(broker, "empty") == 5
        with consumer(broker.address, "simple") as client:
            client.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
        clock.set_ahead(61 * 60)
        wait_until(lambda: groups(broker) == {"simple", "subscribed"}, "the empty group has expired")
        wait_until(lambda: committed(broker, "subscribed", "left") < 0, "so has a topic that is not subscribed to")
        assert committed(broker, "simple") == 5 and committed(broker, "subscribed") == 4
        clock.set_ahead(111 * 60)
        wait_until(lambda: groups(broker) == {"subscribed"}, "the group without members has expired too")
        assert "group=simple committed offsets expired: 1, and with them the group" in broker.log()
    broker.restart(kill=True)
    # Its time began when the last member left, and not with the commit.
    assert groups(broker) == {"subscribed"} and committed(broker, "subscribed") == 4
    clock.set_ahead(200 * 60)
    wait_until(lambda: not groups(broker), "the group whose members have left has expired")
    clock.set_ahead(0)
    broker.restart(kill=True)
    assert not groups(broker), "what has expired is gone from the log, and not only from memory"
    assert [committed(broker, group) < 0 for group in ("empty", "simple", "subscribed")] == [True] * 3


def test_a_producer_whose_state_has_expired_goes_on_with_its_next_sequence(broker: BrokerProcess, clock: Clock) -> None:
    create_topic(broker.address, "t")
    names = Names("t", bytes(16), "")
    with RawConnection(broker.address) as connection:
        producer = Producer.register(connection)
        assert send(connection, names, producer.batch(0, 3)).base_offset == 0
    broker.stop()
    clock.set_ahead(3600)
    broker.start()
    with RawConnection(broker.address) as connection:
        asked = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        assert not connection.ask(asked, 0).topics[0].partitions[0].active_producers
        # KIP-360: what nobody knows any more may go on with any sequence, and is known again.
        assert send(connection, names, producer.batch(3, 2)).base_offset == 3
        (known,) = connection.ask(asked, 0).topics[0].partitions[0].active_producers
        assert (known.producer_id, known.last_sequence) == (producer.producer_id, 4)
        assert send(connection, names, producer.batch(3, 2)).base_offset == 3, "a retry is a retry again"
