"""What one event on a consumer group writes: its steps add records, and the group stays as it is until they are in the
log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.consumer.group import ConsumerGroup, size_of_member
from raftlog.broker.core.group.consumer.member import (
    NO_SUBSCRIPTION,
    ConsumerMember,
    CurrentAssignment,
    Subscription,
    Target,
)
from raftlog.broker.core.group.consumer.reconciliation import (
    ClaimedPartitions,
    MustRejoin,
    Reconciliation,
    reconcile,
)
from raftlog.broker.core.group.consumer.records import (
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    RegexRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.broker.core.group.consumer.target import ANSWERED_NOW, compute_target, is_large, topic_ids
from raftlog.broker.core.group.effects import Appended, Effects
from raftlog.broker.core.group.records import CoordinatorRecord
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.wire.errors import ErrorCode


class Refused(Exception):
    """The request is not carried out, and nothing is written. `note` is for an operator, who has to do something."""

    def __init__(self, error: ErrorCode, message: str, note: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.note = note


class GroupChange:
    """One event on one group. `records` are written together, or none of them; `group_epoch` is the group's epoch once
    they are. `appended` is done then, if the group takes the place of another one, or gives way to it.
    """

    __slots__ = ("appended", "effects", "group", "group_epoch", "now", "records", "shard")

    def __init__(self, shard: GroupCoordinatorShard, group: ConsumerGroup, now: Now, effects: Effects) -> None:
        """`group` is in the shard, or will be when what is in `records` by then is."""
        self.shard = shard
        self.group = group
        self.now = now
        self.effects = effects
        self.records: list[CoordinatorRecord] = []
        self.appended: Appended | None = None
        self.group_epoch = group.epoch.epoch

    def note(self, text: str) -> None:
        """Tell the operator what happens to the group."""
        self.effects.notes.append((self.group.group_id, text))

    # --- members

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member has come back, perhaps under another id, and takes over all that it had."""
        group_id = self.group.group_id
        member = ConsumerMember(member_id, old.subscription, old.current._replace(epoch=0, previous_epoch=0))
        if member_id != old.member_id:
            self.remove_member(old.member_id)
        self.records += [
            MemberRecord(group_id, member_id, member.subscription),
            TargetRecord(group_id, member_id, self.group.target_of(old.member_id)),
            CurrentRecord(group_id, member_id, member.current),
        ]
        return member

    def remove_member(self, member_id: str) -> None:
        """The records that remove a member."""
        group_id = self.group.group_id
        self.records += [
            CurrentRecord(group_id, member_id, None),
            TargetRecord(group_id, member_id, None),
            MemberRecord(group_id, member_id, None),
        ]

    def check_room(self, members_max: int, member_id: str, instance_id: str | None) -> None:
        """Raises Refused when the group may have no further member; one that restarts is none."""
        group = self.group
        if instance_id in group.static_members or member_id in group.members:
            return
        if len(group.members) >= members_max:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has {members_max} members already.")

    def check_memory(self, member_id: str, before: Subscription, after: Subscription) -> None:
        """Raises Refused when what a member brings does not fit in any more; it comes again later. `before` is what it
        said until now, or who had its place."""
        more = size_of_member(member_id, after)
        more -= 0 if before is NO_SUBSCRIPTION else size_of_member(member_id, before)
        notes: list[str] = []
        if not self.shard.memory.has_room(more, self.shard.config.members_max_bytes, notes.append):
            message = "The members of all groups take too much memory."
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, message, notes[0] if notes else None)

    # --- epochs

    def bump_epoch(self, topics: Iterable[str], reason: str) -> None:
        """Count the group epoch up, over these topics that its members consume."""
        self._write_epoch(self.shard.topic_hashes.of_topics(topics, self.shard.image), reason)

    def _write_epoch(self, metadata_hash: int, reason: str) -> None:
        group_id = self.group.group_id
        self.group_epoch += 1
        self.records.append(GroupEpochRecord(group_id, GroupEpoch(self.group_epoch, metadata_hash)))
        self.effects.rebalances.append((group_id, self.group_epoch, reason))
        self.note(f"group epoch {self.group_epoch}: {reason}")

    def check_topics(self, topics: Iterable[str], reason: str | None) -> None:
        """Count the group epoch up if there is a reason, or if something is new about the topics that it consumes."""
        metadata_hash = self.shard.topic_hashes.of_topics(topics, self.shard.image)
        if reason is None and metadata_hash != self.group.epoch.metadata_hash:
            reason = "topics have changed"
        if reason is not None:
            self._write_epoch(metadata_hash, reason)
        self.group.checked_epoch = self.group_epoch

    def check_metadata(self, before: Subscription, after: Subscription, reason: str | None) -> None:
        """The same when a member is about to say something else than before."""
        self.check_topics(topics_after(self.group, before, after), reason)
        if self.group.has_partition_metadata:
            self.records.append(PartitionMetadataRecord(self.group.group_id, None))

    # --- assignments

    def update_target(
        self, before: ConsumerMember, after: ConsumerMember, *, rejoins: bool = False
    ) -> tuple[int, Target]:
        """The epoch of the target assignment and what the member is to have, both after all this. For a member that
        joins again that is always a new epoch, whatever it is to have.
        """
        group, shard, now = self.group, self.shard, self.now
        known = group.static_member(after.instance_id)
        last = group.target_of(after.member_id if known is None else known.member_id)
        if group.target_epoch.epoch >= self.group_epoch:
            return group.target_epoch.epoch, last
        if not rejoins and shard.puts_off_assignment(group, now):
            return group.target_epoch.epoch, last
        if is_large(group, after, shard.image):
            self.effects.assignments.append(group.group_id)
            if not rejoins:
                return group.target_epoch.epoch, last
            # The target stays what it is, in an epoch of its own, until the one that is computed beside comes.
            unchanged = TargetEpoch(self.group_epoch, group.target_epoch.computed_ms)
            self.records.append(TargetEpochRecord(group.group_id, unchanged))
            self.bump_epoch(topics_after(group, before.subscription, after.subscription), "its target is out of date")
            return unchanged.epoch, last
        votes = group.assignor_votes.copy()
        if before.subscription.assignor is not None:
            votes[before.subscription.assignor] -= 1
        if after.subscription.assignor is not None:
            votes[after.subscription.assignor] += 1
        name = group.preferred_assignor(+votes)
        assignor = shard.assignor(name)
        ranks = shard.rank_members(group, now) | {after.member_id: ANSWERED_NOW}
        epoch = TargetEpoch(self.group_epoch, now.wall_ms)
        new = compute_target(group, after, epoch, assignor, shard.image, ranks=ranks)
        self.records += new.records
        return self.group_epoch, new.by_member[after.member_id]

    def reconcile(
        self,
        member: ConsumerMember,
        target: tuple[int, Target],
        claimed: ClaimedPartitions | None,
        *,
        subscription_changed: bool,
        claim_is_certain: bool = True,
        joins: bool = False,
    ) -> ConsumerMember:
        """Take the member one step towards its target; `claimed` and what goes with it as in Reconciliation. Raises
        Refused.

        A member that joins again begins where its group stands. What it has read before must not be committed then,
        though its partitions are the same: they are its own from this epoch on.
        """
        group, current = self.group, member.current
        target_epoch, wanted = target
        if not subscription_changed and not joins and current.is_reconciled_to(target_epoch):
            return member
        step = Reconciliation(
            current,
            target_epoch,
            wanted,
            subscription_changed=subscription_changed,
            subscribed=topic_ids(group.topics_of(member.subscription), self.shard.image),
            is_free=group.is_free,
            claimed=claimed,
            claim_is_certain=claim_is_certain,
        )
        try:
            reconciled = reconcile(step)
        except MustRejoin:
            message = "The member's state is not known here. It has to give up all its partitions and join again."
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, message) from None
        if joins:
            reconciled = reconciled.given_anew()
        if reconciled == current:
            return member
        self.records.append(CurrentRecord(group.group_id, member.member_id, reconciled))
        if not member.uses_classic_protocol:
            self._watch_revocation(member, reconciled)
        return member._replace(current=reconciled)

    def _watch_revocation(self, member: ConsumerMember, reconciled: CurrentAssignment) -> None:
        timers = self.shard.timers_of(self.group.group_id, member.member_id)
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            timers.revoking_epoch = reconciled.epoch
            deadline_ms = self.now.monotonic_ms + member.subscription.rebalance_timeout_ms
            self.shard.timers.set(timers.rebalance, deadline_ms)
        else:
            timers.rebalance.cancel()

    # --- patterns

    def drop_regexes(self, leaving: Sequence[Subscription]) -> list[str]:
        """Forget the patterns that nobody uses when these members are gone; which they are."""
        group = self.group
        left = group.regex_subscribers.copy()
        left.subtract(subscription.regex for subscription in leaving if subscription.regex)
        used = {subscription.regex: None for subscription in leaving if subscription.regex}
        unused = [regex for regex in used if not left[regex]]
        self.records += [RegexRecord(group.group_id, regex, None) for regex in unused]
        return unused


def topics_after(group: ConsumerGroup, before: Subscription, after: Subscription) -> set[str]:
    """The topics that the members consume when one of them has changed."""
    regex_gone = before.regex if before.regex != after.regex else None
    regexes = [regex_gone] if regex_gone and group.regex_subscribers[regex_gone] == 1 else []
    return topics_without(group, [before], regexes) | after.topics


def topics_without(group: ConsumerGroup, gone: Sequence[Subscription], regexes: Collection[str]) -> set[str]:
    """The topics that are consumed without these members and these patterns."""
    left = group.topic_subscribers.copy()
    for subscription in gone:
        left.subtract(subscription.topics)
    for regex in regexes:
        if regex in group.resolved:
            left.subtract(group.resolved[regex].topics)
    return {topic for topic, count in left.items() if count > 0}
