"""A group that goes from the classic to the consumer protocol and back, while its members are replaced one by one and
faults happen (KIP-848).
"""

from __future__ import annotations

import asyncio

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.workloads.consumers import Consumer, ConsumerJournal
from raftlog.linearizability.simulator.cluster.workloads.groups import GroupMember, GroupWorkload
from raftlog.linearizability.simulator.cluster.workloads.members import SESSION_MS, Member
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext
from raftlog.wire.messages.list_groups import ListGroupsRequest

LIST_VERSION = 5
PROTOCOLS = (Member.protocol, Consumer.protocol)


class Migrant(Member):
    """A member of the classic protocol in a group that may be of the other one."""

    journal: ConsumerJournal

    def given(self, partitions: tuple[int, ...], asked: int) -> None:
        """See Member."""
        for partition in partitions:
            self.journal.granted(self.instance or self.member_id, self.generation, partition, asked)


class Migrations(GroupWorkload):
    """Who has lost a partition to another commits nothing for it any more, whichever protocols both speak; what was
    committed never goes back; in the end all members share all partitions, and the group is of their protocol.
    """

    kind = "migrations"
    session_ms = SESSION_MS
    journal: ConsumerJournal

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self._wanted = self.random.choice(PROTOCOLS)
        self._is_replacing = False

    async def run(self) -> None:
        """See Workload."""
        await super().run()
        while await self._protocol_of_group() != self._wanted:
            await asyncio.sleep(0.1)

    def make_journal(self) -> ConsumerJournal:
        """See GroupWorkload."""
        return ConsumerJournal(self.log, self.fail)

    def member(self, ways: Connections, topic_id: bytes, instance: str | None) -> GroupMember:
        """See GroupWorkload: one that speaks the protocol to which the group goes."""
        if self._wanted == Consumer.protocol:
            return Consumer(ways, (self.topic, topic_id), self.journal, instance)
        return Migrant(ways, self.topic, self.journal, instance)

    def is_agreed(self) -> bool:
        """See GroupWorkload."""
        return super().is_agreed() and all(member.protocol == self._wanted for member in self.members)

    async def between(self, place: int) -> None:
        """One member after the other is replaced, until all speak the other protocol; then it goes back."""
        calm, random = self.context.calm(), self.random
        if not calm and all(member.protocol == self._wanted for member in self.members) and random.random() < 0.1:
            (self._wanted,) = (protocol for protocol in PROTOCOLS if protocol != self._wanted)
            self.count("migrations begun")
        before = self.members[place]
        if before.protocol == self._wanted or self._is_replacing or not (calm or random.random() < 0.3):
            return
        self._is_replacing = True
        self.count(f"members replaced by {self._wanted} ones")
        if random.random() < 0.7:
            await before.leave()
        else:
            before.die()
        await asyncio.sleep(0.3 * random.random())
        self.members[place] = self.joining(place)
        self._is_replacing = False

    async def _protocol_of_group(self) -> str | None:
        """As its coordinator says; None without an answer."""
        asked = self.members[0]
        answer = await asked.ask_coordinator(ListGroupsRequest(), LIST_VERSION)
        listed = answer.groups if answer is not None else []
        found = next((group.group_type for group in listed if group.group_id == self.topic), None)
        if found is None:
            # A broker that is not the coordinator any more lists what it has, and says nothing of the others.
            asked.coordinator = None
        return found
