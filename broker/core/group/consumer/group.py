"""A consumer group of KIP-848: epochs, members, target assignment, and who has which partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.consumer.member import (
    GONE,
    NEW_MEMBER,
    NO_SUBSCRIPTION,
    NO_TARGET,
    ConsumerMember,
    CurrentAssignment,
    Owned,
    Subscription,
    Target,
)
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.broker.core.group.consumer.state import ConsumerGroupState, MemberState
from raftlog.broker.core.group.group import Committer, Group, PartitionCheck
from raftlog.broker.core.group.member import MemoryBudget, size_of
from raftlog.broker.core.group.records import CommittedOffset, CoordinatorRecord
from raftlog.broker.core.group.subscription import CONSUMER_PROTOCOL_TYPE
from raftlog.wire.errors import ErrorCode

# From this version of OffsetCommit on its epoch may be that of a member of this protocol.
MEMBER_EPOCH_FROM = 9
TOPIC_BYTES = 64
"""What a name of a topic takes in a subscription beside its text, about."""


class ConsumerGroup(Group):
    """One consumer group.

    Durable: all but `checked_epoch`. Only `replay` changes it; the other fields are derived from
    the records there.

    Invariants:
    - a partition is in the hands of one member at most, be it assigned or to be given up;
    - no member's epoch is above the target assignment's, nor that above the group's;
    - each instance id stands for one member;
    - what is counted (topics, patterns, assignors, classic members) is what the members say.
    """

    __slots__ = (
        "assignor_votes",
        "checked_epoch",
        "classic_members_count",
        "classic_protocols",
        "epoch",
        "has_partition_metadata",
        "members",
        "memory",
        "owners",
        "regex_subscribers",
        "resolved",
        "static_members",
        "target",
        "target_epoch",
        "topic_subscribers",
    )

    group_type = "consumer"

    def __init__(self, group_id: str, memory: MemoryBudget, offsets: CommittedOffsets | None = None) -> None:
        """`memory` counts the members of other groups too."""
        super().__init__(group_id, offsets)
        self.memory = memory
        self.epoch = GroupEpoch(1, 0)
        self.target_epoch = TargetEpoch(1, 0)
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Target] = {}
        # pattern -> the topics that it matched; a pattern that is new is not here yet
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False

        # group.instance.id -> member id
        self.static_members: dict[str, str] = {}
        # topic id -> partition -> the id of the member that has it
        self.owners: dict[bytes, dict[int, str]] = {}
        # topic -> how many members name it, and how many patterns match it
        self.topic_subscribers: Counter[str] = Counter()
        self.regex_subscribers: Counter[str] = Counter()
        self.assignor_votes: Counter[str] = Counter()
        # protocol -> how many of the members that use the classic protocol support it
        self.classic_protocols: Counter[str] = Counter()
        self.classic_members_count = 0

        # The group epoch since which no topic of the group has changed; None when one may have.
        self.checked_epoch: int | None = None

    # --- what is asked of every group

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch.epoch > self.target_epoch.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.current.is_reconciled_to(self.target_epoch.epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_awaited(self) -> bool:
        return False

    @property
    def is_unused(self) -> bool:
        """A group that has records is removed by records."""
        return False

    def check_commit(self, committer: Committer) -> ErrorCode:
        """A member may in its epoch, and in an older one for partitions that it has had since (see
        `partition_check`); anybody may while there are no members."""
        member_id, instance_id, epoch, api_version, is_transactional = committer
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not member.uses_classic_protocol and api_version < MEMBER_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._stale(member, is_transactional) if epoch > member.epoch else ErrorCode.NONE

    def partition_check(self, committer: Committer) -> PartitionCheck | None:
        """Who is behind may commit for what it has had since the epoch that it is in (KIP-1251)."""
        member = self.members.get(committer.member_id)
        if member is None or committer.generation == member.epoch:
            return None

        def check(topic_id: bytes, partition: int) -> ErrorCode:
            since = member.current.epoch_of(topic_id, partition)
            if since is None or committer.generation < since:
                return self._stale(member, committer.is_transactional)
            return ErrorCode.NONE

        return check

    @staticmethod
    def _stale(member: ConsumerMember, is_transactional: bool = False) -> ErrorCode:
        if member.uses_classic_protocol or is_transactional:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """A member may in its epoch; who does not say to be one may always."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else self._stale(member)

    def check_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_subscribers

    def unused_since_ms(self, topic: str, known: CommittedOffset) -> int | None:
        """Since the commit, when no member consumes the topic."""
        return None if topic in self.topic_subscribers else known.commit_timestamp_ms

    def removals(self) -> list[CoordinatorRecord]:
        """In the order that Kafka asks for when it reads them."""
        group_id = self.group_id
        return [
            *(CurrentRecord(group_id, member_id, None) for member_id in self.members),
            *(TargetRecord(group_id, member_id, None) for member_id in self.members),
            TargetEpochRecord(group_id, None),
            *(MemberRecord(group_id, member_id, None) for member_id in self.members),
            *(RegexRecord(group_id, regex, None) for regex in self.resolved),
            PartitionMetadataRecord(group_id, None),
            GroupEpochRecord(group_id, None),
        ]

    def contents(self) -> list[ConsumerGroupRecord]:
        """All records that make up the group as it is, in the order in which Kafka writes those of a new group."""
        group_id = self.group_id
        return [
            *(MemberRecord(group_id, member.member_id, member.subscription) for member in self.members.values()),
            GroupEpochRecord(group_id, self.epoch),
            *(TargetRecord(group_id, member_id, target) for member_id, target in self.target.items()),
            TargetEpochRecord(group_id, self.target_epoch),
            *(CurrentRecord(group_id, member.member_id, member.current) for member in self.members.values()),
            *(RegexRecord(group_id, regex, resolved) for regex, resolved in self.resolved.items()),
        ]

    # --- members and topics

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Target:
        """What the member is to have."""
        return self.target.get(member_id, NO_TARGET)

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether no member has the partition."""
        return partition not in self.owners.get(topic_id, ())

    def topics_of(self, subscription: Subscription) -> Iterator[str]:
        """The topics that a member consumes, some perhaps twice; a pattern that is not resolved yet matches none."""
        yield from subscription.topics
        resolved = self.resolved.get(subscription.regex or "")
        if resolved is not None:
            yield from resolved.topics

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether some of what the member is to have is still in the hands of others."""
        if member.current.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        assigned = member.current.assigned
        return any(
            partition not in assigned.get(topic_id, ()) and not self.is_free(topic_id, partition)
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    def preferred_assignor(self, votes: Mapping[str, int] | None = None) -> str | None:
        """The assignor that most members ask for; None when nobody asks for one."""
        counted = self.assignor_votes if votes is None else votes
        return max(sorted(counted), key=lambda name: counted[name], default=None)

    def needs_metadata_check(self) -> bool:
        """Whether topics of the group may have changed; also when the write that took notice of it has failed."""
        return self.checked_epoch is None or self.epoch.epoch < self.checked_epoch

    @property
    def member_bytes(self) -> int:
        """What the members take of the memory for members."""
        return sum(size_of_member(member_id, member.subscription) for member_id, member in self.members.items())

    # --- replay

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a record that is in the log; the removal of the group itself is the shard's."""
        match record:
            case GroupEpochRecord(_, value):
                self.epoch = GroupEpoch(1, 0) if value is None else value
            case PartitionMetadataRecord(_, is_there):
                self.has_partition_metadata = bool(is_there)
            case MemberRecord(_, member_id, subscription):
                self._replay_member(member_id, subscription)
            case TargetEpochRecord(_, target_epoch):
                self.target_epoch = TargetEpoch(-1, 0) if target_epoch is None else target_epoch
            case TargetRecord(_, member_id, target):
                if target is None:
                    self.target.pop(member_id, None)
                else:
                    self.target[member_id] = target
            case CurrentRecord(_, member_id, current):
                self._replay_current(member_id, current)
            case RegexRecord(_, regex, resolved):
                self._replay_regex(regex, resolved)
            case _:
                assert_never(record)

    def _replay_member(self, member_id: str, subscription: Subscription | None) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._count(member_id, member.subscription, -1)
            if self.static_members.get(member.instance_id or "") == member_id:
                del self.static_members[member.instance_id or ""]
        if subscription is None:
            if member is not None:
                self._disown(member)
                del self.members[member_id]
            return
        self._count(member_id, subscription, 1)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id
        current = NEW_MEMBER if member is None else member.current
        self.members[member_id] = ConsumerMember(member_id, subscription, current)

    def _count(self, member_id: str, subscription: Subscription, step: int) -> None:
        self.memory.used += step * size_of_member(member_id, subscription)
        _add(self.topic_subscribers, subscription.topics, step)
        if subscription.regex:
            _add(self.regex_subscribers, (subscription.regex,), step)
        if subscription.assignor is not None:
            _add(self.assignor_votes, (subscription.assignor,), step)
        if subscription.classic is not None:
            self.classic_members_count += step
            _add(self.classic_protocols, {name: None for name, _ in subscription.classic.protocols}, step)

    def _replay_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        member = self.members.get(member_id)
        if member is None:
            if current is None:
                return
            member = ConsumerMember(member_id)
            self._count(member_id, NO_SUBSCRIPTION, 1)
        self._disown(member)
        member = self.members[member_id] = member._replace(current=GONE if current is None else current)
        for owned in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in owned.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _disown(self, member: ConsumerMember) -> None:
        """The member has nothing any more. What somebody else has meanwhile, stays."""
        for owned in (member.current.assigned, member.current.revoking):
            self._disown_partitions(member.member_id, owned)

    def _disown_partitions(self, member_id: str, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            owners = self.owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self.owners[topic_id]

    def _replay_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.resolved.pop(regex, None)
        if before is not None:
            _add(self.topic_subscribers, before.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            _add(self.topic_subscribers, resolved.topics, 1)

    # --- checks

    def promises(self) -> Iterator[tuple[str, bool]]:
        """See Group."""
        members = self.members.values()
        owners: dict[bytes, dict[int, str]] = {}
        twice = [
            (partition, member_id)
            for topic_id, partition, member_id in self._ownerships()
            if owners.setdefault(topic_id, {}).setdefault(partition, member_id) != member_id
        ]
        yield (f"others have these, too: {twice}" if twice else "owners"), not twice
        ahead = [member.member_id for member in members if member.epoch > max(self.target_epoch.epoch, 0)]
        yield (f"{ahead} are ahead of the target" if ahead else "epochs"), not ahead
        yield "owners", self.owners == owners
        yield "the target is ahead of the group", self.target_epoch.epoch <= self.epoch.epoch
        static_members = {member.instance_id: member.member_id for member in members if member.instance_id is not None}
        yield "static members", self.static_members == static_members
        yield from self._counts()
        # Of a target that went into the log in several batches, some may be missing yet.
        if self.epoch.epoch <= self.target_epoch.epoch:
            wanted = [(t, p) for target in self.target.values() for t, partitions in target.items() for p in partitions]
            yield "a partition is meant for two", len(wanted) == len(set(wanted))

    def _ownerships(self) -> Iterator[tuple[bytes, int, str]]:
        for member in self.members.values():
            for owned in (member.current.assigned, member.current.revoking):
                for topic_id, partitions in owned.items():
                    yield from ((topic_id, partition, member.member_id) for partition in partitions)

    def _counts(self) -> Iterator[tuple[str, bool]]:
        subscriptions = [member.subscription for member in self.members.values()]
        topics = Counter(topic for subscription in subscriptions for topic in subscription.topics)
        topics.update(topic for resolved in self.resolved.values() for topic in resolved.topics)
        yield "topics", self.topic_subscribers == topics
        yield "patterns", self.regex_subscribers == Counter(s.regex for s in subscriptions if s.regex)
        votes = Counter(s.assignor for s in subscriptions if s.assignor is not None)
        yield "votes for assignors", self.assignor_votes == votes
        classic = [s.classic for s in subscriptions if s.classic is not None]
        yield "classic members", self.classic_members_count == len(classic)
        yield "protocols", self.classic_protocols == Counter(p for c in classic for p in dict(c.protocols))


def size_of_member(member_id: str, said: Subscription) -> int:
    """How much a member counts for in the memory for members, in bytes."""
    protocols = () if said.classic is None else said.classic.protocols
    size = size_of(protocols, member_id, said.instance_id, said.rack_id, said.client_id, said.regex, said.assignor)
    return size + sum(TOPIC_BYTES + len(topic) for topic in said.topics)


def _add(counts: Counter[str], names: Iterable[str], step: int) -> None:
    for name in names:
        counts[name] += step
        if not counts[name]:
            del counts[name]
