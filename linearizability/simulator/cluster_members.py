"""Members of a classic consumer group while faults happen: they join, sync, commit, leave, die and come back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.linearizability.simulator.cluster_client import Connections
from raftlog.linearizability.simulator.cluster_groups import PARTITIONS, Coordinated, GroupJournal
from raftlog.linearizability.simulator.cluster_topics import TopicWorkload
from raftlog.linearizability.simulator.cluster_workloads import WorkloadContext, name_of
from raftlog.linearizability.simulator.kafka_port import Unanswered
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 5
SESSION_MS = 800
REBALANCE_MS = 1500
MEMBERS = 3
LOST = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "ILLEGAL_GENERATION", "INCONSISTENT_GROUP_PROTOCOL")
SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "50"}


@dataclass
class Membership:
    """What a member knows of itself. `instance`: of a static member."""

    name: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: tuple[int, ...] = ()
    positions: dict[int, int] = field(default_factory=dict)

    def forget(self) -> None:
        """It is no member any more."""
        self.member_id, self.generation, self.owned = "", -1, ()


class Member(Coordinated):
    """One consumer, which may have several lives."""

    def __init__(self, ways: Connections, group: str, topic: str, journal: GroupJournal, instance: str | None) -> None:
        super().__init__(ways, group, topic, journal)
        self.me = Membership(ways.name, instance)

    async def step(self) -> None:
        """Whatever is due: joining, a heartbeat, a commit."""
        me = self.me
        if not me.member_id or me.generation < 0:
            await self._join()
        elif self.random.random() < 0.6 and me.owned:
            await self._commit(self.random.choice(me.owned))
        else:
            await self._heartbeat()

    async def _join(self) -> None:
        me = self.me
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=me.member_id,
            group_instance_id=me.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        answer = await self.ask_coordinator(request, JOIN_VERSION, REBALANCE_MS / 1000 + 2.0)
        if answer is None:
            return
        code = name_of(answer.error_code)
        if code == "MEMBER_ID_REQUIRED":
            me.member_id = answer.member_id
        elif code == "NONE":
            me.member_id, me.generation, me.owned = answer.member_id, answer.generation_id, ()
            members = sorted(member.member_id for member in answer.members) if answer.leader == me.member_id else []
            await self._sync(members)
        else:
            self.refused(code)

    async def _sync(self, members: list[str]) -> None:
        me = self.me
        shares: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(PARTITIONS if members else 0):
            shares[members[partition % len(members)]].append(partition)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=me.generation,
            member_id=me.member_id,
            group_instance_id=me.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=bytes(s)) for m, s in shares.items()],
        )
        answer = await self.ask_coordinator(request, SYNC_VERSION, REBALANCE_MS / 1000 + 2.0)
        code = name_of(answer.error_code if answer is not None else None)
        if code != "NONE":
            me.generation = -1
            self.refused(code)
            return
        self.journal.assigned(me.generation, me.instance or me.member_id, tuple(answer.assignment))
        generation = me.generation
        positions = await self.positions(list(answer.assignment))
        if positions is not None and me.generation == generation:
            me.positions, me.owned = positions, tuple(answer.assignment)

    async def _heartbeat(self) -> None:
        me = self.me
        request = HeartbeatRequest(
            group_id=self.group, generation_id=me.generation, member_id=me.member_id, group_instance_id=me.instance
        )
        answer = await self.ask_coordinator(request, HEARTBEAT_VERSION)
        if answer is not None:
            self.refused(name_of(answer.error_code))

    async def _commit(self, partition: int) -> None:
        me = self.me
        code = await self.commit(partition, me.generation, me.member_id, me.instance)
        if code is not None:
            self.refused(code)

    def refused(self, code: str) -> None:
        """What the coordinator says to us, if it is no refusal too."""
        if code == "REBALANCE_IN_PROGRESS":
            self.me.generation, self.me.owned = -1, ()
        elif code in LOST:
            self.me.forget()
        elif code != "NONE":
            self.coordinator = None

    async def leave(self) -> None:
        """In order, as far as it is heard."""
        me = self.me
        if me.member_id:
            identity = MemberIdentity(member_id=me.member_id, group_instance_id=me.instance)
            await self.ask_coordinator(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE_VERSION)
        me.forget()


class Members(TopicWorkload):
    """One owner for each partition in each generation; who is not of the generation commits nothing; what was
    committed never goes back; in the end all members share all partitions.
    """

    kind = "members"

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self.journal = GroupJournal(self.log, self.fail)
        self.members: list[Member] = []
        self.hunted = [(GROUP_TOPIC, 0)]

    async def run(self) -> None:
        """See Workload."""
        await self.create({}, partitions=PARTITIONS)
        for number in range(MEMBERS):
            instance = f"instance{number}" if self.random.random() < 0.4 else None
            ways = self.context.ways(f"{self.topic}.{number}")
            self.members.append(Member(ways, self.topic, self.topic, self.journal, instance))
        await asyncio.gather(*[self._live(member) for member in self.members])
        self.counts.update(self.journal.counts)

    async def _live(self, member: Member) -> None:
        random = member.random
        while not self._settled():
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
                member.me.forget()
                await asyncio.sleep(1.5 * random.random())
            elif rng < 0.08:
                self.count("members that stood still")
                await asyncio.sleep((0.5 + 2.0 * random.random()) * SESSION_MS / 1000)

    def _settled(self) -> bool:
        """All are in one generation, and have all partitions."""
        if not self.context.calm():
            return False
        members = [member.me for member in self.members]
        owned = sorted(partition for me in members for partition in me.owned)
        return len({me.generation for me in members}) == 1 and owned == list(range(PARTITIONS))

    def judge(self) -> None:
        """See Workload."""
        self.journal.judge()
