"""A consumer in a process of its own, which a test may kill. It commits each record that it has read, and says line by
line what it owns and what it reads. It begins where its group stands and nowhere else, and leaves when its standard
input ends."""

from __future__ import annotations

import contextlib
import sys
import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main(bootstrap: str, group: str, topic: str, protocol: str, name: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "client.id": name, "group.protocol": protocol,
        "auto.offset.reset": "error", "enable.auto.commit": False, "fetch.wait.max.ms": 100,
        "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 20,
        **({"session.timeout.ms": 3_000, "heartbeat.interval.ms": 100} if protocol == "classic" else {}),
    })  # fmt: skip
    owned: dict[int, int | None] = {}
    ending = threading.Event()

    def say(*words: object) -> None:
        print(*words, flush=True)

    def commit(partitions: list[int]) -> None:
        read = {each: offset for each in partitions if (offset := owned.get(each)) is not None}
        offsets = [TopicPartition(topic, each, offset) for each, offset in read.items()]
        with contextlib.suppress(KafkaException):
            if offsets:
                consumer.commit(offsets=offsets, asynchronous=False)

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        owned.update({each.partition: None for each in partitions})
        say("owns", *sorted(owned))

    def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            owned.pop(each.partition, None)
        say("owns", *sorted(owned))

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit([each.partition for each in partitions])
        lost(_, partitions)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ending.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not ending.is_set():
        message = consumer.poll(0.05)
        if message is None:
            continue
        if message.error() is not None:
            print(name, message.error(), file=sys.stderr)
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None
        say("read", partition, value.decode())
        owned[partition] = offset + 1
        commit([partition])
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
