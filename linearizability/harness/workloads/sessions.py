"""Steps that several workloads have in common."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.harness.journal import by_key, key_of
from raftlog.linearizability.harness.libraries.ports import (
    ConsumerChoice,
    ConsumerPort,
    Polled,
    ProducerChoice,
    Record,
    TopicPartition,
)
from raftlog.linearizability.harness.outcomes import CallFailed, Uncertain
from raftlog.linearizability.harness.session import Session

POLL_SECONDS = 0.1
FINAL_POLL_SECONDS = 0.3


def polled_output(polled: Polled) -> Any:
    """The output of a poll: records, visible ends, and what the consumer won and lost meanwhile."""
    micro: list[Any] = ["poll", by_key(polled)]
    if polled.ends:
        micro.append({key_of(each): end for each, end in polled.ends.items()})
    if not polled.rebalance:
        return [micro]
    moved = [[event, [key_of(each) for each in partitions]] for event, partitions in polled.rebalance]
    return {"ops": [micro], "rebalance": moved}


class LogSession(Session):
    """Sends records to partitions, and polls those that it has assigned to itself."""

    isolation = "read_committed"

    def producer_choice(self) -> ProducerChoice:
        """As the options say."""
        return ProducerChoice(
            acks=self.option("acks", "all"), idempotent=self.option("idempotence", "true") == "true"
        )

    def send(self, partition: TopicPartition, value: str) -> None:
        """Send one record, recorded."""
        given = [["send", key_of(partition), value]]
        operation = self.journal.invoke("send", given)
        try:
            offset = self.connections.producer(self.producer_choice()).send(Record(*partition, value))
        except CallFailed as failed:
            operation.failed(failed)
            if failed.is_fatal or isinstance(failed, Uncertain):
                self.connections.drop_producer()
            raise
        operation.ok([["send", key_of(partition), [offset, value]]])

    def consumer(self) -> ConsumerPort:
        """The consumer, with partitions; recorded when it is a new one."""
        is_new = not self.connections.has_consumer
        consumer = self.connections.consumer(self.consumer_choice())
        if is_new:
            try:
                self.take_partitions(consumer)
            except CallFailed:
                self.connections.drop_consumer()
                raise
        return consumer

    def consumer_choice(self) -> ConsumerChoice:
        """How the consumer is made."""
        return ConsumerChoice(isolation=self.isolation)

    def take_partitions(self, consumer: ConsumerPort) -> None:
        """What a new consumer reads: everything, from the beginning."""
        self.assign(consumer, self.all_partitions(), beginning=True)

    def assign(self, consumer: ConsumerPort, partitions: Sequence[TopicPartition], *, beginning: bool) -> None:
        """Assign partitions, recorded."""
        given: dict[str, Any] = {"keys": [key_of(each) for each in partitions], "isolation": self.isolation}
        if beginning:
            given["position"] = "beginning"
        # Whoever assigns and fails is made anew, and begins at the beginning as a new process.
        self.journal.did("assign", given, lambda: consumer.assign(partitions, beginning=beginning))

    def poll(self, seconds: float = POLL_SECONDS) -> Polled:
        """Poll, recorded."""
        consumer = self.consumer()
        operation = self.journal.invoke("poll", [["poll"]])
        try:
            polled = consumer.poll(seconds)
        except CallFailed as failed:
            operation.failed(failed)
            self.connections.drop_consumer()
            raise
        operation.ok(polled_output(polled))
        return polled

    def final(self, goals: dict[str, int]) -> None:
        """Read everything from the beginning, until all that must be there was read and the end was met."""
        deadline = time.monotonic() + self.work.final_seconds
        read: dict[str, int] = {}
        ends: dict[str, int] = {}
        while time.monotonic() < deadline:
            try:
                polled = self.poll(FINAL_POLL_SECONDS)
            except CallFailed:
                read.clear()
                ends.clear()
                continue
            for key, records in by_key(polled).items():
                read[key] = max(read.get(key, -1), *(offset for offset, _ in records))
                ends.pop(key, None)
            ends |= {key_of(each): end for each, end in polled.ends.items()}
            if all(read.get(key, -1) >= goal for key, goal in goals.items()) and not polled.records:
                break
        self.journal.note("final-read", {key: read.get(key, -1) for key in goals})
        self.journal.note("final-ends", ends)
