"""Members of a classic consumer group while faults happen: they join, sync, commit, leave, die and come back."""

from __future__ import annotations

from raftlog.linearizability.simulator.cluster.client import Connections
from raftlog.linearizability.simulator.cluster.workloads.groups import (
    PARTITIONS,
    GroupJournal,
    GroupMember,
    GroupWorkload,
)
from raftlog.linearizability.simulator.cluster.workloads.workloads import name_of
from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
)
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 5
EMBEDDED_VERSION = 1
"""Of what members tell each other through the coordinator."""
SESSION_MS = 800
REBALANCE_MS = 1500
LOST = ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "ILLEGAL_GENERATION", "INCONSISTENT_GROUP_PROTOCOL")
SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "50"}


class Member(GroupMember):
    """One consumer, which may have several lives. `instance`: of a static member."""

    protocol = "classic"

    def __init__(self, ways: Connections, topic: str, journal: GroupJournal, instance: str | None) -> None:
        super().__init__(ways, topic, topic, journal)
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self._assigned: tuple[int, ...] = ()

    def die(self) -> None:
        """See GroupMember."""
        self.member_id, self.generation, self.owned = "", -1, ()

    async def step(self) -> None:
        """Whatever is due: joining, where to begin, a heartbeat, a commit."""
        if not self.member_id or self.generation < 0:
            await self._join()
        elif self.owned != self._assigned and self.random.random() < 0.6:
            await self._begin()
        elif self.random.random() < 0.6 and self.owned:
            await self._commit(self.random.choice(self.owned))
        else:
            await self._heartbeat()

    async def _join(self) -> None:
        subscription = encode_internal(ConsumerProtocolSubscription(topics=[self.topic]), EMBEDDED_VERSION)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        answer = await self.ask_coordinator(request, JOIN_VERSION, REBALANCE_MS / 1000 + 2.0)
        if answer is None:
            return
        code = name_of(answer.error_code)
        if code == "MEMBER_ID_REQUIRED":
            self.member_id = answer.member_id
        elif code == "NONE":
            self.member_id, self.generation, self.owned = answer.member_id, answer.generation_id, ()
            members = sorted(member.member_id for member in answer.members) if answer.leader == self.member_id else []
            await self._sync(members)
        else:
            self.refused(code)

    async def _sync(self, members: list[str]) -> None:
        shares: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(PARTITIONS if members else 0):
            shares[members[partition % len(members)]].append(partition)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=self._encoded(share))
                for member, share in shares.items()
            ],
        )
        asked = self.journal.log.now()
        answer = await self.ask_coordinator(request, SYNC_VERSION, REBALANCE_MS / 1000 + 2.0)
        code = name_of(answer.error_code if answer is not None else None)
        if code != "NONE":
            self.generation = -1
            self.refused(code)
            return
        self._assigned = self._decoded(answer.assignment)
        self.given(self._assigned, asked)
        await self._begin()

    async def _begin(self) -> None:
        """Own what is assigned, once it is known where to begin."""
        generation = self.generation
        positions = await self.positions(list(self._assigned))
        if positions is not None and self.generation == generation:
            self.owned = self._assigned

    def given(self, partitions: tuple[int, ...], asked: int) -> None:
        """What the answer brings to a SyncGroup that was sent then."""
        self.journal.assigned(self.generation, self.instance or self.member_id, partitions)

    def _encoded(self, partitions: list[int]) -> bytes:
        named = [AssignmentTopicPartition(topic=self.topic, partitions=partitions)]
        return encode_internal(ConsumerProtocolAssignment(assigned_partitions=named), EMBEDDED_VERSION)

    def _decoded(self, assignment: bytes) -> tuple[int, ...]:
        named = decode_assignment(assignment).assigned_partitions if assignment else []
        return tuple(partition for each in named for partition in each.partitions)

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        answer = await self.ask_coordinator(request, HEARTBEAT_VERSION)
        if answer is not None:
            self.refused(name_of(answer.error_code))

    async def _commit(self, partition: int) -> None:
        code = await self.commit(partition, self.generation, self.member_id, self.instance)
        if code is not None:
            self.refused(code)

    def refused(self, code: str) -> None:
        """What the coordinator says to us, if it is no refusal too."""
        if code == "REBALANCE_IN_PROGRESS":
            self.generation, self.owned = -1, ()
        elif code in LOST:
            self.die()
        elif code != "NONE":
            self.coordinator = None

    async def leave(self) -> None:
        """In order, as far as it is heard."""
        if self.member_id:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
            await self.ask_coordinator(LeaveGroupRequest(group_id=self.group, members=[identity]), LEAVE_VERSION)
        self.die()


class Members(GroupWorkload):
    """One owner for each partition in each generation; who is not of the generation commits nothing; what was
    committed never goes back; in the end all members share all partitions.
    """

    kind = "members"
    static = 0.4
    session_ms = SESSION_MS

    def make_journal(self) -> GroupJournal:
        """See GroupWorkload."""
        return GroupJournal(self.log, self.fail)

    def member(self, ways: Connections, topic_id: bytes, instance: str | None) -> Member:
        """See GroupWorkload."""
        return Member(ways, self.topic, self.journal, instance)
