"""Clients read the broker's own topics and never write them: a foreign record there would end a group's coordinator."""

from __future__ import annotations

import pytest

from raftlog.testing import cluster

confluent_kafka = pytest.importorskip("confluent_kafka")


def test_a_client_may_not_produce_to_the_topic_of_committed_offsets() -> None:
    with cluster(1, settings={"group.initial.rebalance.delay.ms": "0"}) as running:
        bootstrap = {"bootstrap.servers": running.bootstrap_servers}
        consumer = confluent_kafka.Consumer({**bootstrap, "group.id": "g"})
        position = confluent_kafka.TopicPartition("data", 0, 5)
        producer = confluent_kafka.Producer(bootstrap)
        producer.produce("data", b"value")
        assert producer.flush(30) == 0
        consumer.commit(offsets=[position], asynchronous=False)
        outcomes = []
        producer.produce("__consumer_offsets", b"poison", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(30)
        assert outcomes[0].code() == confluent_kafka.KafkaError.TOPIC_EXCEPTION
        assert consumer.committed([position], timeout=30)[0].offset == 5
        consumer.close()
