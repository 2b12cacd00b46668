"""The groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.member import Member, MemoryBudget
from raftlog.broker.core.group.records import CoordinatorRecord, OffsetRecord
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.timers import TimerQueue


class GroupCoordinatorShard:
    """Groups by id.

    Durable state changes in `replay` alone, on the leader as while loading, in the order of the log. A write is
    replayed as soon as it is appended, so what follows is decided on what the log says; answers wait until it is
    committed. If the broker loses the partition before that, the shard is thrown away, and the next leader loads what
    was committed.
    """

    __slots__ = ("config", "groups", "index", "memory", "timers")

    def __init__(self, config: GroupConfig, memory: MemoryBudget) -> None:
        """`memory` counts the members of all shards of a broker."""
        self.config = config
        self.groups: dict[str, Group] = {}
        self.memory = memory
        self.timers = TimerQueue()

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record that is in the log."""
        if isinstance(record, OffsetRecord):
            self._replay_offset(record)
            return
        group = self.group(record.group_id)
        group.stored = record.value
        if record.value is None and group.state is GroupState.EMPTY:
            group.generation = 0
            group.protocol_type = None
            self.discard_if_unused(group)

    def _replay_offset(self, record: OffsetRecord) -> None:
        group_id, topic, partition, value = record
        group = self.groups.get(group_id)
        if value is not None:
            if group is None:
                # A consumer that stores offsets here and is no member of anything: a group without a protocol type.
                group = self.group(group_id)
            partitions = group.offsets.get(topic)
            if partitions is None:
                partitions = group.offsets[topic] = {}
            partitions[partition] = value
        elif group is not None and (partitions := group.offsets.get(topic)) is not None:
            # The group stays, even if this was all it had, until somebody deletes it or it is found to have expired.
            partitions.pop(partition, None)
            if not partitions:
                del group.offsets[topic]

    def group(self, group_id: str) -> Group:
        """The group; made if it is not there."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.memory)
        return group

    def discard_if_unused(self, group: Group) -> None:
        """Forget a group that has neither members nor anything stored."""
        if group.is_unused:
            del self.groups[group.group_id]

    def keep_alive(self, member: Member, now: Now) -> None:
        """Begin the member's session time-out anew."""
        self.timers.set(member.session, now.monotonic_ms + member.session_timeout_ms)

    def restore(self, group: Group, now: Now) -> None:
        """Bring back the soft state of a group that was loaded; its members have a session time-out to be heard."""
        group.restore()
        for member in group.members.values():
            self.keep_alive(member, now)
        self.discard_if_unused(group)

    def check_invariants(self) -> None:
        """Raise AssertionError when the shard contradicts itself (tests and simulator)."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id
            assert all(group.offsets.values()), f"group {group_id}: a topic without offsets"
            group.check_invariants()
            for member in group.members.values():
                assert member.session.is_set or member.is_waiting, f"group {group_id}: {member} never expires"
            joining = group.state is GroupState.PREPARING_REBALANCE
            assert group.join_timer.is_set == joining, f"group {group_id}: join timer in {group.state.value}"
            assert group.sync_timer.is_set == bool(group.pending_syncs), f"group {group_id}: sync timer"
            assert all(timer.is_set for timer in group.pending_joins.values()), f"group {group_id}: pending joins"
