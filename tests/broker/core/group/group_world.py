"""A shell around one GroupCoordinatorShard without sockets, disks and clocks: what the group tests drive.

Every record goes through bytes, as it would through a log.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.effects import Continuation, Effects, RegexResolution
from raftlog.broker.core.group.events import complete_write, expire, unload
from raftlog.broker.core.group.join import join
from raftlog.broker.core.group.leave import leave
from raftlog.broker.core.group.member import MEMBER_BYTES, MemoryBudget, Ticket
from raftlog.broker.core.group.records import CoordinatorRecord, decode_record, encode_record
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.sync import heartbeat, sync
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "group"
START_WALL_MS = 1_700_000_000_000
JOIN_VERSION = 9
SYNC_VERSION = 5


def subscription(*topics: str, version: int = 0) -> bytes:
    """A ConsumerProtocolSubscription."""
    names = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", version, len(topics)) + names + pack(">i", -1)


class World:
    """One shard, its log, its clock, and all answers by ticket."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        hold_commits: bool = False,
        image: MetadataImage | None = None,
        settings: ConsumerGroupSettings | None = None,
    ) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.settings = settings or ConsumerGroupSettings()
        self.shard = GroupCoordinatorShard(
            self.config, MemoryBudget(), image or MetadataImage(), lambda image, group_id: self.settings
        )
        self.monotonic_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self.tickets = 0
        self.ids = 0
        self.hold_commits = hold_commits
        self.uncommitted: list[Continuation] = []
        # What the next appends are to fail with.
        self.append_error = ErrorCode.NONE
        self.wall_ahead_ms = START_WALL_MS
        # Patterns that are to be matched with topics.
        self.resolutions: list[RegexResolution] = []
        self.assignments: list[str] = []
        # What an operator reads.
        self.notes: list[str] = []

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, self.wall_ahead_ms + self.monotonic_ms)

    # --- the shell's part

    def append(
        self, records: list[CoordinatorRecord] | tuple[CoordinatorRecord, ...], producer: ProducerId | None = None
    ) -> ErrorCode:
        if self.append_error is not ErrorCode.NONE:
            return self.append_error
        for record in records:
            key, value = encode_record(record)
            self.log.append((key, value))
            decoded = decode_record(key, value)
            assert decoded == record
            if producer is None:
                self.shard.replay(decoded)
            else:
                self.shard.replay_pending(producer, decoded)
        return ErrorCode.NONE

    def execute(self, effects: Effects) -> None:
        self.notes += [what for _, what in effects.notes]
        late = [(ticket, make()) for ticket, make in effects.late_replies]
        for ticket, response in [*effects.replies, *late]:
            assert ticket not in self.answers, f"ticket {ticket} was answered twice"
            self.answers[ticket] = response
        for records, then, appended in effects.writes:
            error = self.append(records)
            if appended is not None:
                self.execute(appended(error, self.now))
            if then is None:
                continue
            if error is not ErrorCode.NONE:
                self.execute(complete_write(self.shard, then, error, self.now))
            elif self.hold_commits:
                self.uncommitted.append(then)
            else:
                self.execute(complete_write(self.shard, then, ErrorCode.NONE, self.now))
        self.shard.remember_rebalances(effects.rebalances, self.now)
        for resolution in effects.resolutions:
            self.shard.resolving[resolution.group_id] = None
            self.resolutions.append(resolution)
        for group_id in effects.assignments:
            if group_id not in self.shard.assigning:
                self.shard.assigning[group_id] = None
                self.assignments.append(group_id)
        self.shard.check_invariants()

    def check(self) -> None:
        """What must always hold, and that members are counted while they are there and no longer."""
        self.shard.check_invariants()
        groups = list(self.shard.classic_groups())
        members = sum(member.size for group in groups for member in group.members.values())
        members += sum(group.member_bytes for group in self.shard.consumer_groups())
        assert self.shard.memory.used == members + MEMBER_BYTES * sum(len(group.pending_joins) for group in groups)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commit what was held back, or let it fail."""
        held, self.uncommitted = self.uncommitted, []
        for then in held:
            self.execute(complete_write(self.shard, then, error, self.now))

    def advance(self, ms: int) -> None:
        """Let time pass; timers expire when they are due."""
        end = self.monotonic_ms + ms
        while (look := self.shard.timers.next_look_ms()) <= end:
            self.monotonic_ms = max(look, self.monotonic_ms)
            self.execute(expire(self.shard, self.now))
        self.monotonic_ms = end

    def restarted(self) -> World:
        """What another broker makes of the log."""
        other = type(self)(
            self.config, hold_commits=self.hold_commits, image=self.shard.image, settings=self.settings
        )
        other.monotonic_ms = self.monotonic_ms
        other.log = list(self.log)
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            other.shard.replay(record)
        for group in list(other.shard.groups.values()):
            other.shard.restore(group, other.now)
        other.check()
        return other

    def unload(self) -> None:
        self.execute(unload(self.shard, self.now))

    def ticket(self) -> Ticket:
        self.tickets += 1
        return Ticket(self.tickets)

    # --- requests; each returns its ticket, `answers` has the answer when there is one

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        version: int = JOIN_VERSION,
        client_id: str = "client",
        group_id: str = GROUP,
        reason: str | None = None,
    ) -> int:
        ticket = self.ticket()
        self.ids += 1
        if protocols is None:
            protocols = {"range": subscription("t")}
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
            reason=reason,
        )
        caller = Caller(client_id, "/127.0.0.1", version, f"{self.ids:04d}")
        self.execute(join(self.shard, request, caller, ticket, self.now))
        return ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = "range",
        protocol_type: str | None = "consumer",
        version: int = SYNC_VERSION,
        group_id: str = GROUP,
    ) -> int:
        ticket = self.ticket()
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        self.execute(sync(self.shard, request, version, ticket, self.now))
        return ticket

    def heartbeat(
        self, member_id: str, generation: int, instance: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        error = heartbeat(self.shard, request, self.now)
        self.shard.check_invariants()
        return error

    def leave(self, *members: str, instance: str | None = None, group_id: str = GROUP) -> LeaveGroupResponse | None:
        ticket = self.ticket()
        identities = [MemberIdentity(member_id=member, group_instance_id=instance) for member in members]
        self.execute(leave(self.shard, group_id, identities, ticket, self.now))
        answer = self.answers.get(ticket)
        assert answer is None or isinstance(answer, LeaveGroupResponse)
        return answer

    # --- short forms for scenarios

    def state(self, group_id: str = GROUP) -> GroupState:
        group = self.shard.groups.get(group_id)
        return GroupState.DEAD if group is None else group.state

    def new_member(self, **options: Any) -> tuple[str, int]:
        """Join with the two-step handshake: the member id and the ticket of the second, delayed or answered."""
        first = self.answers[self.join(**options)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def assign(self, tickets: dict[str, int]) -> dict[str, Any]:
        """Let everybody sync, followers first; the leader gives each member its own id as assignment."""
        joined = {member: self.answers[ticket] for member, ticket in tickets.items()}
        leader = next(member for member, answer in joined.items() if answer.leader == member)
        generation = joined[leader].generation_id
        protocol = joined[leader].protocol_name
        plan = {m.member_id: m.member_id.encode() for m in joined[leader].members}
        waiting = {member: self.sync(member, generation, protocol=protocol) for member in joined if member != leader}
        waiting[leader] = self.sync(leader, generation, plan, protocol=protocol)
        return {member: self.answers.get(ticket) for member, ticket in waiting.items()}

    def stable_group(self, count: int, **options: Any) -> list[str]:
        """A stable group of `count` dynamic members, the leader first."""
        members = [self.new_member(**options)]
        for _ in range(count - 1):
            members.append(self.new_member(**options))
            generation = self.shard.groups[GROUP].generation
            for position, (member, ticket) in enumerate(members[:-1]):
                if ticket in self.answers and self.answers[ticket].generation_id == generation:
                    members[position] = (member, self.join(member, **options))
        self.assign(dict(members))
        assert self.state() is GroupState.STABLE
        return [member for member, _ in members]
