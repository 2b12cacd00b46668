"""The clients of a run do what the history says that they did."""

from __future__ import annotations

import pytest

from raftlog.linearizability.harness.libraries import library
from raftlog.linearizability.harness.libraries.ports import ConsumerChoice, ConsumerPort, ProducerChoice, Record
from raftlog.linearizability.harness.outcomes import CallFailed, Refused, Uncertain
from raftlog.linearizability.harness.settings import LIBRARIES
from raftlog.testing import Kafka
from raftlog.testing.waiting import wait_until


def offsets(consumer: ConsumerPort, count: int) -> list[int]:
    found: list[int] = []

    def look() -> bool:
        found.extend(each.offset for each in consumer.poll(0.1).records)
        return len(found) >= count

    wait_until(look, 30.0, lambda: f"{count} records, and not {found}")
    return found


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_consumer_that_is_given_its_partitions_again_goes_on_where_it_was(
    kafka: Kafka, kafka_topic: str, name: str
) -> None:
    kafka.seed(kafka_topic, ["a", "b", "c"])
    consumer = library(name).consumer(kafka.bootstrap_servers, "again", ConsumerChoice())
    try:
        consumer.assign([(kafka_topic, 0)], beginning=True)
        assert offsets(consumer, 3) == [0, 1, 2]
        # Twice, with nothing polled between.
        consumer.assign([(kafka_topic, 0)], beginning=False)
        consumer.assign([(kafka_topic, 0)], beginning=False)
        kafka.seed(kafka_topic, ["d"])
        assert offsets(consumer, 1) == [3]
    finally:
        consumer.close()


def test_our_consumer_commits_as_the_member_that_polled_last(kafka: Kafka, kafka_topic: str) -> None:
    kafka.seed(kafka_topic, ["a", "b", "c"])
    choice = ConsumerChoice(group=kafka_topic)
    first, second = [library("raftlog").consumer(kafka.bootstrap_servers, each, choice) for each in ("1", "2")]
    try:
        first.subscribe([kafka_topic])
        offsets(first, 3)
        polled = first.poll(0.1).membership
        assert polled is not None and polled.partitions == {(kafka_topic, 0)}
        first.commit({(kafka_topic, 0): 1})
        second.subscribe([kafka_topic])

        def has_gone_on() -> bool:
            now = second.poll(0.1).membership
            return now is not None and now.member != polled.member and now.generation > polled.generation

        wait_until(has_gone_on, 30.0, lambda: "the group goes on without waiting for who does not poll")
        with pytest.raises(Refused, match="ILLEGAL_GENERATION"):
            first.commit({(kafka_topic, 0): 2})
        assert second.committed([(kafka_topic, 0)]) == {(kafka_topic, 0): 1}
    finally:
        first.close()
        second.close()


@pytest.mark.long
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_commit_that_is_refused_when_it_is_sent_again_may_have_happened(
    kafka: Kafka, kafka_topic: str, name: str
) -> None:
    kafka.seed(kafka_topic, ["a", "b", "c"])
    consumer = library(name).consumer(kafka.bootstrap_servers, "again", ConsumerChoice(group=kafka_topic))
    try:
        consumer.subscribe([kafka_topic])
        offsets(consumer, 3)
        # As when the group begins to rebalance between the two.
        with (
            kafka.faults.disconnect("OffsetCommit", applied=True).once(),
            kafka.faults.error("OffsetCommit", "REBALANCE_IN_PROGRESS").once(),
            pytest.raises(Uncertain),
        ):
            consumer.commit({(kafka_topic, 0): 2})
        assert kafka.committed(kafka_topic) == {(kafka_topic, 0): 2}
        with kafka.faults.error("OffsetCommit", "ILLEGAL_GENERATION").once(), pytest.raises(CallFailed) as failed:
            consumer.commit({(kafka_topic, 0): 3})
        assert isinstance(failed.value, Refused) == (name == "raftlog"), "only our own client knows"
    finally:
        consumer.close()


@pytest.mark.long
def test_what_aiokafka_gave_up_after_trying_again_may_have_happened_at_first(kafka: Kafka, kafka_topic: str) -> None:
    kafka.seed(kafka_topic, ["a"])
    producer = library("aiokafka").producer(kafka.bootstrap_servers, "again", ProducerChoice(idempotent=False))
    try:
        with (
            kafka.faults.disconnect("Produce", applied=True).once(),
            kafka.faults.error("Produce", "NOT_ENOUGH_REPLICAS").always(),
            pytest.raises(Uncertain, match="NOT_ENOUGH_REPLICAS"),
        ):
            producer.send(Record(kafka_topic, 0, "b"))
        assert [record.value for record in kafka.records(kafka_topic, 2)] == [b"a", b"b"]
    finally:
        producer.close()
