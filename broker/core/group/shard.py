"""The groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import assert_never

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.assignors.assignor import Assignor
from raftlog.broker.core.group.assignors.server_side import SERVER_ASSIGNORS
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.intervals import heartbeat_interval_ms
from raftlog.broker.core.group.consumer.metadata_hash import TopicHashes
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.member import Member, MemoryBudget
from raftlog.broker.core.group.records import CoordinatorRecord, GroupRecord, OffsetRecord, TopicOffsets
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.timers import MemberTimers, Timer, TimerQueue
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import ProducerId

GroupSettings = Callable[[MetadataImage, str], ConsumerGroupSettings]
"""What is set for a consumer group, by the metadata."""

LATE_AFTER_INTERVALS = 1.5
"""A member that was silent for so many of its heartbeat intervals is late."""


class GroupCoordinatorShard:
    """Groups by id.

    Durable state changes in `replay` alone, on the leader as while loading, in the order of the log. A write is
    replayed as soon as it is appended, so what follows is decided on what the log says; answers wait until it is
    committed. If the broker loses the partition before that, the shard is thrown away, and the next leader loads what
    was committed.
    """

    __slots__ = (
        "_settings",
        "_transactions",
        "assigning",
        "config",
        "groups",
        "image",
        "memory",
        "resolving",
        "subscribers",
        "timers",
        "timers_of_members",
        "topic_hashes",
        "topics_created_version",
    )

    def __init__(
        self, config: GroupConfig, memory: MemoryBudget, image: MetadataImage, settings: GroupSettings
    ) -> None:
        """`memory` counts the members of all shards of a broker; `image` is what is known of topics (`follow`)."""
        self.config = config
        self._settings = settings
        self.groups: dict[str, Group] = {}
        self.memory = memory
        self.timers = TimerQueue()
        # The groups in which a producer's open transaction has written.
        self._transactions: dict[ProducerId, dict[str, None]] = {}
        self.image = image
        # The version of the metadata with which a topic was created last.
        self.topics_created_version = image.version
        self.topic_hashes = TopicHashes()
        # topic -> consumer groups that consume it; a dict for its order.
        self.subscribers: dict[str, dict[str, None]] = {}
        # (group id, member id) of members of consumer groups. A member that is not there any more may have some.
        self.timers_of_members: dict[tuple[str, str], MemberTimers] = {}
        # Consumer groups whose patterns are being matched with topics.
        self.resolving: dict[str, None] = {}
        # Consumer groups whose target assignment is being computed.
        self.assigning: dict[str, None] = {}

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record that is in the log."""
        match record:
            case OffsetRecord(group_id, topic, partition, value):
                if value is not None:
                    self._group_of_offsets(group_id).offsets.commit(topic, partition, value)
                elif (group := self.groups.get(group_id)) is not None:
                    # Even if this was all it had, the group stays until somebody deletes it or it is found to have
                    # expired.
                    group.offsets.remove(topic, partition)
            case TopicOffsets(group_id, topic, offsets):
                self._group_of_offsets(group_id).offsets.commit_many(topic, offsets)
            case GroupRecord():
                self._replay_group(record)
            case GroupEpochRecord(group_id, None):
                self._remove_consumer_group(group_id)
            case MemberRecord() | RegexRecord():
                self._replay_subscription(record)
            case (
                GroupEpochRecord() | PartitionMetadataRecord() | TargetEpochRecord() | TargetRecord() | CurrentRecord()
            ):
                group = self.consumer(record.group_id) if record.value is None else self._consumer_of_record(record)
                if group is not None:
                    group.replay(record)
            case _:
                assert_never(record)

    def _replay_subscription(self, record: MemberRecord | RegexRecord) -> None:
        """A record that may change which topics a consumer group consumes."""
        group_id = record.group_id
        group = self.consumer(group_id) if record.value is None else self._consumer_of_record(record)
        if group is None:
            return
        before = set(group.topic_subscribers)
        group.replay(record)
        after = group.topic_subscribers
        for topic in before:
            if topic not in after:
                self._unsubscribe(group_id, topic)
        for topic in after:
            if topic not in before:
                self.subscribers.setdefault(topic, {})[group_id] = None
        if isinstance(record, MemberRecord) and record.value is None:
            timers = self.timers_of_members.pop((group_id, record.member_id), None)
            if timers is not None:
                timers.cancel()

    def _unsubscribe(self, group_id: str, topic: str) -> None:
        groups = self.subscribers[topic]
        del groups[group_id]
        if not groups:
            del self.subscribers[topic]
            self.topic_hashes.forget(topic)

    def _consumer_of_record(self, record: ConsumerGroupRecord) -> ConsumerGroup:
        """The consumer group; made if it is not there, or in place of a classic group, with its offsets."""
        group = self.groups.get(record.group_id)
        if isinstance(group, ConsumerGroup):
            return group
        made = ConsumerGroup(record.group_id, self.memory, None if group is None else group.offsets)
        if isinstance(group, ClassicGroup):
            group.dissolve()
            made.rebalances = group.rebalances
        self.groups[record.group_id] = made
        return made

    def _remove_consumer_group(self, group_id: str) -> None:
        """The group is gone; offsets that are still there belong to a group without a protocol from now on."""
        group = self.consumer(group_id)
        if group is None:
            return
        for topic in group.topic_subscribers:
            self._unsubscribe(group_id, topic)
        for member_id in list(group.members):
            group.replay(MemberRecord(group_id, member_id, None))
        del self.groups[group_id]
        if group.offsets:
            classic = self.groups[group_id] = ClassicGroup(group_id, self.memory, group.offsets)
            classic.rebalances = group.rebalances

    def replay_pending(self, producer_id: ProducerId, record: CoordinatorRecord) -> None:
        """Apply a record of an open transaction; an offset without a value is one that was overtaken already."""
        if not isinstance(record, OffsetRecord):
            raise InvariantViolation(f"a transaction of producer {producer_id} has written {record}")
        group_id, topic, partition, value = record
        self._group_of_offsets(group_id).offsets.pending.write(producer_id, (topic, partition), value)
        self._transactions.setdefault(producer_id, {})[group_id] = None

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The marker of a transaction is in the log: its offsets count from now on, or are gone."""
        for group_id in self._transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed=committed)

    def _replay_group(self, record: GroupRecord) -> None:
        if self.consumer(record.group_id) is not None:
            # Kafka removes the records of one protocol in the write that makes those of the other, and so do we.
            return
        group = self.make_classic(record.group_id)
        group.stored = record.value
        if record.value is None and group.state is GroupState.EMPTY:
            group.generation = 0
            group.protocol_type = None
            self.discard_if_unused(group)

    def _group_of_offsets(self, group_id: str) -> Group:
        """A consumer may store offsets here and be no member of anything: a group without a protocol type."""
        return self.groups.get(group_id) or self.make_classic(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """The group; None when it is not there, or has another protocol."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """The group; None when it is not there, or has another protocol."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def make_classic(self, group_id: str) -> ClassicGroup:
        """The group; made if it is not there. Raises InvariantViolation when it has another protocol."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self.memory)
        if not isinstance(group, ClassicGroup):
            raise InvariantViolation(f"group {group_id} is of type {group.group_type}")
        return group

    def classic_groups(self) -> Iterator[ClassicGroup]:
        """All groups of the classic protocol."""
        return (group for group in self.groups.values() if isinstance(group, ClassicGroup))

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """All groups of the consumer protocol."""
        return (group for group in self.groups.values() if isinstance(group, ConsumerGroup))

    # --- what consumer groups need

    def follow(self, image: MetadataImage, changed: Iterable[str], *, has_new_topics: bool) -> None:
        """The metadata is another: groups that consume one of the topics look at it with their next heartbeat."""
        self.image = image
        if has_new_topics:
            self.topics_created_version = image.version
        for topic in changed:
            for group_id in self.subscribers.get(topic, ()):
                group = self.consumer(group_id)
                if group is not None:
                    group.checked_epoch = None

    def consumer_settings(self, group_id: str) -> ConsumerGroupSettings:
        """What is set for a consumer group."""
        return self._settings(self.image, group_id)

    def puts_off_assignment(self, group: ConsumerGroup, now: Now) -> bool:
        """Whether it is too early for another target: one for all that happens within a short time (KIP-1263)."""
        computed_ms = group.target_epoch.computed_ms
        interval_ms = self.consumer_settings(group.group_id).assignment_interval_ms
        # One that seems to come from the future was computed by a clock that has been put back since, or another's:
        # waiting for it could take for ever.
        return computed_ms != 0 and 0 <= now.wall_ms - computed_ms < interval_ms

    def assignor(self, name: str | None) -> Assignor:
        """The assignor of this name, or the one for members that name none."""
        return SERVER_ASSIGNORS[self.config.consumer_assignors[0] if name is None else name]

    def rank_members(self, group: ConsumerGroup, now: Now) -> dict[str, int]:
        """Members from low to high in the order in which they are expected to be heard of next; who is late comes last,
        for it may be gone.
        """
        settings = self.consumer_settings(group.group_id)
        ranks: dict[str, int] = {}
        for member_id, member in group.members.items():
            timeout_ms = member.session_timeout_ms(settings)
            timer = self.timers_of(group.group_id, member_id).session
            silent_ms = now.monotonic_ms - (timer.deadline_ms - timeout_ms) if timer.is_set else timeout_ms
            interval_ms = heartbeat_interval_ms(group, member_id, settings)
            is_late = silent_ms > LATE_AFTER_INTERVALS * interval_ms
            ranks[member_id] = settings.session_timeout_ms + silent_ms if is_late else interval_ms - silent_ms
        return ranks

    def timers_of(self, group_id: str, member_id: str) -> MemberTimers:
        """The timers of a member of a consumer group, which may be about to come."""
        timers = self.timers_of_members.get((group_id, member_id))
        if timers is None:
            timers = self.timers_of_members[group_id, member_id] = MemberTimers(group_id, member_id)
        return timers

    # --- soft state

    def remember_rebalances(self, rebalances: Iterable[tuple[str, int, str]], now: Now) -> None:
        """Keep for operators what has begun: (group id, epoch or generation, why)."""
        for group_id, epoch, reason in rebalances:
            group = self.groups.get(group_id)
            if group is not None:
                group.remember_rebalance(now.wall_ms, epoch, reason)

    def discard_if_unused(self, group: Group) -> None:
        """Forget a group that has neither members nor anything stored."""
        if group.is_unused:
            del self.groups[group.group_id]

    def keep_alive(self, member: Member, now: Now) -> None:
        """Begin the member's session time-out anew."""
        self.timers.set(member.session, now.monotonic_ms + member.session_timeout_ms)

    def restore(self, group: Group, now: Now) -> None:
        """Bring back the soft state of a group that was loaded; its members have a session time-out to be heard."""
        if isinstance(group, ClassicGroup):
            group.restore()
            for member in group.members.values():
                self.keep_alive(member, now)
        elif isinstance(group, ConsumerGroup):
            self._restore_consumer_group(group, now)
        self.discard_if_unused(group)

    def _restore_consumer_group(self, group: ConsumerGroup, now: Now) -> None:
        settings = self.consumer_settings(group.group_id)
        for member in group.members.values():
            timers = self.timers_of(group.group_id, member.member_id)
            self.timers.set(timers.session, now.monotonic_ms + member.session_timeout_ms(settings))
            if member.current.state is MemberState.UNREVOKED_PARTITIONS:
                timers.revoking_epoch = member.epoch
                deadline_ms = now.monotonic_ms + member.subscription.rebalance_timeout_ms
                self.timers.set(timers.rebalance, deadline_ms)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if the shard contradicts itself."""
        for group_id, group in self.groups.items():
            if group.group_id != group_id:
                raise InvariantViolation(f"group {group.group_id} under {group_id}")
            group.offsets.check_invariants()
            group.check_invariants()
            for producer_id in group.offsets.pending.producers():
                if group_id not in self._transactions.get(producer_id, ()):
                    raise InvariantViolation(f"group {group_id}: the transaction of {producer_id} never ends")
        subscribers: dict[str, dict[str, None]] = {}
        for consumer_group in self.consumer_groups():
            for topic in consumer_group.topic_subscribers:
                subscribers.setdefault(topic, {})[consumer_group.group_id] = None
            for member_id in consumer_group.members:
                timers = self.timers_of_members.get((consumer_group.group_id, member_id))
                if timers is None or not timers.session.is_set:
                    raise InvariantViolation(f"group {consumer_group.group_id}: {member_id} never expires")
        if self.subscribers != subscribers:
            raise InvariantViolation(f"consumer groups consume {subscribers}, known are {self.subscribers}")
        for classic_group in self.classic_groups():
            self._check_timers(classic_group)
        self.timers.check_invariants(self._timers())

    def _timers(self) -> Iterator[Timer]:
        """All that may be set."""
        for group in self.classic_groups():
            yield from (group.join_timer, group.sync_timer, *group.pending_joins.values())
            yield from (member.session for member in group.members.values())
        for timers in self.timers_of_members.values():
            yield from (timers.session, timers.rebalance, timers.join, timers.sync)

    @staticmethod
    def _check_timers(group: ClassicGroup) -> None:
        joining = group.state is GroupState.PREPARING_REBALANCE
        wrong = {
            "a member never expires": any(not m.session.is_set and not m.is_waiting for m in group.members.values()),
            "join timer": group.join_timer.is_set != joining,
            "sync timer": group.sync_timer.is_set != bool(group.pending_syncs),
            "a pending join never expires": not all(timer.is_set for timer in group.pending_joins.values()),
        }
        for what, is_so in wrong.items():
            if is_so:
                raise InvariantViolation(f"group {group.group_id} in {group.state.value}: {what}")
