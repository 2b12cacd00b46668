"""The fixtures that people's tests use, used."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from raftlog.client import Outgoing
from raftlog.testing import AsyncKafka, BrokerDied, Kafka, KafkaContainer
from raftlog.testing.container import settings_of
from raftlog.testing.faults.fault import NeverFired
from raftlog.testing.kafka import READY_TOPIC
from raftlog.testing.ports import ReservedPort
from raftlog.testing.waiting import NotInTime, wait_until

pytestmark = pytest.mark.long


def test_records_come_back_as_they_were_seeded(kafka: Kafka, kafka_topic: str) -> None:
    kafka.seed(kafka_topic, ["text", b"bytes", ("key", "value"), ("key", None), Outgoing(b"v", headers=[("h", b"1")])])
    found = kafka.records(kafka_topic, 5)
    assert [(each.key, each.value) for each in found] == [
        (None, b"text"), (None, b"bytes"), (b"key", b"value"), (b"key", None), (None, b"v")
    ]  # fmt: skip
    assert [each.offset for each in found] == [0, 1, 2, 3, 4] and {each.partition for each in found} == {0}
    assert list(found[4].headers) == [("h", b"1")]
    assert kafka.records(kafka_topic) == found


def test_too_few_records_fail_with_those_that_came(kafka: Kafka, kafka_topic: str) -> None:
    kafka.seed(kafka_topic, ["only"])
    with pytest.raises(NotInTime, match=r"2 records of .*; 1 came: 0@0 b'only'"):
        kafka.records(kafka_topic, 2, timeout=0.3)


def test_a_text_is_one_record_and_not_its_letters(kafka: Kafka, kafka_topic: str) -> None:
    with pytest.raises(TypeError, match=r"this is one: \['hello'\]"):
        kafka.seed(kafka_topic, "hello")
    with pytest.raises(TypeError, match=r"this is one: \['hello'\]"):
        kafka.topic(seed="hello")


def test_a_group_that_is_waited_for_is_named_as_it_was_asked_for(kafka: Kafka, kafka_group: str) -> None:
    with pytest.raises(NotInTime, match="Stable; it is: nobody knows it"):
        kafka.wait_group(kafka_group, timeout=0.1)


def test_an_empty_topic_has_no_records(kafka: Kafka, kafka_topics: Callable[..., list[str]]) -> None:
    assert kafka.records(kafka_topics(partitions=3)[0]) == []


@pytest.mark.kafka(partitions=2, config={"retention.ms": "12345"})
def test_topics_are_as_the_mark_says(
    kafka: Kafka, kafka_topic: str, kafka_topics: Callable[..., list[str]]
) -> None:
    names = kafka_topics(2, partitions=3, seed=["a", "b"])
    assert len(kafka.admin.topic(kafka_topic).partitions) == 2
    assert [len(kafka.admin.topic(name).partitions) for name in names] == [3, 3]
    assert sorted(each.value for each in kafka.records(names[1], 2) if each.value) == [b"a", b"b"]
    assert len({kafka_topic, *names}) == 3 and "as-the-mark-says" in kafka_topic


def test_another_projects_clients_work_and_their_lag_is_told(
    kafka: Kafka, kafka_bootstrap_servers: str, kafka_topic: str, kafka_group: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka_bootstrap_servers})
    for number in range(5):
        producer.produce(kafka_topic, str(number))
    assert producer.flush(10) == 0
    settings = {"bootstrap.servers": kafka_bootstrap_servers, "group.id": kafka_group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([kafka_topic])
    try:
        first = consumer.consume(2, timeout=10)
        kafka.wait_group(kafka_group, members=1)
        consumer.commit(first[-1], asynchronous=False)
    finally:
        consumer.close()
    assert len(first) == 2
    assert kafka.committed(kafka_group) == {(kafka_topic, 0): 2} and kafka.lag(kafka_group) == {(kafka_topic, 0): 3}
    with pytest.raises(NotInTime, match="Stable with 2 members; it is: Empty with 0 members"):
        kafka.wait_group(kafka_group, members=2, timeout=0.1)


def test_a_cluster_of_ones_own_has_all_that_the_sessions_has(kafka: Kafka, kafka_cluster: Callable[..., Kafka]) -> None:
    with kafka_cluster(brokers=2, settings={"num.partitions": "4"}) as own:
        assert own.faults.seed == kafka.faults.seed, "one runs a test again"
        assert len(own.running.brokers) == 2 and own.bootstrap_servers != kafka.bootstrap_servers
        own.seed("made-by-use", [(str(number), "x") for number in range(20)])
        assert len(own.admin.topic("made-by-use").partitions) == 4
        assert len(own.records("made-by-use")) == 20
    with pytest.raises(RuntimeError, match="not started"):
        _ = own.running


async def test_the_same_with_asyncio() -> None:
    async with AsyncKafka() as kafka:
        topic = await kafka.topic(seed=["one"])
        assert len((await kafka.admin.topic(topic)).partitions) == 1
        async with kafka.client.producer() as producer:
            await producer.send("another", b"two")
        assert [record.value for record in await kafka.records("another", 1)] == [b"two"]
        assert [record.value for record in await kafka.records(topic, 1)] == [b"one"]


async def test_faults_without_effect_are_told_with_asyncio_too() -> None:
    with pytest.raises(NeverFired, match="disconnect EndTxn once"):
        async with AsyncKafka() as kafka:
            kafka.faults.disconnect("EndTxn")


def test_a_conftest_of_testcontainers_changes_one_line() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3")
    with container as kafka:
        servers = kafka.get_bootstrap_server()
        assert servers == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(9093)}"
        topics = Producer({"bootstrap.servers": servers}).list_topics("three", timeout=10).topics
        assert len(topics["three"].partitions) == 3
        assert b"serving" in kafka.get_logs()[0]


def test_a_container_listens_where_its_port_is_bound(free_port: Callable[[], int]) -> None:
    port = free_port()
    with KafkaContainer().with_bind_ports("9093/tcp", port) as kafka:
        assert kafka.get_exposed_port(9093) == port
        assert kafka.kafka is not None and kafka.kafka.topic(seed=["x"])


@pytest.mark.parametrize(
    ("ask", "advice"),
    [
        (lambda container: container.with_bind_ports(9092, 9092), r"say KafkaContainer\(port=9092\)"),
        (lambda container: container.with_command("/run.sh"), "with_env"),
        (lambda container: container.exec(["kafka-topics.sh", "--list"]), "`.kafka.admin` does what Kafka's scripts"),
    ],
)
def test_what_only_a_container_can_do_is_refused_with_advice(
    ask: Callable[[KafkaContainer], object], advice: str
) -> None:
    with pytest.raises(NotImplementedError, match=advice):
        ask(KafkaContainer())


def test_a_port_that_was_chosen_is_where_clients_come_through_links() -> None:
    free = ReservedPort()
    free.release()
    with Kafka(links=True, port=free.number) as kafka:
        assert kafka.bootstrap_servers == f"127.0.0.1:{free.number}"
        topic = kafka.topic(seed=["x"])
        with kafka.faults.link("clients", 1).slow(0.01) as slow:
            assert len(kafka.records(topic, 1)) == 1
        assert slow.fired


def test_variables_of_containers_are_settings() -> None:
    given = {"NUM_PARTITIONS": "3", "LISTENERS": "x", "A__B": "1", "A___B": "2", "LISTENER_SECURITY_PROTOCOL_MAP": "x"}
    assert settings_of({**{f"KAFKA_{key}": value for key, value in given.items()}, "OTHER": "x"}) == {
        "num.partitions": "3", "a_b": "1", "a-b": "2"
    }  # fmt: skip
    of_java = ("OPTS", "HEAP_OPTS", "JVM_PERFORMANCE_OPTS", "JMX_PORT", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL")
    assert settings_of({f"KAFKA_{name}": "x" for name in (*of_java, "GC_LOG_OPTS", "VERSION", "LOG_DIR")}) == {}


def test_a_container_that_is_started_twice_is_one() -> None:
    with KafkaContainer() as container:
        first = container.get_bootstrap_server()
        assert container.start().get_bootstrap_server() == first


def test_a_kafka_starts_where_one_was_killed_while_it_started(tmp_path: Path) -> None:
    with Kafka(directory=tmp_path) as killed:
        killed.admin.create_topic(READY_TOPIC, partitions=2)
    with Kafka(directory=tmp_path) as kafka:
        assert kafka.admin.metadata().topics == []


def test_a_kafka_does_not_start_where_another_runs_whose_faults_stay(tmp_path: Path) -> None:
    with Kafka(directory=tmp_path) as first:
        fault = first.faults.observe("Produce")
        with pytest.raises(BrokerDied, match=r"is in use: broker-1 of another Kafka runs there \(process \d+\)"):
            Kafka(directory=tmp_path).start()
        first.seed("orders", ["x"])
        assert fault.fired == 1


def test_a_broker_that_has_crashed_is_told_at_the_end() -> None:
    with pytest.raises(BrokerDied, match="broker 1 was killed by SIGABRT"):
        with Kafka() as own:
            os.kill(own.running.broker(1).pid, signal.SIGABRT)
            wait_until(lambda: not own.running.broker(1).running, 10, lambda: "it ends")


async def test_a_start_that_is_called_off_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kafka = AsyncKafka()
    starting = asyncio.ensure_future(kafka.__aenter__())
    while not any(tmp_path.iterdir()):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(tmp_path.iterdir()) and kafka.kafka.cluster is None


async def test_a_start_that_is_cancelled_twice_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kafka = AsyncKafka()
    starting = asyncio.ensure_future(kafka.__aenter__())
    while not any(tmp_path.iterdir()):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(wait_until, lambda: not any(tmp_path.iterdir()), 30, lambda: "the brokers are gone")
    assert kafka.kafka.cluster is None


def test_a_kafka_that_could_not_be_started_can_be_started_again() -> None:
    kafka = Kafka(settings={"num.partitions": "none"})
    for _ in range(2):
        with pytest.raises(BrokerDied, match=r"num\.partitions"):
            kafka.start()
    kafka.settings.clear()
    with kafka:
        assert kafka.topic()


def test_names_of_topics_and_groups_are_used_once(
    kafka_topics: Callable[..., list[str]], kafka_topic: str, kafka_group: str
) -> None:
    names = [*kafka_topics(3), kafka_topic, kafka_group]
    assert len({*names}) == 5
    assert all(name.startswith("test-names-of-topics") for name in names)
