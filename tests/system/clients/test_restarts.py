"""Clients that live through a stop and through a kill -9 of their broker: nothing lost, nothing twice."""

from __future__ import annotations

import os
import threading

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from raftlog.testing import Cluster
from tests.system.clients.confluent import (
    DEADLINE_SECONDS,
    Deliveries,
    consumer,
    poll,
    produce,
    producer,
    read_all,
    take,
)
from tests.system.traps.raw import create_topic
from tests.waiting import wait_until

RECORDS = 6_000
KILLS = 3
GROUP_SETTINGS = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 300}


@pytest.fixture(params=["SIGTERM", "kill -9"])
def kill(request: pytest.FixtureRequest) -> bool:
    return str(request.param) == "kill -9"


class Writer(threading.Thread):
    """Produces numbered records at a steady pace, whatever happens to the broker."""

    def __init__(self, bootstrap_servers: str, topic: str, count: int, **settings: object) -> None:
        super().__init__(name="writer", daemon=True)
        self._client = producer(bootstrap_servers, linger_ms=1, message_timeout_ms=60_000, **settings)
        self._topic = topic
        self._count = count
        self.deliveries = Deliveries()

    def run(self) -> None:
        for number in range(self._count):
            self._client.produce(self._topic, b"%d" % number, on_delivery=self.deliveries)
            # Its pace: some five thousand a second, so that the kills come in the middle.
            self._client.poll(0.0002)
        self._client.flush(DEADLINE_SECONDS)

    def wait_for(self, acknowledged: int) -> None:
        acks = self.deliveries
        wait_until(lambda: len(acks.messages) >= acknowledged or acks.errors, f"{acknowledged} acks", DEADLINE_SECONDS)


