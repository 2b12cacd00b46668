"""A transactional producer in a process of its own, which a test may stop: opens a transaction, waits for a line on
standard input, goes on to the end, and prints how that ended."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer as Member
from confluent_kafka import KafkaException, Producer, TopicPartition


def main(bootstrap: str, name: str, number: str, rest: str) -> None:
    """`rest`: "produce" for one record more before the commit."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 1_000, "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(30)
    try:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(name, number.encode(), partition=partition)
        producer.flush(30)
        group = Member({"bootstrap.servers": bootstrap, "group.id": name}).consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(name, 0, int(number) + 1)], group, 30)
        print("open", flush=True)
        sys.stdin.readline()
        if rest == "produce":
            producer.produce(name, number.encode(), partition=0)
        producer.commit_transaction(30)
        print("committed", flush=True)
    except (KafkaException, BufferError) as error:
        print("refused", error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
