"""Members of a group of the consumer protocol (KIP-848) while faults happen: heartbeats bring and take partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.simulator.cluster.client import Connections, History
from raftlog.linearizability.simulator.cluster.workloads.groups import GroupJournal, GroupMember, GroupWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import name_of
from raftlog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

HEARTBEAT_VERSION = 1
SESSION_MS = 800
REBALANCE_MS = 1500
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Member epochs of requests that are no plain heartbeats; the last is a static member's."""
LOST = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID")
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}


class Grant(NamedTuple):
    """A partition is a member's in an epoch, as the answer says to what it asked (nanoseconds of virtual time)."""

    partition: int
    epoch: int
    owner: str
    asked: int
    heard: int


class ConsumerJournal(GroupJournal):
    """Who was given which partition in which epoch."""

    def __init__(self, log: History, fail: Callable[[str, str], None]) -> None:
        super().__init__(log, fail)
        self._grants: list[Grant] = []
        self._held: dict[tuple[str, int], Grant] = {}

    def granted(self, owner: str, epoch: int, partition: int, asked: int) -> None:
        """A member hears, to what it asked then, that a partition is its own."""
        self.counts["partitions given"] += 1
        grant = Grant(partition, epoch, owner, asked, self.log.now())
        self._grants.append(grant)
        self._held[owner, partition] = grant

    def begin(self, owner: str, generation: int, partition: int, offset: int) -> tuple[Operation, bool]:
        """See GroupJournal: somebody else was given the partition since, and in a later epoch.

        Both, for a coordinator that was deposed may repeat what held once, and a group that had nobody left for a
        moment may begin its epochs anew.
        """
        operation, _ = super().begin(owner, generation, partition, offset)
        own = self._held[owner, partition]
        is_over = any(
            given.partition == partition
            and given.owner != owner
            and given.epoch > own.epoch
            and own.heard < given.asked
            and given.heard < operation.call
            for given in self._grants
        )
        return operation, is_over


class Consumer(GroupMember):
    """One member. What it was given it has until a heartbeat takes it away, and says so in the next one."""

    protocol = "consumer"
    journal: ConsumerJournal

    def __init__(
        self, ways: Connections, topic: tuple[str, bytes], journal: ConsumerJournal, instance: str | None
    ) -> None:
        super().__init__(ways, topic[0], topic[0], journal)
        self.journal = journal
        self.instance = instance
        self.generation = JOIN
        self.owned: set[int] = set()
        self._topic_id = topic[1]
        self._tell = True
        self._lives = 0
        self.member_id = ""
        self.die()

    def die(self) -> None:
        """See GroupMember."""
        self._lives += 1
        self.member_id = f"{self.ways.name}.{self._lives}"
        self.forget()

    def forget(self) -> None:
        """It is fenced, and has nothing any more."""
        self.generation, self._tell = JOIN, True
        self.owned.clear()

    async def step(self) -> None:
        """A commit or a heartbeat."""
        if self.generation > 0 and self.owned and self.random.random() < 0.5:
            partition = self.random.choice(sorted(self.owned))
            code = await self.commit(partition, self.generation, self.member_id, self.instance)
            if code is not None:
                self._refused(code)
        else:
            await self.heartbeat()

    async def heartbeat(self) -> None:
        """With all that it has when that has changed, or may not have been heard."""
        joins = self.generation == JOIN
        owned = ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=self._topic_id, partitions=sorted(self.owned))
        told = [owned] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if self._tell else -1,
            subscribed_topic_names=[self.topic] if self._tell else None,
            topic_partitions=told if self._tell else None,
        )
        self._tell = False
        asked = self.journal.log.now()
        answer = await self.ask_coordinator(request, HEARTBEAT_VERSION)
        if answer is None:
            self._tell = True
            return
        code = name_of(answer.error_code)
        if code != "NONE":
            self._tell = True
            self._refused(code)
            return
        assert joins or answer.member_epoch >= self.generation, "an epoch that falls"
        self.generation = answer.member_epoch
        if answer.assignment is not None:
            await self._take(answer.assignment, asked)

    async def _take(self, assignment: Assignment, asked: int) -> None:
        given = {partition for topic in assignment.topic_partitions for partition in topic.partitions}
        epoch = self.generation
        taken = self.owned - given
        self.owned &= given
        new = sorted(given - self.owned)
        self._tell = bool(taken or new)
        for partition in new:
            self.journal.granted(self.owner, epoch, partition, asked)
        while new and self.generation == epoch:
            positions = await self.positions([*sorted(self.owned), *new])
            if positions is not None:
                self.owned.update(new)
                return
            await asyncio.sleep(0.05)

    @property
    def owner(self) -> str:
        """As the journal knows it."""
        return self.instance or self.member_id

    def _refused(self, code: str) -> None:
        if code in LOST:
            self.forget()
        elif code not in ("NONE", "STALE_MEMBER_EPOCH", "UNRELEASED_INSTANCE_ID"):
            self.coordinator = None

    async def leave(self) -> None:
        """In order, as far as it is heard."""
        epoch = LEAVE if self.instance is None or self.random.random() < 0.5 else LEAVE_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance
        )
        await self.ask_coordinator(request, HEARTBEAT_VERSION)
        self.die()


class Consumers(GroupWorkload):
    """A partition has one owner at a time, and who had it before commits nothing for it any more; what was committed
    never goes back; in the end all members share all partitions.
    """

    kind = "consumers"
    session_ms = SESSION_MS
    journal: ConsumerJournal

    def make_journal(self) -> ConsumerJournal:
        """See GroupWorkload."""
        return ConsumerJournal(self.log, self.fail)

    def member(self, ways: Connections, topic_id: bytes, instance: str | None) -> Consumer:
        """See GroupWorkload."""
        return Consumer(ways, (self.topic, topic_id), self.journal, instance)
