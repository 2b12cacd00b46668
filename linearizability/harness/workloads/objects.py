"""Workloads that are judged by the checker's models: `compacted`, and `topics`."""

from __future__ import annotations

import time
from typing import Any

from raftlog.linearizability.harness.libraries.ports import ConsumerChoice, ProducerChoice, Record
from raftlog.linearizability.harness.outcomes import CallFailed, Uncertain, by_code
from raftlog.linearizability.harness.session import Session
from raftlog.linearizability.harness.workloads.sessions import FINAL_POLL_SECONDS

KEYS_OF_A_CLIENT = 5
DELETE_PROBABILITY = 0.1
SETTLE_SECONDS = 2.0
"""Between two answers that must agree."""
PADDING = "x" * 400
"""So that segments fill up, and are compacted."""


class CompactedSession(Session):
    """Puts and deletes of keys that nobody else writes; at the end the newest record of each key counts."""

    def step(self) -> None:
        """See Session."""
        key = f"{self.work.number}/{self.random.randrange(KEYS_OF_A_CLIENT)}"
        partitions = self.all_partitions()
        partition = partitions[self.work.number % len(partitions)]
        is_delete = self.random.random() < DELETE_PROBABILITY
        value = None if is_delete else self.value()
        operation = self.journal.invoke("delete" if is_delete else "put", value, key=key)
        try:
            sent = None if value is None else value + PADDING
            self.connections.producer(ProducerChoice()).send(Record(*partition, sent, key))
        except CallFailed as failed:
            operation.failed(failed)
            if failed.is_fatal or isinstance(failed, Uncertain):
                self.connections.drop_producer()
            raise
        operation.ok()

    def final(self, goals: dict[str, int]) -> None:
        """The first client reads what is left of all keys; the others have nothing to do."""
        if self.work.number != 0:
            return
        deadline = time.monotonic() + self.work.final_seconds
        began = time.monotonic_ns()
        consumer = self.connections.consumer(ConsumerChoice())
        partitions = self.all_partitions()
        consumer.assign(partitions, beginning=True)
        newest: dict[str, str | None] = {}
        records = 0
        ends: set[tuple[str, int]] = set()
        while time.monotonic() < deadline and len(ends) < len(partitions):
            polled = consumer.poll(FINAL_POLL_SECONDS)
            for each in polled.records:
                assert each.key is not None
                records += 1
                newest[each.key] = None if each.value is None else each.value.removesuffix(PADDING)
            ends |= set(polled.ends)
        self.journal.note("final-ends-missing", len(partitions) - len(ends))
        if len(ends) < len(partitions):
            return
        for client in range(self.work.clients):
            for at in range(KEYS_OF_A_CLIENT):
                key = f"{client}/{at}"
                self.journal.invoke("get", key=key, at=began).ok(newest.get(key))
        self.journal.note("records-left", records)


class TopicSession(Session):
    """Makes and deletes topics of its own; at the end it asks which of them are there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._made: list[str] = []
        self._tried: set[str] = set()
        self._prefix = f"{self.named('verify')}-{self.work.number}."
        self._admin: Any = None

    def step(self) -> None:
        """See Session."""
        if self._made and self.random.random() < 0.45:
            name = self._made.pop(self.random.randrange(len(self._made)))
            self._do("remove", name)
            return
        name = f"{self._prefix}{len(self._tried) + 1}"
        self._tried.add(name)
        self._do("add", name)
        self._made.append(name)

    def _do(self, function: str, name: str) -> None:
        from confluent_kafka.cimpl import NewTopic

        operation = self.journal.invoke(function, name)
        admin = self._connected()
        if function == "add":
            future = admin.create_topics([NewTopic(name, 2, -1)], operation_timeout=5, request_timeout=8)[name]
        else:
            future = admin.delete_topics([name], operation_timeout=5, request_timeout=8)[name]
        try:
            self._result(future)
        except CallFailed as failed:
            operation.failed(failed)
            raise
        operation.ok()

    def _connected(self) -> Any:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            name = f"verify-{self.work.number}-admin"  # by which faults know whose requests these are
            self._admin = AdminClient({"bootstrap.servers": self.work.bootstrap, "client.id": name, "log_level": 0})
        return self._admin

    @staticmethod
    def _result(future: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            future.result()
        except KafkaException as error:
            name = error.args[0].name()
            # Who tries again may find its own work done: only what a broker refused at first sight is definite.
            known = {"TOPIC_ALREADY_EXISTS": "TIMED_OUT", "UNKNOWN_TOPIC_OR_PART": "TIMED_OUT"}
            raise by_code(known.get(name, name), error.args[0].str()) from None

    def final(self, goals: dict[str, int]) -> None:
        """Ask for all topics. Each is an object of its own for the checker, which takes long for a set as a whole."""
        deadline = time.monotonic() + self.work.final_seconds
        names: set[str] | None = None
        while True:
            began, before = time.monotonic_ns(), names
            try:
                names = self._names()
            except CallFailed:
                if time.monotonic() > deadline:
                    raise
                names = None
            if names is not None and names == before:
                break
            time.sleep(SETTLE_SECONDS)
        for name in sorted(self._tried | names):
            self.journal.invoke("contains", name, at=began).ok(name in names)

    def _names(self) -> set[str]:
        """The topics of this client as every broker tells them. Raises CallFailed while they do not agree: they hear
        of topics one after the other, and who has just begun hears of them last.
        """
        first, *others = (self._names_at(address) for address in self.work.bootstrap.split(","))
        if any(each != first for each in others):
            raise Uncertain("the brokers do not agree which topics there are")
        return first

    def _names_at(self, address: str) -> set[str]:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            # One that has just begun knows, and asks, no other broker.
            found = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=5).topics
        except KafkaException as error:
            raise Uncertain(error.args[0].str()) from None
        return {name for name in found if name.startswith(self._prefix)}
