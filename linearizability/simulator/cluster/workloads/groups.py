"""What members of both group protocols do alike, and what must hold of a group whatever its protocol is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.simulator.cluster.client import ANSWER_SECONDS, Address, Connections, History
from raftlog.linearizability.simulator.cluster.kafka_port import Unanswered
from raftlog.linearizability.simulator.cluster.workloads.topics import TopicWorkload
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext, name_of
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.wire.schema import Message

PARTITIONS = 4
FIND_VERSION, COMMIT_VERSION, OFFSETS_VERSION = 4, 9, 9
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""


class GroupJournal:
    """What the members of one group were told, by generation (or the epoch of the group)."""

    def __init__(self, log: History, fail: Callable[[str, str], None]) -> None:
        self.log = log
        self.counts: Counter[str] = Counter()
        self._fail = fail
        self._owners: dict[tuple[int, int], str] = {}
        self._newest = -1
        self._newest_at = 0
        # Commits by partition, in the order of their calls.
        self._commits: list[Operation] = []

    def assigned(self, generation: int, owner: str, partitions: tuple[int, ...]) -> None:
        """A member has its partitions in a generation: nobody else may."""
        self.counts["assignments"] += 1
        for partition in partitions:
            other = self._owners.setdefault((generation, partition), owner)
            if other != owner:
                self._fail("one owner", f"partition {partition} in generation {generation}: {other} and {owner}")
        if generation > self._newest:
            self._newest, self._newest_at = generation, self.log.now()

    def begin(self, owner: str, generation: int, partition: int, offset: int) -> tuple[Operation, bool]:
        """A commit is sent; with it whether its generation is over, as some member knows."""
        operation = self.log.begin(owner, "commit", partition, {"offset": offset, "generation": generation})
        self._commits.append(operation)
        return operation, generation < self._newest and self._newest_at < operation.call

    def end(self, operation: Operation, code: str, *, is_over: bool) -> None:
        """Its answer."""
        self.log.end(operation, OK if code == "NONE" else INFO if code == "NOT_ANSWERED" else FAIL, True, code)
        if code != "NONE":
            self.counts["refused commits"] += is_over and code != "NOT_ANSWERED"
            return
        self.counts["commits of members"] += 1
        if is_over:
            self._fail("fencing", f"{operation} is taken, and generation {self._newest} had begun")

    def judge(self) -> None:
        """Committed offsets never go back: who commits has begun where the last one ended."""
        for partition in range(PARTITIONS):
            taken = [op for op in self._commits if op.key == partition and op.outcome is OK]
            for operation in sorted(taken, key=lambda op: op.call):
                earlier = [op for op in taken if op.end < operation.call]
                highest = max(earlier, key=lambda op: int(op.input["offset"]), default=None)
                if highest is not None and highest.input["offset"] > operation.input["offset"]:
                    self._fail("committed offsets", f"{operation} goes behind {highest}")


class Coordinated:
    """Who talks to a coordinator."""

    def __init__(self, ways: Connections, group: str, topic: str, journal: GroupJournal) -> None:
        self.ways = ways
        self.random = ways.random
        self.group = group
        self.topic = topic
        self.journal = journal
        self.coordinator: Address | None = None
        self._positions: dict[int, int] = {}

    async def ask_coordinator(self, request: Message, version: int, seconds: float = ANSWER_SECONDS) -> Any:
        """The answer of the coordinator, as somebody says who that is; None when there was none."""
        try:
            if self.coordinator is None:
                self.coordinator = await find_coordinator(self.ways, self.group, GROUP)
            if self.coordinator is None:
                return None
            client = await self.ways.to(self.coordinator)
            return await client.ask(request, version, seconds)
        except Unanswered:
            self.coordinator = None
            return None

    async def positions(self, partitions: list[int]) -> dict[int, int] | None:
        """The committed offset of each partition, 0 without one; None when it is not known."""
        if not partitions:
            self._positions = {}
            return {}
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=partitions)]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)], require_stable=True
        )
        answer = await self.ask_coordinator(request, OFFSETS_VERSION)
        group = answer.groups[0] if answer is not None else None
        if group is None or group.error_code or any(found.error_code for found in group.topics[0].partitions):
            self.coordinator = None
            return None
        found = {each.partition_index: max(0, each.committed_offset) for each in group.topics[0].partitions}
        self._positions = dict(found)
        return found

    async def commit(self, partition: int, generation: int, member_id: str, instance: str | None) -> str | None:
        """Commit what comes next in the partition; the answer, None without one."""
        offset = self._positions[partition] = self._positions[partition] + self.random.randint(1, 3)
        wanted = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[wanted])],
        )
        operation, is_over = self.journal.begin(instance or member_id, generation, partition, offset)
        answer = await self.ask_coordinator(request, COMMIT_VERSION)
        code = name_of(answer.topics[0].partitions[0].error_code) if answer is not None else None
        self.journal.end(operation, code or "NOT_ANSWERED", is_over=is_over)
        return code


class GroupMember(Coordinated):
    """A member of a group, of either protocol."""

    protocol = ""
    owned: Collection[int]
    generation: int

    async def step(self) -> None:
        """Whatever is next. Raises Unanswered."""
        raise NotImplementedError

    async def leave(self) -> None:
        """In order, as far as it is heard."""
        raise NotImplementedError

    def die(self) -> None:
        """Another process in its place, which knows nothing of it."""
        raise NotImplementedError


async def find_coordinator(ways: Connections, key: str, kind: int) -> Address | None:
    """Where the coordinator is, as some broker says; None when it does not know. Raises Unanswered."""
    client = await ways.some()
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    answer = await client.ask(request, FIND_VERSION, ANSWER_SECONDS)
    found = answer.coordinators[0]
    return None if found.error_code else (found.host, found.port)


class GroupWorkload(TopicWorkload):
    """Members of one group over one topic: they step, leave, die, stand still, and share all partitions in the end.

    `static`: how likely a member has an instance id. `session_ms`: after so long without a word it is given up.
    """

    members_number = 3
    static = 0.3
    session_ms = 0

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.journal = self.make_journal()
        self.members: list[GroupMember] = []
        self._topic_id = b""
        self.instances: list[str | None] = []
        self.hunted = [(GROUP_TOPIC, 0)]
        self._over = False
        self._made = 0

    def make_journal(self) -> GroupJournal:
        """What the members were told is kept in it."""
        raise NotImplementedError

    def member(self, ways: Connections, topic_id: bytes, instance: str | None) -> GroupMember:
        """One more."""
        raise NotImplementedError

    async def run(self) -> None:
        """See Workload."""
        self._topic_id = await self.create({}, partitions=PARTITIONS)
        for place in range(self.members_number):
            self.instances.append(f"instance{place}" if self.random.random() < self.static else None)
            self.members.append(self.joining(place))
        await asyncio.gather(*[self._live(place) for place in range(self.members_number)])
        self.counts.update(self.journal.counts)

    def joining(self, place: int) -> GroupMember:
        """A new process in that place."""
        self._made += 1
        ways = self.context.ways(f"{self.topic}.{place}.{self._made}")
        return self.member(ways, self._topic_id, self.instances[place])

    async def between(self, place: int) -> None:
        """What else happens there between two steps of a member."""

    async def _live(self, place: int) -> None:
        while not self._settled():
            await self.between(place)
            member = self.members[place]
            random = member.random
            try:
                await member.step()
            except Unanswered:
                member.coordinator = None
            await asyncio.sleep(0.02 + 0.15 * random.random())
            rng = random.random()
            if self.context.calm():
                continue
            if rng < 0.02:
                self.count("members that left")
                await member.leave()
                await asyncio.sleep(random.random())
            elif rng < 0.04:
                # Dead for good, and somebody new in its place: a static member comes back under its name.
                self.count("members that died")
                member.die()
                await asyncio.sleep(1.5 * random.random())
            elif rng < 0.08:
                self.count("members that stood still")
                await asyncio.sleep((0.5 + 2.0 * random.random()) * self.session_ms / 1000)

    def _settled(self) -> bool:
        """All are, or were once after the faults, in one generation and had all partitions: then all end together."""
        self._over = self._over or (self.context.calm() and self.is_agreed())
        return self._over

    def is_agreed(self) -> bool:
        """All members are in one generation and have all partitions."""
        owned = sorted(partition for member in self.members for partition in member.owned)
        return len({member.generation for member in self.members}) == 1 and owned == list(range(PARTITIONS))

    def judge(self) -> None:
        """See Workload."""
        self.journal.judge()
