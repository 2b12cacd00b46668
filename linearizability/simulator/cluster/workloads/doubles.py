"""Two processes with one `group.instance.id`, as after a careless deployment, and one that commits for their group from
outside, while faults happen.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from raftlog.linearizability.simulator.cluster.client import ANSWER_SECONDS, Connections, History
from raftlog.linearizability.simulator.cluster.workloads.groups import COMMIT_VERSION, Coordinated, GroupJournal
from raftlog.linearizability.simulator.cluster.workloads.members import Member, Members
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext, name_of
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

SHARED = (0, 1)
"""The places of the two."""


class Joined(NamedTuple):
    """A member joined under an instance id, asked for then, and had its share of the partitions."""

    instance: str
    member_id: str
    asked: int
    had: int


class Spell(NamedTuple):
    """A member was in a generation from the first time to the last, both as the coordinator has said."""

    first: int
    last: int


class Doubles(Members):
    """As `members`; who was replaced under its instance id commits nothing any more; nobody commits from outside while
    the group has a member. In the end each has an instance id of its own.
    """

    kind = "doubles"
    static = 1.0

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.joined: list[Joined] = []
        self.spells: dict[tuple[str, int], Spell] = {}
        self.taken: list[tuple[int, int]] = []
        """When a commit from outside was sent, and answered."""

    async def run(self) -> None:
        """See Workload."""
        await asyncio.gather(super().run(), self._commit_from_outside())

    def member(self, ways: Connections, topic_id: bytes, instance: str | None) -> Member:
        """See GroupWorkload."""
        return Double(self, ways, instance)

    def joining(self, place: int) -> Member:
        """See GroupWorkload: the two have one id, as long as there are faults."""
        if place in SHARED:
            self.instances[place] = f"instance{place if self.context.calm() else SHARED[0]}"
        member = super().joining(place)
        assert isinstance(member, Member)
        return member

    async def between(self, place: int) -> None:
        """See GroupWorkload."""
        if self.context.calm() and self.instances[place] != f"instance{place}":
            self.members[place] = self.joining(place)

    def had(self, joined: Joined) -> None:
        """A member has its share."""
        self.count("members with an instance id of another")
        self.joined.append(joined)

    def is_there(self, member_id: str, generation: int, call: int) -> None:
        """The coordinator takes it, asked then, for a member of the generation."""
        known = self.spells.get((member_id, generation))
        self.spells[member_id, generation] = Spell(known.first if known else self.log.now(), call)

    def check_commit(self, instance: str | None, member_id: str, call: int) -> None:
        """A commit that was sent then is taken."""
        own = max((each.had for each in self.joined if each.member_id == member_id), default=-1)
        for other in self.joined:
            if other.instance == instance and other.member_id != member_id and own < other.asked and other.had < call:
                self.fail("fencing", f"{member_id} commits as {instance}, which is {other} by now")

    async def _commit_from_outside(self) -> None:
        ways = self.context.ways(f"{self.topic}.outside")
        outside = Coordinated(ways, self.topic, self.topic, GroupJournal(self.log, self.fail))
        offset = 0
        while not self.context.calm():
            await asyncio.sleep(0.1 + 0.3 * ways.random.random())
            offset += 1
            # Of a partition that no member has: what comes of it is nobody's business.
            wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
            topics = [OffsetCommitRequestTopic(name=self.context.topic, partitions=[wanted])]
            call = self.log.now()
            answer = await outside.ask_coordinator(
                OffsetCommitRequest(group_id=self.topic, topics=topics), COMMIT_VERSION, ANSWER_SECONDS
            )
            code = name_of(answer.topics[0].partitions[0].error_code if answer is not None else None)
            if code == "NONE":
                self.taken.append((call, self.log.now()))
            elif code != "UNKNOWN_MEMBER_ID":
                outside.coordinator = None
            self.count(f"commits from outside answered {code}")

    def judge(self) -> None:
        """See Workload."""
        super().judge()
        for call, returned in self.taken:
            for member, spell in self.spells.items():
                if spell.first < call and returned < spell.last:
                    self.fail("fencing", f"a commit from outside is taken at {call}, and {member} was there: {spell}")


class Double(Member):
    """One of the members, whose workload is told what it hears."""

    def __init__(self, workload: Doubles, ways: Connections, instance: str | None) -> None:
        super().__init__(ways, workload.topic, workload.journal, instance)
        self._workload = workload
        self._asked = 0
        self._log: History = workload.log

    async def _join(self) -> None:
        self._asked = self._log.now()
        await super()._join()

    def given(self, partitions: tuple[int, ...], asked: int) -> None:
        """See Member."""
        super().given(partitions, asked)
        if self.instance is not None:
            self._workload.had(Joined(self.instance, self.member_id, self._asked, self._log.now()))
        self._workload.is_there(self.member_id, self.generation, asked)

    async def commit(self, partition: int, generation: int, member_id: str, instance: str | None) -> str | None:
        """See Coordinated."""
        call = self._log.now()
        code = await super().commit(partition, generation, member_id, instance)
        if code == "NONE":
            self._workload.check_commit(instance, member_id, call)
            self._workload.is_there(member_id, generation, call)
        return code