def restart_while_writing(brokers: Cluster, writer: Writer, *, kill: bool) -> None:
    """Stop and start the broker several times while records are under way."""
    writer.start()
    for number in range(KILLS):
        writer.wait_for(RECORDS * (number + 1) // (KILLS + 2))
        brokers.brokers[0].restart(kill=kill)
    writer.join(DEADLINE_SECONDS)
    assert not writer.is_alive(), "the producer did not end"
    assert not writer.deliveries.errors, writer.deliveries.errors[:3]
    assert len(writer.deliveries.messages) == RECORDS


def test_an_idempotent_producer_loses_nothing_and_writes_nothing_twice(own_broker: Cluster, kill: bool) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    writer = Writer(own_broker.bootstrap_servers, "t", RECORDS, enable_idempotence=True, batch_num_messages=20)
    restart_while_writing(own_broker, writer, kill=kill)
    messages = read_all(own_broker.bootstrap_servers, "t", RECORDS)
    assert [int(message.value() or b"") for message in messages] == list(range(RECORDS))
    offsets = {int(message.value() or b""): message.offset() for message in writer.deliveries.messages}
    assert offsets == {number: number for number in range(RECORDS)}, "an acknowledgement told another offset"


def test_a_plain_producer_loses_nothing(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    writer = Writer(own_broker.bootstrap_servers, "t", RECORDS, acks="all")
    restart_while_writing(own_broker, writer, kill=True)
    with consumer(own_broker.bootstrap_servers) as client:
        client.assign([TopicPartition("t", 0, 0)])
        _, end = client.get_watermark_offsets(TopicPartition("t", 0), DEADLINE_SECONDS)
        values = {int(message.value() or b"") for message in take(client, end)}
    assert values == set(range(RECORDS))


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_acknowledged_is_where_it_was_told_to_be_although_other_records_timed_out(
    own_broker: Cluster, idempotent: bool
) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    (broker,) = own_broker.brokers
    short = {"message_timeout_ms": 2_000, "request_timeout_ms": 1_000, "socket_timeout_ms": 1_000, "acks": "all"}
    client, deliveries = producer(own_broker.bootstrap_servers, enable_idempotence=idempotent, **short), Deliveries()
    for stands_still in (False, True, False):
        if stands_still:
            broker.pause()
        for number in range(500):
            client.produce("t", b"%d" % number, on_delivery=deliveries)
        assert client.flush(DEADLINE_SECONDS) == 0
        if stands_still:
            broker.resume()
            client.list_topics("t", DEADLINE_SECONDS)  # it is connected again before its records' time begins
    assert {error.code() for error in deliveries.errors} == {KafkaError._MSG_TIMED_OUT}
    with consumer(own_broker.bootstrap_servers) as reader:
        _, end = reader.get_watermark_offsets(TopicPartition("t", 0), DEADLINE_SECONDS)
        reader.assign([TopicPartition("t", 0, 0)])
        found = {message.offset(): message.value() for message in take(reader, end)}
    moved = [each.offset() for each in deliveries.messages if found.get(each.offset()) != each.value()]
    assert not moved and len(deliveries.messages) == 1000


def test_a_group_goes_on_where_it_committed(own_broker: Cluster, kill: bool) -> None:
    create_topic(own_broker.bootstrap_servers, "t", partitions=3)
    records = [{"value": b"%d" % number, "partition": number % 3} for number in range(900)]
    produce(own_broker.bootstrap_servers, "t", records)
    with consumer(own_broker.bootstrap_servers, "g", **GROUP_SETTINGS) as client:
        client.subscribe(["t"])
        first = take(client, 400)
        commit(client, first)
    own_broker.brokers[0].restart(kill=kill)
    with consumer(own_broker.bootstrap_servers, "g", **GROUP_SETTINGS) as client:
        client.subscribe(["t"])
        rest = take(client, 500)
    seen = [(message.partition(), message.offset()) for message in [*first, *rest]]
    assert len(seen) == len(set(seen)) == 900


def commit(client: Consumer, messages: list[Message]) -> None:
    ends = {message.partition(): (message.offset() or 0) + 1 for message in messages}
    offsets = [TopicPartition("t", index or 0, offset) for index, offset in ends.items()]
    client.commit(offsets=offsets, asynchronous=False)


def test_a_consumer_that_was_connected_reads_on_by_itself(own_broker: Cluster, kill: bool) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    with consumer(own_broker.bootstrap_servers, "g", **GROUP_SETTINGS) as client:
        client.subscribe(["t"])
        for number in range(3):
            produce(own_broker.bootstrap_servers, "t", [{"value": b"%d" % number}])
            (message,) = poll(client, lambda messages: len(messages) == 1)
            assert message.value() == b"%d" % number, "a record was skipped or read twice"
            commit(client, [message])
            own_broker.brokers[0].restart(kill=kill)
        (found,) = client.committed([TopicPartition("t", 0)], DEADLINE_SECONDS)
        assert found.offset == 3


def test_what_one_broker_acknowledged_and_then_stopped_is_there(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    writer = Writer(own_broker.bootstrap_servers, "t", RECORDS, acks="1", batch_num_messages=10)
    restart_while_writing(own_broker, writer, kill=False)
    with consumer(own_broker.bootstrap_servers) as client:
        client.assign([TopicPartition("t", 0, 0)])
        _, end = client.get_watermark_offsets(TopicPartition("t", 0), DEADLINE_SECONDS)
        values = {int(message.value() or b"") for message in take(client, end)}
    assert values == set(range(RECORDS)), "kafka#22233: the tail of acks=1 is lost on a planned stop"


def test_a_damaged_partition_is_told_once_however_often_clients_ask_and_others_are_served(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "damaged")
    create_topic(own_broker.bootstrap_servers, "t")
    broker = own_broker.brokers[0]
    for topic in ("damaged", "t"):
        produce(own_broker.bootstrap_servers, topic, [{"value": b"x" * 100}] * 100)
    broker.stop()
    segment = broker.data_dir / "damaged-0" / f"{0:020d}.log"
    os.truncate(segment, segment.stat().st_size // 2)
    broker.start()
    deliveries = Deliveries()
    client = producer(own_broker.bootstrap_servers, message_timeout_ms=2000, retry_backoff_ms=20)
    client.produce("damaged", b"y", on_delivery=deliveries)
    client.flush(DEADLINE_SECONDS)
    assert len(deliveries.errors) == 1
    assert len(read_all(own_broker.bootstrap_servers, "t", 100)) == 100
    told = [line for line in broker.log().splitlines() if "damaged-0 cannot be opened" in line]
    assert len(told) == 1 and str(segment) in told[0] and "Restore the file from a replica or a backup" in told[0]


def test_a_record_that_rotted_is_not_handed_out_and_its_partition_is_offline(own_broker: Cluster, kill: bool) -> None:
    """librdkafka does not look at checksums unless it is told to."""
    for topic in ("rotten", "t"):
        create_topic(own_broker.bootstrap_servers, topic, settings={"flush.messages": "1"})
        produce(own_broker.bootstrap_servers, topic, [{"value": b"x" * 100}] * 100, batch_num_messages=5)
    broker = own_broker.brokers[0]
    broker.stop()
    broker.start()
    if kill:
        broker.kill()
    else:
        broker.stop()
    segment = broker.data_dir / "rotten-0" / f"{0:020d}.log"
    with segment.open("r+b") as file:
        file.seek(300)
        file.write(b"!")
    broker.start()
    with consumer(own_broker.bootstrap_servers) as client:
        client.assign([TopicPartition("rotten", 0, 0), TopicPartition("t", 0, 0)])
        messages = poll(client, lambda found: len(found) >= 100)
        assert {message.topic() for message in messages} == {"t"}
    wait_until(lambda: "rotten-0 is offline" in broker.log(), "the damage is told")
    (told,) = [line for line in broker.log().splitlines() if "rotten-0 is offline" in line]
    assert str(segment) in told and "does not match its checksum" in told and "Restore the file" in told
