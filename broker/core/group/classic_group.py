"""A group of the classic protocol: its members, its generation, and what of it is durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.group import Committer, Group
from raftlog.broker.core.group.member import MEMBER_BYTES, Member, MemoryBudget, Protocols, Ticket
from raftlog.broker.core.group.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
)
from raftlog.broker.core.group.state import TRANSITIONS, GroupState
from raftlog.broker.core.group.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    UnreadableSubscription,
    subscribed_topics,
)
from raftlog.broker.core.group.timers import Timer, TimerKind
from raftlog.wire.errors import ErrorCode, InvariantViolation


class ClassicGroup(Group):
    """One group of the classic protocol.

    Durable: `stored` and `offsets`. Only `GroupCoordinatorShard` changes these two, by what is in the log. All else is
    soft: it is rebuilt from `stored` after a restart, with every member given a whole session time-out to come back.

    Invariants:
    - members wait for a join answer only in PreparingRebalance, or in Stable while a static member is being replaced;
      they wait for a sync answer only in CompletingRebalance;
    - Empty means no members; in every other state there is a protocol type, and a leader as soon as there is a member;
    - at least one protocol is supported by every member;
    - a member id is pending or a member's, never both; each instance id stands for one member.
    """

    __slots__ = (
        "awaiting_join_count",
        "generation",
        "initial_delay_ms",
        "initial_remaining_ms",
        "join_timer",
        "leader",
        "members",
        "memory",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_support",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "stored",
        "subscribed",
        "sync_timer",
    )

    group_type = "classic"

    def __init__(self, group_id: str, memory: MemoryBudget, offsets: CommittedOffsets | None = None) -> None:
        """`memory` counts the members of other groups too."""
        super().__init__(group_id, offsets)
        self.memory = memory
        self.stored: GroupMetadata | None = None

        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        # When the state was entered, ms since 1970; -1 when not known.
        self.state_timestamp_ms = -1
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        # group.instance.id -> member id
        self.static_members: dict[str, str] = {}
        # Ids given out and not yet joined with (KIP-394), each with the time at which it is forgotten.
        self.pending_joins: dict[str, Timer] = {}
        # Members of this generation that have not sent SyncGroup; a dict for its order.
        self.pending_syncs: dict[str, None] = {}
        self.awaiting_join_count = 0
        # protocol -> how many members support it
        self.protocol_support: Counter[str] = Counter()
        # Topics that the members consume; None when that cannot be known.
        self.subscribed: frozenset[str] | None = None
        # The first rebalance is put off while members keep coming (group.initial.rebalance.delay.ms).
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.join_timer = Timer(TimerKind.JOIN, group_id)
        self.sync_timer = Timer(TimerKind.SYNC, group_id)

    # --- states

    def transition(self, state: GroupState, now: Now) -> None:
        """Take an arrow of TRANSITIONS. Raises InvariantViolation when there is none."""
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"group {self.group_id}: {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether this is the join phase that began with the first member."""
        return self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost if the group were forgotten.

        One that has had members is about to be stored as empty, and goes when that is removed again.
        """
        return (
            self.state is GroupState.EMPTY
            and self.generation == 0
            and self.stored is None
            and not self.offsets
            and not self.pending_joins
        )

    # --- what is asked of every group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_awaited(self) -> bool:
        return bool(self.pending_joins)

    def check_commit(self, committer: Committer) -> ErrorCode:
        """A member of this generation may, and anybody while the group has no members."""
        member_id, instance_id, generation, _, is_transactional = committer
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            # Producers from before KIP-447 cannot say who they are.
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.check_member(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            # The member knows the new generation, and commits for what it had in the one before.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_delete_offsets(self) -> ErrorCode:
        """What members of another protocol type than "consumer" consume, only they know."""
        if self.state is not GroupState.EMPTY and not self.uses_consumer_protocol:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def unused_since_ms(self, topic: str, known: CommittedOffset) -> int | None:
        """Since the last member went, or somebody set the offset after that, whose commit Kafka forgets with all the
        others; for a consumer without membership, or a topic that the members do not consume (any more), since the
        commit (KIP-211)."""
        if self.state is GroupState.EMPTY:
            if self.protocol_type is not None:
                return max(self.state_timestamp_ms, known.commit_timestamp_ms)
            return known.commit_timestamp_ms
        if self.state is not GroupState.STABLE or self.subscribed is None or self.is_subscribed_to(topic):
            return None
        return known.commit_timestamp_ms

    def removals(self) -> list[CoordinatorRecord]:
        return [GroupRecord(self.group_id, None)]

    # --- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a member, which the caller has checked with `supports`. The first one sets type and leader."""
        if member.group_instance_id is not None:
            if member.group_instance_id in self.static_members:
                raise InvariantViolation(f"group {self.group_id}: {member.group_instance_id} is a member already")
            self.static_members[member.group_instance_id] = member.member_id
        self.forget_pending(member.member_id)
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go, whose delayed requests the caller has answered."""
        if member.join_ticket is not None or member.sync_ticket is not None:
            raise InvariantViolation(f"group {self.group_id}: {member} goes with an unanswered request")
        member.session.cancel()
        del self.members[member.member_id]
        self.pending_syncs.pop(member.member_id, None)
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def add_pending(self, member_id: str) -> Timer:
        """Remember a member id that is given out; the timer, to be set, after which it is forgotten."""
        timer = self.pending_joins[member_id] = Timer(TimerKind.PENDING_JOIN, self.group_id, member_id)
        self.memory.used += MEMBER_BYTES
        return timer

    def forget_pending(self, member_id: str) -> bool:
        """Take back a member id that was given out; False when there is none like it."""
        timer = self.pending_joins.pop(member_id, None)
        if timer is None:
            return False
        self.memory.used -= MEMBER_BYTES
        timer.cancel()
        return True

    def rename(self, member: Member, member_id: str) -> Member:
        """Give a static member, whose requests the caller has answered, a new id. Returns the member under it."""
        assert member.group_instance_id is not None
        renamed = Member(
            self.group_id,
            member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            protocols=member.protocols,
            assignment=member.assignment,
        )
        member.session.cancel()
        del self.members[member.member_id]
        self.members[member_id] = renamed
        self.static_members[member.group_instance_id] = member_id
        if self.leader == member.member_id:
            self.leader = member_id
        if member.member_id in self.pending_syncs:
            del self.pending_syncs[member.member_id]
            self.pending_syncs[member_id] = None
        return renamed

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Take over what a member says of itself in a new JoinGroup."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def assign(self, member: Member, assignment: bytes) -> None:
        """Give a member what it is to read."""
        self.memory.used += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def bytes_more(self, assignments: Mapping[str, bytes]) -> int:
        """How many bytes more than now these assignments take."""
        return sum(len(assignments.get(name, b"")) - len(member.assignment) for name, member in self.members.items())

    def delay_join(self, member: Member, ticket: Ticket) -> Ticket | None:
        """Delay a JoinGroup; an older one of this member, which the caller has to answer, is returned."""
        previous, member.join_ticket = member.join_ticket, ticket
        if previous is None:
            self.awaiting_join_count += 1
        return previous

    def delay_sync(self, member: Member, ticket: Ticket) -> Ticket | None:
        """Delay a SyncGroup; an older one of this member, which the caller has to answer, is returned."""
        previous, member.sync_ticket = member.sync_ticket, ticket
        return previous

    def take_join(self, member: Member) -> Ticket | None:
        """The member's delayed JoinGroup, to be answered now."""
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is not None:
            self.awaiting_join_count -= 1
        return ticket

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE when the ids are those of a member, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID (KIP-345)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        """Whether no member and no given-out member id is missing from the join phase."""
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # --- protocols

    def _count_protocols(self, member: Member, step: int) -> None:
        self.memory.used += step * member.size
        for name, _ in member.protocols:
            self.protocol_support[name] += step
            if self.protocol_support[name] == 0:
                del self.protocol_support[name]

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols fits in: same type, and one protocol that every member has."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self.protocol_support[name] == count for name in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes among those that every member supports; ties go to the earlier vote."""
        count = len(self.members)
        candidates = {name for name, supporters in self.protocol_support.items() if supporters == count}
        if not candidates:
            raise InvariantViolation(f"group {self.group_id}: members share no protocol")
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def compute_subscribed(self) -> frozenset[str] | None:
        """The topics that the members consume; None when the type is not "consumer" or metadata is unreadable."""
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            # Most members say the same.
            for metadata in dict.fromkeys(member.metadata(self.protocol) for member in self.members.values()):
                topics.update(subscribed_topics(metadata))
        except UnreadableSubscription:
            return None
        return frozenset(topics)

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, as far as the group knows."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may be consuming `topic`; consumers whose subscription is unreadable may consume anything."""
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    # --- generations

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among those who joined. False when nobody did."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_ticket is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.join_ticket is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def start_generation(self, now: Now) -> None:
        """End the join phase: count the generation up and choose its protocol."""
        self.generation += 1
        self.pending_syncs.clear()
        self.new_member_added = False
        if self.members:
            self.protocol = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol = None
            self.transition(GroupState.EMPTY, now)
        self.subscribed = self.compute_subscribed()

    # --- what is durable

    def metadata(self, assignments: dict[str, bytes]) -> GroupMetadata:
        """The group as it is to be stored, each member with its assignment, or none."""
        protocol = self.protocol
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(protocol) if protocol is not None else b"",
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def restore(self) -> None:
        """Build the soft state from `stored`, for a group that was just loaded."""
        stored = self.stored
        if stored is None:
            return
        self.state = GroupState.STABLE if stored.members else GroupState.EMPTY
        self.state_timestamp_ms = stored.state_timestamp_ms
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        for member in stored.members:
            # Values written before KIP-62 have no rebalance time-out.
            timeout_ms = member.rebalance_timeout_ms if member.rebalance_timeout_ms >= 0 else member.session_timeout_ms
            self.add(
                Member(
                    self.group_id,
                    member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=((stored.protocol or "", member.subscription),),
                    assignment=member.assignment,
                ),
                stored.protocol_type,
            )
        if stored.leader in self.members:
            self.leader = stored.leader
        self.subscribed = self.compute_subscribed()

    def dissolve(self) -> None:
        """The group goes over to another protocol: no timer of it runs any more, and its members are not counted here.
        Delayed requests are answered by whoever decided that."""
        for member in self.members.values():
            member.session.cancel()
            self._count_protocols(member, -1)
        self.members.clear()
        for member_id in list(self.pending_joins):
            self.forget_pending(member_id)
        self.join_timer.cancel()
        self.sync_timer.cancel()

    def promises(self) -> Iterator[tuple[str, bool]]:
        """See Group."""
        members = self.members.values()
        yield "members", self.state is not GroupState.EMPTY or not self.members
        yield "join count", self.awaiting_join_count == sum(m.join_ticket is not None for m in members)
        if self.state is not GroupState.PREPARING_REBALANCE:
            static_only = all(m.is_static for m in members if m.join_ticket is not None)
            yield "join", static_only and (self.state is GroupState.STABLE or not self.awaiting_join_count)
        if self.state is not GroupState.COMPLETING_REBALANCE:
            yield "a forgotten SyncGroup", all(m.sync_ticket is None for m in members)
        yield "pending syncs", self.pending_syncs.keys() <= self.members.keys()
        yield "pending joins", not self.pending_joins.keys() & self.members.keys()
        yield "leader", (self.leader in self.members) if self.members else self.leader is None
        static_members = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        yield "static members", self.static_members == static_members
        yield "protocols", self.protocol_support == Counter(p for m in members for p, _ in m.protocols)
        if self.members:
            yield "no protocol type", bool(self.protocol_type)
            yield "no common protocol", len(self.members) in self.protocol_support.values()
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            yield "no protocol", bool(self.members) and self.protocol is not None
        if self.state is GroupState.STABLE and not self.awaiting_join_count:
            yield "what is stored differs", self._is_stored()

    def _is_stored(self) -> bool:
        stored = self.stored
        if stored is None or stored.generation != self.generation:
            return False
        assigned = {m.member_id: m.assignment for m in self.members.values()}
        return {m.member_id: m.assignment for m in stored.members} == assigned
