"""The groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.member import Member, MemoryBudget
from raftlog.broker.core.group.records import CoordinatorRecord, GroupRecord, OffsetRecord, TopicOffsets
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.timers import TimerQueue
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import ProducerId


class GroupCoordinatorShard:
    """Groups by id.

    Durable state changes in `replay` alone, on the leader as while loading, in the order of the log. A write is
    replayed as soon as it is appended, so what follows is decided on what the log says; answers wait until it is
    committed. If the broker loses the partition before that, the shard is thrown away, and the next leader loads what
    was committed.
    """

    __slots__ = ("_transactions", "config", "groups", "memory", "timers")

    def __init__(self, config: GroupConfig, memory: MemoryBudget) -> None:
        """`memory` counts the members of all shards of a broker."""
        self.config = config
        self.groups: dict[str, Group] = {}
        self.memory = memory
        self.timers = TimerQueue()
        # The groups in which a producer's open transaction has written.
        self._transactions: dict[ProducerId, dict[str, None]] = {}

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
            case _:
                assert_never(record)

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
        self.discard_if_unused(group)

    def check_invariants(self) -> None:
        """Raise AssertionError when the shard contradicts itself (tests and simulator)."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id
            group.offsets.check_invariants()
            group.check_invariants()
            for producer_id in group.offsets.pending.producers():
                assert group_id in self._transactions.get(producer_id, ()), f"{group_id}: {producer_id} never ends"
        for group in self.classic_groups():
            group_id = group.group_id
            for member in group.members.values():
                assert member.session.is_set or member.is_waiting, f"group {group_id}: {member} never expires"
            joining = group.state is GroupState.PREPARING_REBALANCE
            assert group.join_timer.is_set == joining, f"group {group_id}: join timer in {group.state.value}"
            assert group.sync_timer.is_set == bool(group.pending_syncs), f"group {group_id}: sync timer"
            assert all(timer.is_set for timer in group.pending_joins.values()), f"group {group_id}: pending joins"
