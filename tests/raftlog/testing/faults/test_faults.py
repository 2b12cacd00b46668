"""Faults of real brokers with another project's clients: each has its effect, says so, and ends when it is healed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from raftlog.client.core.errors import DamagedRecords
from raftlog.testing import Kafka
from raftlog.testing.faults.fault import NeverFired
from raftlog.testing.waiting import NotInTime, wait_until
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.system.traps.raw import RawConnection

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def one() -> Iterator[Kafka]:
    with Kafka(links=True) as running:
        yield running


@pytest.fixture
def own(one: Kafka) -> Iterator[Kafka]:
    """One broker behind links; what a test has put in is over for the next one."""
    yield one
    one.faults.heal()
    one.faults.forget()


def send(kafka: Kafka, topic: str, *, client: str = "billing-1", seconds: float = 10.0) -> tuple[str | None, int]:
    """Produce a record with librdkafka: the name of the error, or None, and the offset."""
    answers: list[tuple[str | None, int]] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        answers.append((error.name() if error is not None else None, message.offset() or 0))  # type: ignore[attr-defined]

    settings = {"bootstrap.servers": kafka.bootstrap_servers, "client.id": client, "logger": None}
    settings |= {"message.timeout.ms": int(seconds * 1000), "retry.backoff.ms": 10, "log_level": 0}
    producer = Producer({key: value for key, value in settings.items() if value is not None})
    producer.produce(topic, b"value", partition=0, on_delivery=delivered)
    producer.flush(seconds + 5)
    return answers[0]


def test_a_refused_record_is_stored_by_the_retry(own: Kafka) -> None:
    topic = own.topic(partitions=2)
    elsewhere = own.faults.error("Produce", "INVALID_RECORD", topic=topic, partition=1)
    refused = own.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0)
    assert send(own, topic) == (None, 0)
    assert refused.fired == 1 and elsewhere.fired == 0 and len(own.records(topic)) == 1


def test_a_time_out_is_answered_after_the_record_was_stored(own: Kafka) -> None:
    topic = own.topic()
    late = own.faults.error("Produce", "REQUEST_TIMED_OUT", topic=topic)
    send(own, topic)
    # This producer is not idempotent: its retry is a second record, which shows that the first one was stored.
    assert late.spec.applied and late.fired == 1 and len(own.records(topic)) == 2


def test_librdkafka_tells_no_offset_of_a_record_that_only_a_later_one_proves_to_be_stored(own: Kafka) -> None:
    topic, told = own.topic(), list[tuple[bytes | None, int | None]]()

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        told.append((message.value(), message.offset()))

    settings = {"bootstrap.servers": own.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
    # The second is acknowledged before the first is sent again.
    waits = {"batch.num.messages": 1, "linger.ms": 0, "retry.backoff.ms": 5000, "retry.backoff.max.ms": 5000}
    late = own.faults.error("Produce", "REQUEST_TIMED_OUT", topic=topic)
    producer = Producer({**settings, **waits})
    for value in (b"first", b"second"):
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0 and late.fired == 1
    assert told == [(b"first", None), (b"second", 1)]
    assert [record.value for record in own.records(topic)] == [b"first", b"second"]


@pytest.mark.parametrize(("applied", "records"), [(False, 1), (True, 2)])
def test_a_connection_ends_before_or_after_the_request_was_carried_out(own: Kafka, applied: bool, records: int) -> None:
    topic = own.topic()
    ended = own.faults.disconnect("Produce", applied=applied, topic=topic)
    assert send(own, topic)[0] is None
    assert ended.fired == 1 and len(own.records(topic)) == records


def test_the_second_call_alone_can_be_meant(own: Kafka) -> None:
    topic = own.topic()
    second = own.faults.error("Produce", "INVALID_RECORD", topic=topic).on_call(2)
    assert [send(own, topic)[0] for _ in range(3)] == [None, "INVALID_RECORD", None]
    assert (second.evidence.calls, second.fired) == (3, 1)


def test_chance_comes_from_a_seed(own: Kafka) -> None:
    topic = own.topic()
    faults = own.faults.error("Produce", "INVALID_RECORD", topic=topic).with_probability(0.5, seed=4)
    outcomes = [send(own, topic)[0] for _ in range(8)]
    assert [name is not None for name in outcomes] == [faults.spec.when.hits(call, 0) for call in range(1, 9)]
    assert 0 < faults.fired < 8


def test_a_delayed_request_is_carried_out_later_and_what_is_behind_it_too(own: Kafka) -> None:
    topic = own.topic()
    producer = Producer({"bootstrap.servers": own.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True})
    latencies: list[float] = []
    producer.produce(topic, "warm")
    assert producer.flush(10) == 0
    delay = own.faults.delay("Produce", 0.3, topic=topic)
    seen = own.faults.observe("Produce", topic=topic)
    for value in ("a", "b", "c"):
        producer.produce(topic, value, on_delivery=lambda _, message: latencies.append(message.latency()))
        producer.poll(0.05)
    producer.flush(10)
    assert [record.value for record in own.records(topic, 4)] == [b"warm", b"a", b"b", b"c"]
    assert delay.fired == 1 and latencies[0] >= 0.3 and seen.fired >= 1


def test_errors_of_reads_reach_a_reader_in_a_fetch_session(own: Kafka) -> None:
    topic = own.topic(seed=["a", "b"])
    with own.client.consumer(topic, auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll(10, timeout=5)) == 2
        refused = own.faults.error("Fetch", "OFFSET_NOT_AVAILABLE", topic=topic).times(2)
        own.seed(topic, ["c"])
        # This one was waited for when the fault came; the next fetch names all its partitions, and is refused.
        assert [record.value for record in consumer.poll(10, timeout=10)] == [b"c"]
        wait_until(lambda: not consumer.poll(10, timeout=0.1) and refused.fired == 2, 10, lambda: str(refused))
        own.seed(topic, ["d"])
        assert [record.value for record in consumer.poll(10, timeout=10)] == [b"d"]


def test_metadata_keeps_its_brokers_when_it_tells_an_error(own: Kafka) -> None:
    topic = own.topic()
    failing = own.faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic=topic).times(2)
    assert send(own, topic)[0] is None and failing.fired >= 1


def test_an_answer_without_a_place_for_an_error_is_not_counted(own: Kafka) -> None:
    topic = own.topic()
    refused = own.faults.error("Metadata", "LEADER_NOT_AVAILABLE", client="raw")
    with RawConnection(own.bootstrap_servers) as raw:
        assert raw.ask(MetadataRequest(topics=[]), 12).brokers and refused.fired == 0
        (told,) = raw.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    assert ErrorCode(told.error_code or told.partitions[0].error_code).name == "LEADER_NOT_AVAILABLE"
    assert (refused.fired, refused.evidence.calls) == (1, 1)


def test_a_blackholed_client_hears_nothing_and_others_do(own: Kafka) -> None:
    topic = own.topic()
    with own.faults.client("billing*").blackhole() as hole:
        assert send(own, topic, seconds=0.8)[0] == "_MSG_TIMED_OUT"
        assert send(own, topic, client="shop") == (None, 0)
    assert hole.fired >= 1 and send(own, topic)[0] is None


def test_a_cut_between_clients_and_a_broker_is_felt_and_heals(own: Kafka) -> None:
    topic = own.topic()
    with own.faults.link("clients", 1).cut() as cut:
        assert send(own, topic, seconds=0.8)[0] == "_MSG_TIMED_OUT"
        assert cut.wait(1).connections >= 1
    assert send(own, topic)[0] is None


def test_links_can_be_slow_narrow_lossy_and_reset(own: Kafka) -> None:
    topic = own.topic()
    with own.faults.link("clients", 1).slow(0.05, jitter=0.01) as slow:
        send(own, topic)
    assert slow.bytes > 50 and slow.ms >= 50
    with own.faults.link("clients", 1).drop(0.2) as lossy, own.faults.link(1, "clients").bandwidth(20_000) as narrow:
        wait_until(lambda: send(own, topic)[0] is None and lossy.ms >= 200, 30, lambda: str(lossy))
    assert narrow.fired and lossy.ms >= 200
    own.seed(topic, ["x"])
    with own.faults.link("clients", 1).reset() as reset:
        assert reset.wait(1).connections >= 1
        assert send(own, topic)[0] is None
    assert reset.fired == reset.connections


def test_what_is_not_lost_does_not_count_as_dropped(own: Kafka) -> None:
    with own.faults.link("clients", 1).drop(1e-9) as lossy:
        send(own, own.topic())
    assert (lossy.fired, lossy.connections, lossy.bytes) == (0, 0, 0)


def test_a_connection_that_meets_a_fault_is_counted_once(own: Kafka) -> None:
    with own.faults.link("clients", 1).slow(0.01) as slow, RawConnection(own.bootstrap_servers) as raw:
        raw.ask(MetadataRequest(topics=[]), 12)
        slow.wait(3)
    assert slow.connections == 1


def test_a_broker_that_is_down_cannot_be_paused(own: Kafka) -> None:
    with own.faults.broker(1).kill():
        with pytest.raises(RuntimeError, match="broker 1 does not run"):
            own.faults.broker(1).pause()
        assert [fault.kind for fault in own.faults.made] == ["kill"]


def test_a_paused_broker_is_not_paused_twice_and_its_power_is_not_cut(own: Kafka) -> None:
    broker = own.faults.broker(1)
    with broker.pause():
        for end in (broker.pause, broker.power_cut, broker.disk.tear):
            with pytest.raises(RuntimeError, match="broker 1 stands still"):
                end()
    assert own.topic()


def test_a_paused_broker_is_felt_and_goes_on(own: Kafka) -> None:
    topic = own.topic()
    with own.faults.broker(1).pause():
        assert send(own, topic, seconds=0.8)[0] == "_MSG_TIMED_OUT"
    assert send(own, topic)[0] is None
    own.faults.broker(1).pause(seconds=0.2)
    assert send(own, topic)[0] is None


def test_a_killed_broker_comes_back_with_what_it_had_and_faults_outlive_it(own: Kafka) -> None:
    topic = own.topic(seed=["a"])
    refused = own.faults.error("Produce", "INVALID_RECORD", topic=topic)
    with own.faults.broker(1).kill() as killed:
        assert killed.fired == 1 and not own.running.brokers[0].running
        with pytest.raises(RuntimeError, match="broker 1 does not run"):
            own.faults.broker(1).kill()
    assert own.running.brokers[0].running and len(own.records(topic, 1)) == 1
    assert send(own, topic)[0] == "INVALID_RECORD" and refused.fired == 1


def test_a_power_cut_takes_what_was_not_synced(own: Kafka) -> None:
    kept = own.topic(config={"flush.messages": "1"}, seed=["a", "b"])
    lost = own.topic(seed=["a", "b"])
    with own.faults.broker(1).power_cut() as cut:
        assert cut.fired == 1 and cut.bytes > 0
    assert len(own.records(kept)) == 2 and len(own.records(lost)) == 0


def test_a_full_disk_is_felt(own: Kafka) -> None:
    topic = own.topic(seed=["a"])
    with own.faults.broker(1).disk.full() as full:
        assert send(own, topic, seconds=0.8)[0] is not None
    assert full.fired >= 1
    own.faults.broker(1).restart()
    assert send(own, topic)[0] is None


def test_a_block_can_be_left_while_a_disk_fails() -> None:
    with Kafka() as kafka:
        topic = kafka.topic(config={"flush.messages": "1"})
        failing = kafka.faults.broker(1).disk.fail_sync()
        assert send(kafka, topic, seconds=0.8)[0] is not None
        failing.wait()
    assert failing.fired >= 1 and failing.spec.is_healed


def test_leaving_the_block_tells_of_faults_without_effect_and_of_other_errors_first() -> None:
    with pytest.raises(NeverFired, match="no effect:\n  disconnect EndTxn once \\(fired=0"), Kafka() as kafka:
        kafka.faults.disconnect("EndTxn")
    with pytest.raises(KeyError), kafka:
        kafka.faults.disconnect("EndTxn")
        raise KeyError


def test_a_flipped_bit_is_noticed_by_readers(own: Kafka) -> None:
    topic = own.topic()
    own.seed(topic, [b"x" * 5000])
    with own.faults.broker(1).disk.flip_bit(topic) as flipped:
        with pytest.raises((DamagedRecords, NotInTime)):
            own.records(topic, 1, timeout=1)
    assert flipped.fired == 1 and own.records(topic)[0].value == b"x" * 5000


def test_a_clock_that_jumps_stamps_what_it_appends(own: Kafka) -> None:
    topic = own.topic(config={"message.timestamp.type": "LogAppendTime"}, seed=["before"])
    with own.faults.broker(1).clock.jump(3600) as jump:
        own.seed(topic, ["after"])
    before, after = own.records(topic, 2)
    assert 3_590_000 < after.timestamp - before.timestamp < 3_700_000 and jump.fired == 1


def test_faults_without_effect_and_names_that_are_none_fail(own: Kafka) -> None:
    topic = own.topic()
    idle = own.faults.disconnect("EndTxn").on_call(2)
    own.faults.observe("EndTxn")
    with pytest.raises(NeverFired, match="no effect:\n  disconnect EndTxn once from call 2 on \\(fired=0"):
        own.faults.check()
    with pytest.raises(NotInTime, match="1 times: disconnect EndTxn"):
        idle.wait(timeout=0.05)
    for wrong, words in (
        (lambda: own.faults.error("Produse", "NONE"), "no API 'Produse': did you mean 'Produce'"),
        (lambda: own.faults.error("Produce", "NOT_A_LEADER_OR_FOLLOWER"), "did you mean 'NOT_LEADER_OR_FOLLOWER'"),
        (lambda: own.faults.delay("Fetch", 1, topic="nowhere"), "there is no topic 'nowhere'"),
        (lambda: own.faults.delay("Fetch", 1, topic=topic, partition=7), "has no partition 7"),
        (lambda: own.faults.leader_of("nowhere"), "there is no topic 'nowhere'"),
        (lambda: own.faults.leader_of(topic, 7), "has no partition 7"),
        (lambda: own.faults.broker("clients"), "there is no broker 'clients'"),  # type: ignore[arg-type]
        (lambda: own.faults.link(1, 2), "there is no broker 2"),
        (lambda: own.faults.link("clients", "clients").cut(), "two ends"),
        (lambda: own.faults.schedule(kinds=["wipe"]), "cannot be carried out here"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


def test_the_report_has_each_fault_with_what_it_did(own: Kafka) -> None:
    topic = own.topic()
    own.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic)
    send(own, topic)
    own.faults.heal()
    assert f"s: error Produce NOT_LEADER_OR_FOLLOWER topic={topic} once (fired=1)" in own.faults.report()
    assert dataclasses.asdict(own.faults.made[0].evidence)["fired"] == 1


def test_a_kafka_without_links_says_how_to_get_them(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match="started without links"):
        kafka.faults.link("clients", 1)
