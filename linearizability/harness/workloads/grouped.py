"""Workloads with consumer groups: `groups`, and `consume-transform-produce`."""

from __future__ import annotations

from typing import Any

from raftlog.linearizability.harness.journal import by_key, key_of
from raftlog.linearizability.harness.libraries.ports import (
    ConsumerChoice,
    ConsumerPort,
    Membership,
    Polled,
    Read,
    Record,
    TopicPartition,
)
from raftlog.linearizability.harness.outcomes import CallFailed, Refused, Uncertain
from raftlog.linearizability.harness.session import Assignment
from raftlog.linearizability.harness.workloads.sessions import POLL_SECONDS, LogSession
from raftlog.linearizability.harness.workloads.transactional import TransactionSession

COMMIT_PROBABILITY = 0.3
LOOK_PROBABILITY = 0.1
LEAVE_PROBABILITIES = {"seldom": 0.01, "often": 0.05}
MEMBERS_MIN = 2
"""Of a group: a lone member loses nothing to another."""
MOVERS = "verify-move"
KINDS = ("classic", "consumer", "static", "assign")
"""Groups under both protocols, one of static members, and one whose members assign partitions to themselves."""


def kind_of(work: Assignment) -> str:
    """Of a member's group, by the seed: as many kinds as leave two members or more to each."""
    groups = max(1, work.clients // 2 // MEMBERS_MIN)
    return KINDS[(work.seed + work.number // 2 % groups) % len(KINDS)]


class GroupSession(LogSession):
    """Even clients send; odd ones are members of a group, poll, commit what they polled, and ask what is committed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_member = self.work.number % 2 == 1
        kind = self.option("kind", "each")
        if kind == "each":
            kind = kind_of(self.work)
        if kind == "consumer" and not self.connections.library.has_consumer_protocol:
            kind = "classic"
        self.kind = kind
        self.leave = LEAVE_PROBABILITIES[self.option("leave", "seldom")]
        self._is_final = False
        self._read: dict[TopicPartition, int] = {}
        self._membership: Membership | None = None

    @property
    def group(self) -> str:
        """The group's name."""
        return self.named(f"verify-{self.kind}")

    def step(self) -> None:
        """See Session."""
        if not self._is_member:
            self.send(self.random.choice(self.all_partitions()), self.value())
            return
        chance = self.random.random()
        if chance < self.leave:
            self.journal.retire()
            self.forget()
        elif chance < self.leave + LOOK_PROBABILITY and self.connections.has_consumer:
            self.look()
        elif chance < self.leave + LOOK_PROBABILITY + COMMIT_PROBABILITY and self._read:
            self.commit()
        else:
            self.consume()

    def consumer_choice(self) -> ConsumerChoice:
        """See LogSession."""
        if self._is_final:
            return ConsumerChoice()
        instance = f"static-{self.work.number}" if self.kind == "static" else None
        protocol = "consumer" if self.kind == "consumer" else "classic"
        return ConsumerChoice(group=self.group, protocol=protocol, instance=instance)

    def take_partitions(self, consumer: ConsumerPort) -> None:
        """See LogSession."""
        if self._is_final:
            super().take_partitions(consumer)
            return
        self._read.clear()
        given: dict[str, Any] = {"group": self.group, "isolation": self.isolation}
        if self.kind == "assign":
            mine = [each for each in self.all_partitions() if each[1] % self.work.clients == self.work.number]
            given |= {"keys": [key_of(each) for each in mine], "position": "beginning"}
            self.journal.did("assign", given, lambda: consumer.assign(mine, beginning=True))
            return
        given |= {"keys": [key_of(each) for each in self.all_partitions()], "position": "committed"}
        self.journal.did("subscribe", given, lambda: consumer.subscribe(sorted(self.work.topics)))

    def consume(self) -> Polled:
        """Poll, and know what to commit."""
        try:
            polled = self.poll()
        except CallFailed:
            self._read.clear()
            raise
        self._know(polled.membership)
        gone = {each for event, partitions in polled.rebalance if event != "assigned" for each in partitions}
        for partition in gone:
            self._read.pop(partition, None)
        for each in polled.records:
            if (each.topic, each.partition) not in gone:
                self._read[each.topic, each.partition] = each.offset + 1
        return polled

    def _know(self, now: Membership | None) -> None:
        """Record who this is in the group. What it read as somebody else, it does not commit."""
        before, self._membership = self._membership, now
        if now == before:
            return
        if now is None or before is None or now[:2] != before[:2]:
            self._read.clear()
        if now is not None and now.is_assigned:
            keys = [key_of(each) for each in sorted(now.partitions)]
            given = {"group": self.group, "protocol": "consumer" if self.kind == "consumer" else "classic"}
            joined = {"member": now.member, "generation": now.generation, "keys": keys}
            self.journal.did("join", given, lambda: joined)

    def commit(self) -> None:
        """Commit what was polled."""
        consumer = self.consumer()
        offsets, self._read = self._read, {}
        given: dict[str, Any] = {
            "group": self.group,
            "offsets": {key_of(each): offset for each, offset in offsets.items()},
        }
        if self._membership is not None:
            given |= {"member": self._membership.member, "generation": self._membership.generation}
        try:
            self.journal.did("commit", given, lambda: consumer.commit(offsets))
        except CallFailed as failed:
            if isinstance(failed, Uncertain) or failed.is_fatal:
                self.forget()
            raise

    def look(self) -> None:
        """Ask what is committed."""
        consumer = self.consumer()
        wanted = self.all_partitions()
        given = {"group": self.group, "keys": [key_of(each) for each in wanted]}
        if self.connections.library.name == "aiokafka":
            return  # it answers what it remembers, and asks no broker

        def ask() -> dict[str, int | None]:
            try:
                return {key_of(each): offset for each, offset in consumer.committed(wanted).items()}
            except Uncertain as failed:
                # A question changes nothing, and the consumer goes on as the process that it was.
                raise Refused(str(failed), is_fatal=failed.is_fatal) from None

        self.journal.did("committed", given, ask)

    def forget(self) -> None:
        """Leave the group."""
        self._read.clear()
        self._membership = None
        self.connections.drop_consumer()

    def final(self, goals: dict[str, int]) -> None:
        """See LogSession."""
        self._is_final = True
        super().final(goals)


class ConsumeTransformProduceSession(TransactionSession):
    """A quarter of the clients sends to topic `input`; the others move records to `output` in transactions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        number = self.work.number if self.work.stand_in_for is None else self.work.stand_in_for
        self._is_source = number % 4 == 0
        self._is_final = False

    def step(self) -> None:
        """See Session."""
        if self._is_source:
            self.put_in()
        else:
            self.move()

    def put_in(self) -> None:
        """Send a record, in a transaction of its own."""
        producer = self.transactional_producer()
        partition = self.random.choice(self.partitions(self.named("input")))
        given = [["send", key_of(partition), self.value()]]
        done: list[list[Any]] = []

        def body() -> None:
            value = given[0][2]
            done.append(["send", given[0][1], [producer.send(Record(*partition, value)), value]])

        self.transaction(given, done, body)

    def move(self) -> None:
        """Poll, and if there is something: send what comes of it and commit the offsets, in one transaction."""
        producer, consumer = self.transactional_producer(), self.consumer()
        # With a poll of its own: what a transaction is about must be known when it is called.
        records = self.owned(consumer, self.poll())
        if not records:
            return
        outputs = [self.random.choice(self.partitions(self.named("output"))) for _ in records]
        values = [f"{each.value}>{self.value()}" for each in records]
        offsets: dict[TopicPartition, int] = {}
        first: dict[TopicPartition, int] = {}
        for each in records:
            offsets[each.topic, each.partition] = each.offset + 1
            first.setdefault((each.topic, each.partition), each.offset)
        commit = ["commit", self.named(MOVERS), {key_of(each): offset for each, offset in offsets.items()}]
        sends = [["send", key_of(where), value] for where, value in zip(outputs, values, strict=True)]
        done: list[list[Any]] = [["poll", by_key(Polled(records))]]

        def body() -> None:
            for where, value in zip(outputs, values, strict=True):
                done.append(["send", key_of(where), [producer.send(Record(*where, value)), value]])
            producer.send_offsets(offsets, consumer)
            done.append(commit)

        try:
            self.transaction([["poll"], *sends, commit], done, body)
        except CallFailed as failed:
            if isinstance(failed, Refused) and not failed.is_fatal and self.connections.has_consumer:
                self.rewind(first)
            else:
                self.connections.drop_consumer()
            raise

    def owned(self, consumer: ConsumerPort, polled: Polled) -> list[Read]:
        """The records of partitions that stayed. Of one that left and came back meanwhile nobody knows which records
        are from before: it goes on where the group is.
        """
        last = {each: event for event, partitions in polled.rebalance for each in partitions}
        left = {each for event, partitions in polled.rebalance if event != "assigned" for each in partitions}
        read = {(each.topic, each.partition) for each in polled.records}
        if back := [each for each in sorted(left & read) if last[each] == "assigned"]:
            self.go_on(consumer, back)
        return [each for each in polled.records if (each.topic, each.partition) not in left]

    def go_on(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        """Read partitions from where the group has committed."""
        try:
            offsets = {each: offset or 0 for each, offset in consumer.committed(partitions).items()}
            given = {key_of(each): offset for each, offset in offsets.items()}
            self.journal.did("seek", given, lambda: consumer.seek(offsets))
        except CallFailed:
            self.connections.drop_consumer()
            raise

    def poll(self, seconds: float = POLL_SECONDS) -> Polled:
        """Unrecorded while records are moved: the transaction records what it consumed."""
        if self._is_final:
            return super().poll(seconds)
        try:
            return self.consumer().poll(seconds)
        except CallFailed:
            self.connections.drop_consumer()
            raise

    def consumer_choice(self) -> ConsumerChoice:
        """See LogSession."""
        return ConsumerChoice() if self._is_final else ConsumerChoice(group=self.named(MOVERS))

    def take_partitions(self, consumer: ConsumerPort) -> None:
        """See LogSession."""
        if self._is_final:
            super().take_partitions(consumer)
            return
        given = {
            "keys": [key_of(each) for each in self.partitions(self.named("input"))],
            "group": self.named(MOVERS),
            "isolation": self.isolation,
            "position": "committed",
        }
        self.journal.did("subscribe", given, lambda: consumer.subscribe([self.named("input")]))

    def final(self, goals: dict[str, int]) -> None:
        """See LogSession."""
        self._is_final = True
        super().final(goals)
